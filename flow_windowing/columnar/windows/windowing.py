"""The contract of windows over many keys."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from flow.columns.arrays import Ints
from flow_windowing.columnar.state.open_windows import MergedIds, OpenWindows
from flow_windowing.columnar.state.shard_state import ShardState, WindowKind
from flow_windowing.columnar.windows.row_batch import (
    RowBatch,
    UnassignedRows,
    Update,
    WindowGroups,
    greatest_so_far,
)


class Windowing(ABC):
    """A windower over many keys.

    Attributes:
        kind: the kind of the windows, as a segment names it.
        is_late_at_once: True if every value behind the watermark is late, for any window.
        closes_by_time: True if the watermark closes windows; otherwise no value is late.
        has_gaps: True if a value may be in no window.
        is_order_dependent: True if windows depend on the order in which values enter.
        may_merge: True if windows may merge.
    """

    kind: WindowKind
    is_late_at_once: bool
    closes_by_time: bool = True
    has_gaps: bool = False
    is_order_dependent: bool = False
    may_merge: bool = False

    @abstractmethod
    def ids_at(self, times_us: Ints) -> tuple[Ints, Ints]:
        """Return the first window of each timestamp, and its number of consecutive windows.

        They are the windows that a late timestamp misses.
        """

    def bounds_of(self, window_ids: Ints) -> tuple[Ints, Ints]:
        """Return the open and the close times of windows that late timestamps miss.

        This implementation is for windows whose bounds follow from values.
        """
        return window_ids, window_ids

    def bounds_us(self, windows: OpenWindows, rows: Ints) -> tuple[Ints, Ints]:
        """Return the open and the close times of the windows in the given rows.

        This implementation is for windows whose bounds follow from values.
        """
        spans = windows.ensure_spans()
        return spans.first_us[rows], spans.last_us[rows]

    @abstractmethod
    def closed_at_us(self, state: ShardState) -> Ints:
        """Return the watermark at which each open window closes, grace included.

        Among the windows of a key, the result does not decrease with the id.
        """

    @abstractmethod
    def enter(self, state: ShardState, batch: RowBatch) -> UnassignedRows:
        """Add a batch of rows to the windows that are open as each row enters.

        Returns:
            The rows that some or all windows reject.

        Raises:
            FailedRow: when a user's function raised.
        """

    def bounds_per_value(
        self, windows: OpenWindows, rows: Ints, batch: RowBatch, groups: WindowGroups
    ) -> tuple[Ints, Ints]:
        """Return the bounds of each value's window, after this value and the values before it.

        This implementation is for windows whose bounds follow from values.

        Args:
            windows: the windows before the batch's values.
            rows: the rows of the windows that get values.
            batch: the batch of rows.
            groups: the batch's rows by window.
        """
        first_us, last_us = self.bounds_us(windows, rows)
        times_us, counts = batch.entering.times_us[groups.entries], groups.counts
        least_us = -greatest_so_far(-first_us, -times_us, counts)
        return least_us, greatest_so_far(last_us, times_us, counts)

    def _merged_ids_per_value(
        self, windows: OpenWindows, rows: Ints, counts: Ints
    ) -> MergedIds | None:
        """Return the merged ids of each value's window; ``None`` if windows do not merge."""
        return (
            np.repeat(windows.ensure_spans().merged_ids[rows], counts) if self.may_merge else None
        )

    def add_groups(self, state: ShardState, batch: RowBatch, groups: WindowGroups) -> None:
        """Add values to windows, and open windows that are not open.

        Raises:
            FailedRow: when a user's function raised.
        """
        if not len(groups.entries):
            return
        state.windows, rows = state.windows.open(groups.windows)
        windows, of_aggregates = state.windows, batch.groups(groups.entries, groups.starts)
        if batch.emit != "update":
            for column in windows.accumulators:
                column.add(rows, of_aggregates)
        else:
            results = [column.add_each(rows, of_aggregates) for column in windows.accumulators]
            counts, times_us = groups.counts, batch.entering.times_us[groups.entries]
            update = Update(
                groups.entries,
                np.repeat(groups.windows.slots, counts),
                np.repeat(groups.windows.ids, counts),
                self.bounds_per_value(windows, rows, batch, groups),
                greatest_so_far(windows.latest_us[rows], times_us, counts),
                results,
                self._merged_ids_per_value(windows, rows, counts),
            )
            batch.updates.append(update.sort())
        batch.record_changes(windows, rows, groups)

    def counted_after(self, state: ShardState, closing: Ints) -> Ints:  # noqa: ARG002
        """Return `counted_values` after the windows in the given rows have closed."""
        return state.counted_values
