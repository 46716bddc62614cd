"""Values grouped by the window that they enter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints
from flow.columns.chunks import as_objects
from flow.fields import field_path
from flow_windowing.columnar.values.records import Values
from flow_windowing.contract.arrival import Arrival


class Groups:
    """Values that enter windows, grouped by window, each group in order of entering.

    Attributes:
        values: all values of the epoch.
        rows: the row in `values` of each value that enters, group after group.
        starts: the index in `rows` of each group's first value; no group is empty.
        is_in_arrival_order: True if values enter in the order in which they arrived.
    """

    def __init__(
        self,
        values: Values,
        rows: Ints,
        starts: Ints,
        objects: Callable[[Ints], list[Any]],
        arrivals: Callable[[], tuple[Ints, Ints, Ints]],
        is_in_arrival_order: bool,
    ) -> None:
        self.values = values
        self.rows = rows
        self.starts = starts
        self.is_in_arrival_order = is_in_arrival_order
        self._objects = objects
        self._arrivals = arrivals

    def singletons(self) -> Groups:
        """Return the same values, each as a group of its own."""
        starts = np.arange(len(self.rows))
        return Groups(
            self.values, self.rows, starts, self._objects, self._arrivals, self.is_in_arrival_order
        )

    @cached_property
    def counts(self) -> Ints:
        """The number of values in each group."""
        return np.diff(self.starts, append=len(self.rows))

    @cached_property
    def objects(self) -> list[Any]:
        """The values as Python objects, aligned with `rows`."""
        return self._objects(self.rows)

    def column(self, field: Any) -> pa.Array | None:
        """Return a column of all values; ``None`` if the field is in no column of records."""
        values = self.values
        is_path = isinstance(field, str) and isinstance(values, pa.RecordBatch)
        return field_path(field).column_in(values) if is_path else None

    def field_objects(self, field: str) -> list[Any] | None:
        """Return a field of the values as Python objects, aligned with `rows`.

        Returns:
            ``None`` if the values are not records, or have no field of that name.
        """
        values = self.values
        if not isinstance(values, pa.RecordBatch) or field not in values.schema.names:
            return None
        return as_objects(values.column(field).take(pa.array(self.rows)))

    def value_at(self, at: int) -> Any:
        """Return the value at an index of `rows` as a Python object."""
        (value,) = self._objects(self.rows[at : at + 1])
        return value

    @cached_property
    def arrival_columns(self) -> tuple[Ints, Ints, Ints]:
        """Timestamps in µs, arrival numbers and entry numbers, aligned with `rows`."""
        times_us, numbers, entry_numbers = self._arrivals()
        return times_us[self.rows], numbers[self.rows], entry_numbers[self.rows]

    @cached_property
    def group_of_value(self) -> Ints:
        """The number of each value's group, aligned with `rows`."""
        return np.repeat(np.arange(len(self.starts)), self.counts)

    def arrivals(self) -> Iterator[Arrival]:
        """Return the arrival of each value, aligned with `rows`."""
        return map(Arrival, *(column.tolist() for column in self.arrival_columns))
