"""Batches of rows that enter windows, their groups by window, and the updates they cause.

An update is a result that a window emits before it closes, or the retraction of such a result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, Mask, running_max
from flow_windowing.columnar.admission.rows import EnteringRows
from flow_windowing.columnar.aggregates.accumulators import Groups
from flow_windowing.columnar.state.open_windows import (
    MergedIds,
    OpenWindows,
    WindowRefs,
    window_order,
)
from flow_windowing.columnar.values.records import Values, object_reader
from flow_windowing.contract.arrival import Arrival
from flow_windowing.rules.settings import Emit


class Update(NamedTuple):
    """Results of windows to emit or to retract, one result a row.

    Attributes:
        order: the rank of each row within the output of its key.
        slots: the slot of each row's key.
        ids: the id of each row's window.
        bounds_us: the open and the close time of each window, int64 µs.
        latest_us: the greatest timestamp in each window; all `-NEVER` if it is not needed.
        results: the results of each aggregate.
        merged_ids: the ids of the windows merged into each; ``None`` if windows do not merge.
        is_retraction: True for a row that retracts the window's last result; ``None`` if no row
            does.
    """

    order: Ints
    slots: Ints
    ids: Ints
    bounds_us: tuple[Ints, Ints]
    latest_us: Ints
    results: list[pa.Array | list[Any]]
    merged_ids: MergedIds | None = None
    is_retraction: Mask | None = None

    def take(self, rows: Ints) -> Update:
        """Return the given rows, in the given order."""
        open_us, close_us = self.bounds_us
        return Update(
            self.order[rows],
            self.slots[rows],
            self.ids[rows],
            (open_us[rows], close_us[rows]),
            self.latest_us[rows],
            [_take(column, rows) for column in self.results],
            None if self.merged_ids is None else self.merged_ids[rows],
            None if self.is_retraction is None else self.is_retraction[rows],
        )

    def sort(self) -> Update:
        """Return the rows sorted by `order`; the sort is stable."""
        return self.take(np.argsort(self.order, kind="stable"))


def greatest_so_far(before: Ints, values: Ints, counts: Ints) -> Ints:
    """Return the running maximum of each group's values, starting from the group's `before`.

    Args:
        before: the maximum before the values, one for each group.
        values: the values, group after group.
        counts: the number of values in each group.

    >>> greatest_so_far(np.array([2, 9]), np.array([1, 3, 8]), np.array([2, 1])).tolist()
    [2, 3, 9]
    """
    groups = np.repeat(np.arange(len(counts)), counts)
    return np.maximum(running_max(values, groups), before[groups])


def _take(column: pa.Array | list[Any], rows: Ints) -> pa.Array | list[Any]:
    if isinstance(column, pa.Array):
        return column.take(pa.array(rows))
    return [column[row] for row in rows.tolist()]


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
