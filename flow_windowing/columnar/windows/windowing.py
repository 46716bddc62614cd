"""Windows over many keys: a step's plan, the contract of its windows, the batches that enter them.

An update is a result that a window emits before it closes, or the retraction of such a result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, Mask, run_starts, running_max
from flow.columns.chunks import pick
from flow.instants import NEVER
from flow_windowing.aggregates.aggregator import Aggregator, form_of
from flow_windowing.columnar.admission.admitted_rows import EnteringRows
from flow_windowing.columnar.admission.shard_clocks import ShardClock
from flow_windowing.columnar.aggregates.accumulator_column import has_kernel
from flow_windowing.columnar.aggregates.accumulators import FailedRow, Groups
from flow_windowing.columnar.state.shard_state import (
    MergedIds,
    OpenWindows,
    ShardState,
    StateForm,
    WindowKind,
    WindowRefs,
    window_order,
)
from flow_windowing.columnar.values.records import Values, object_reader
from flow_windowing.columnar.windows.window_view import ResultColumn
from flow_windowing.rules.triggers import Emit, Timestamp, timestamp_of
from flow_windowing.rules.window_logic import Arrival

NO_ROWS: Ints = np.empty(0, np.int64)


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
            [
                column.take(pa.array(rows)) if isinstance(column, pa.Array) else pick(column, rows)
                for column in self.results
            ],
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
        rows = self.entering.rows[entries]
        return Groups(self.values, rows, starts, self._arrival_columns, self.is_in_arrival_order)

    def objects(self, entries: Ints) -> tuple[list[Any], list[Arrival]]:
        """Return the values of entering rows as Python objects, and their arrivals."""
        entering = self.entering
        columns = (entering.times_us[entries], entering.numbers[entries])
        arrivals = zip(
            *(column.tolist() for column in (*columns, self.entry_numbers[entries])), strict=True
        )
        values = object_reader(self.values)(entering.rows[entries])
        return values, [Arrival(*one) for one in arrivals]

    @contextmanager
    def failures_at(self, entries: Ints) -> Iterator[None]:
        """Raise a `FailedRow` of an index in `entries` as that of the entering row's value."""
        try:
            yield
        except FailedRow as error:
            raise FailedRow(int(self.entering.rows[entries[error.row]])) from error.__cause__

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
        by_value = np.zeros((3, len(self.values)), np.int64)
        columns = (entering.times_us, entering.numbers, self.entry_numbers)
        for of_values, column in zip(by_value, columns, strict=True):
            of_values[entering.rows] = column
        return by_value[0], by_value[1], by_value[2]


class UnassignedRows(NamedTuple):
    """Entering rows that are not assigned to some or all of their windows, by index.

    Attributes:
        in_gap: the rows that are in no window.
        late: the rows that are late for windows that have closed.
        ids: the first window that each late row misses.
        counts: the number of windows, with consecutive ids, that each late row misses.
    """

    in_gap: Ints = NO_ROWS
    late: Ints = NO_ROWS
    ids: Ints = NO_ROWS
    counts: Ints = NO_ROWS


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
    starts = run_starts(slots, ids)
    return WindowGroups(WindowRefs(slots[starts], ids[starts]), entries, starts)


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
            merged = windows.ensure_spans().merged_ids[rows] if self.may_merge else None
            update = Update(
                groups.entries,
                np.repeat(groups.windows.slots, counts),
                np.repeat(groups.windows.ids, counts),
                self.bounds_per_value(windows, rows, batch, groups),
                greatest_so_far(windows.latest_us[rows], times_us, counts),
                results,
                None if merged is None else np.repeat(merged, counts),
            )
            batch.updates.append(update.sort())
        batch.record_changes(windows, rows, groups)

    def counted_after(self, state: ShardState, closing: Ints) -> Ints:  # noqa: ARG002
        """Return `counted_values` after the windows in the given rows have closed."""
        return state.counted_values


@dataclass(frozen=True)
class WindowPlan:
    """A windowing step that runs over columns.

    Attributes:
        clock: the clock.
        windowing: the windows.
        aggregators: the aggregates of each window.
        result_columns: the name and the empty value of each aggregate's results.
        named: True if a window's value is a dict of results by name, even of a single result.
        waits: True if values are buffered until the watermark passes them.
        timestamp: the timestamp that metadata carries.
        emit: the setting of when windows emit.
        sides: the number of streams of the step; with more than one, values are ``(side, value)``.
        emits_accumulators: True if windows emit their accumulators in the place of results.
        reach_us: the greatest time before a value at which the result of its window may lie.
    """

    clock: ShardClock[Any]
    windowing: Windowing
    aggregators: tuple[Aggregator[Any, Any, Any], ...]
    result_columns: tuple[ResultColumn, ...]
    named: bool
    waits: bool
    timestamp: Timestamp | None
    emit: Emit = "close"
    sides: int = 1
    emits_accumulators: bool = False
    reach_us: int = 0

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The fields that aggregates read, if columns can hold all aggregates; else empty.

        The tuple is also empty if an aggregate reads a nested field.
        """
        if not all(has_kernel(one) for one in self.aggregators):
            return ()
        fields = frozenset[str]().union(*(one.paths_read or () for one in self.aggregators))
        return () if any("." in field for field in fields) else tuple(sorted(fields))

    @property
    def keeps_latest(self) -> bool:
        """True if windows record their greatest timestamp."""
        return self.timestamp == "last"

    @property
    def emits_items(self) -> bool:
        """True if a window emits each item of the result of its only aggregate."""
        return any(form_of(one).emits_items for one in self.aggregators)

    @property
    def counts_arrivals(self) -> bool:
        """True if the order of buffered values or an aggregate depends on arrivals."""
        return self.waits or not all(_ignores_arrivals(one) for one in self.aggregators)

    @cached_property
    def form(self) -> StateForm:
        """The form of the state in segments."""
        return StateForm(
            self.windowing.kind,
            self.clock,
            self.aggregators,
            self.named,
            self.counts_arrivals,
        )

    def holds_us(self, bounds_us: tuple[Ints, Ints], latest_us: Ints) -> Ints:
        """Return the least timestamp that the result of each open window may still have."""
        open_us, close_us = bounds_us
        if self.timestamp == "last":
            return np.where(latest_us > -NEVER, latest_us, open_us)
        return close_us if self.timestamp == "close" else open_us

    def timestamps_us(self, bounds_us: tuple[Ints, Ints], latest_us: Ints) -> Ints | None:
        """Return the timestamps that the metadata of windows carries, ``None`` for none.

        Args:
            bounds_us: the open and the close times of the windows.
            latest_us: the greatest timestamp in each window, `-NEVER` where it is not recorded.
        """
        if self.timestamp is None:
            return None
        open_us, close_us = bounds_us
        return timestamp_of(
            self.timestamp,
            open_us,
            close_us,
            # A window that was opened with another setting of `timestamp` has no record.
            lambda: np.where(latest_us > -NEVER, latest_us, close_us),
        )


def _ignores_arrivals(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Return True if an aggregate does not depend on the arrivals of its values."""
    is_added_alone = type(aggregator).add_at is Aggregator.add_at
    return is_added_alone or form_of(aggregator).ignores_arrival
