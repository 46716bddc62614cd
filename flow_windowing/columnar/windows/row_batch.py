"""Batches of rows that enter windows, and their groups by window."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flow.columns.arrays import Ints
from flow_windowing.columnar.admission.rows import EnteringRows
from flow_windowing.columnar.aggregates.groups import Groups
from flow_windowing.columnar.state.open_windows import OpenWindows, WindowRefs, window_order
from flow_windowing.columnar.values.records import Values, object_reader
from flow_windowing.columnar.windows.updates import Update
from flow_windowing.contract.arrival import Arrival
from flow_windowing.rules.settings import Emit


class RowBatch(NamedTuple):
    """A batch of rows of one shard that enters windows together.

    Attributes:
        entering: the rows.
        values: the values that the rows refer to.
        entry_numbers: the entry number of each row.
        needs_latest: True if windows record their greatest timestamp.
        is_in_arrival_order: True if rows enter in order of arrival.
        emit: the setting of when windows emit.
        updates: the list to which windows append their output as rows enter: a result for each row
            with ``emit="update"``, else retractions.
    """

    entering: EnteringRows
    values: Values
    entry_numbers: Ints
    needs_latest: bool
    is_in_arrival_order: bool
    emit: Emit
    updates: list[Update]

    def groups(self, entries: Ints, starts: Ints) -> Groups:
        """Return entering rows, given by index and grouped by window, as input of aggregates."""
        return Groups(
            self.values,
            self.entering.rows[entries],
            starts,
            object_reader(self.values),
            self._arrival_columns,
            self.is_in_arrival_order,
        )

    def objects(self, entries: Ints) -> tuple[list[Any], list[Arrival]]:
        """Return the values of entering rows as Python objects, and their arrivals."""
        entering = self.entering
        columns = (entering.times_us[entries], entering.numbers[entries])
        arrivals = zip(
            *(column.tolist() for column in (*columns, self.entry_numbers[entries])), strict=True
        )
        values = object_reader(self.values)(entering.rows[entries])
        return values, [Arrival(*one) for one in arrivals]

    def record_changes(
        self,
        windows: OpenWindows,
        rows: Ints,
        groups: WindowGroups,
        first_changes: Ints | None = None,
    ) -> None:
        """Record the first change and the greatest timestamp of windows, if they are needed.

        Args:
            windows: the open windows, which are changed.
            rows: the rows of the windows that get values.
            groups: the entering rows by window.
            first_changes: the entering row that changed each window first; by default the first
                row of its group.
        """
        if windows.first_changes is not None:
            # Several batches of an epoch enter in order of time. A later batch changes open windows
            # of the earlier batches before any other window, so indices of rows stay ordered.
            if first_changes is None:
                first_changes = groups.entries[groups.starts]
            windows.first_changes[rows] = np.minimum(windows.first_changes[rows], first_changes)
        if self.needs_latest and len(rows):
            times_us = self.entering.times_us[groups.entries]
            latest_us = np.maximum.reduceat(times_us, groups.starts)
            windows.latest_us[rows] = np.maximum(windows.latest_us[rows], latest_us)

    def _arrival_columns(self) -> tuple[Ints, Ints, Ints]:
        """Return timestamps, arrival numbers and entry numbers, aligned with `values`."""
        entering = self.entering
        columns = []
        for column in (entering.times_us, entering.numbers, self.entry_numbers):
            by_value = np.zeros(len(self.values), np.int64)
            by_value[entering.rows] = column
            columns.append(by_value)
        return columns[0], columns[1], columns[2]


class UnassignedRows(NamedTuple):
    """Entering rows that are not assigned to some or all of their windows, by index.

    Attributes:
        in_gap: the rows that are in no window.
        late: the rows that are late for windows that have closed.
        ids: the first window that each late row misses.
        counts: the number of windows, with consecutive ids, that each late row misses.
    """

    in_gap: Ints
    late: Ints
    ids: Ints
    counts: Ints

    @classmethod
    def none(cls) -> UnassignedRows:
        """Return no rows."""
        empty = np.empty(0, np.int64)
        return cls(empty, empty, empty, empty)


class WindowGroups(NamedTuple):
    """Entering rows grouped by window.

    Attributes:
        windows: the windows that get values, sorted by slot and id.
        entries: the index of each entering row, window after window, in order of entering; a row
            occurs once for each of its windows.
        starts: the index in `entries` of each window's first row.
    """

    windows: WindowRefs
    entries: Ints
    starts: Ints

    @property
    def counts(self) -> Ints:
        """The number of values that each window gets."""
        return np.diff(self.starts, append=len(self.entries))


def group_by_window(entering: EnteringRows, entries: Ints, ids: Ints) -> WindowGroups:
    """Group entering rows by window.

    Args:
        entering: the rows.
        entries: the indices of the rows to group, sorted by slot; may repeat.
        ids: the id of the window that each of the rows enters.
    """
    slots = entering.slots[entries]
    order = window_order(slots, ids)
    if order is not None:
        entries, ids, slots = entries[order], ids[order], slots[order]
    is_start = (slots[1:] != slots[:-1]) | (ids[1:] != ids[:-1])
    starts = np.concatenate([np.zeros(min(len(ids), 1), np.int64), np.flatnonzero(is_start) + 1])
    return WindowGroups(WindowRefs(slots[starts], ids[starts]), entries, starts)
