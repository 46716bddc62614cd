"""Sessions of many keys at once: values are added, sessions merge, and results are retracted.

Results that sessions emit before they close are retracted when the sessions are merged into others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, ranges, run_starts
from flow_windowing.columnar.admission.admitted_rows import EnteringRows
from flow_windowing.columnar.aggregates.accumulator_column import AccumulatorColumn
from flow_windowing.columnar.aggregates.accumulators import RowOperation
from flow_windowing.columnar.state.shard_state import Bounds, OpenWindows, ShardState, Spans
from flow_windowing.columnar.windows.session_assignment import (
    SessionAssignment,
    SessionHistory,
    SessionOperation,
    SessionRef,
    assign_sessions,
    refs_of,
)
from flow_windowing.columnar.windows.windowing import (
    NO_ROWS,
    RowBatch,
    UnassignedRows,
    Update,
    WindowGroups,
    Windowing,
    group_by_window,
)
from flow_windowing.rules.triggers import Emit
from flow_windowing.rules.window_logic import Arrival
from flow_windowing.windowers.session_windower import SessionWindower


def add_values(windows: OpenWindows, batch: RowBatch, assignment: SessionAssignment) -> None:
    """Add entering rows to their sessions, and merge sessions.

    For an order-free aggregate, sessions are merged first, and then get all their values together.
    For other aggregates, a session gets its direct values together; the operations of all other
    values are applied in order.

    Args:
        windows: all sessions, final and merged, before the values.
        batch: the batch of rows.
        assignment: the sessions of the batch's rows.

    Raises:
        FailedRow: when a user's function raised.
    """
    merges = _Merges.of(windows, assignment.history)
    np.maximum.at(windows.latest_us, merges.targets, windows.latest_us[merges.originals])
    accepted = _grouped(batch, assignment, assignment.is_accepted)
    rows = windows.rows_of(accepted.windows)
    direct, direct_rows = accepted, rows
    if not assignment.is_direct.all():
        direct = _grouped(batch, assignment, assignment.is_direct)
        direct_rows = windows.rows_of(direct.windows)
    first_changes = _first_changes(windows, assignment.history, accepted, rows)
    batch.record_changes(windows, rows, accepted, first_changes)
    of_accepted = of_direct = batch.groups(accepted.entries, accepted.starts)
    if direct is not accepted:
        of_direct = batch.groups(direct.entries, direct.starts)
    for column in windows.accumulators:
        if column.is_order_free:
            merges.merge(column, batch)
            if len(rows):
                column.add(rows, of_accepted)
        elif len(direct_rows):
            column.add(direct_rows, of_direct)
    _apply_in_order(windows, batch, assignment)


def _apply_in_order(windows: OpenWindows, batch: RowBatch, assignment: SessionAssignment) -> None:
    """Apply the operations of the history to the aggregates that depend on order."""
    columns = [one for one in windows.accumulators if not one.is_order_free]
    if columns and assignment.history.operations:
        by_row = _RowOperations.of(windows, batch, assignment)
        with batch.failures_at(by_row.entries):
            for column in columns:
                column.apply(*by_row[:3])


def _grouped(batch: RowBatch, assignment: SessionAssignment, chosen: Mask) -> WindowGroups:
    entries = np.flatnonzero(chosen)
    return group_by_window(batch.entering, entries, assignment.ids[entries])


def _first_changes(
    windows: OpenWindows, history: SessionHistory, accepted: WindowGroups, rows: Ints
) -> Ints:
    """Return the entering row that changed each session first.

    Values that entered another session, before its merge into the session, do not count.
    """
    changes = accepted.entries[accepted.starts]
    first: dict[SessionRef, int] = {}
    for target, _, value in history.operations:
        if target not in history.merges:
            first[target] = min(first.get(target, value), value)
    changed = np.searchsorted(rows, windows.rows_of(refs_of(list(first))))
    changes[changed] = list(first.values())
    return changes


class _Merges(NamedTuple):
    """Sessions that are merged into final sessions.

    Attributes:
        originals: the row of each session that is merged.
        targets: the row of its final session.
        causes: the entering row that caused its merge.
    """

    originals: Ints
    targets: Ints
    causes: Ints

    @classmethod
    def of(cls, windows: OpenWindows, history: SessionHistory) -> _Merges:
        """Return the merges of a history."""
        final = refs_of([history.final_session(one) for one in history.merges])
        causes = np.array([merge.value for merge in history.merges.values()], np.int64)
        return cls(windows.rows_of(refs_of(list(history.merges))), windows.rows_of(final), causes)

    def merge(self, column: AccumulatorColumn, batch: RowBatch) -> None:
        """Merge accumulators in rounds; a target occurs at most once in a round."""
        order = np.argsort(self.targets, kind="stable")
        begins = run_starts(self.targets[order])
        counts = np.diff(begins, append=len(order))
        round_of_pair = ranges(np.zeros(len(counts), np.int64), counts)
        for number in range(int(counts.max(initial=0))):
            pairs = order[round_of_pair == number]
            with batch.failures_at(self.causes[pairs]):
                column.merge(self.targets[pairs], self.originals[pairs])


class _RowOperations(NamedTuple):
    """The operations of a history on rows, with the values of the entering rows that they add.

    Attributes:
        operations: the operations; their values are indices in `values`.
        values: the values of the rows that are not direct.
        arrivals: the arrivals of these values.
        entries: the entering rows of these values.
    """

    operations: list[RowOperation]
    values: list[Any]
    arrivals: list[Arrival]
    entries: Ints

    @classmethod
    def of(
        cls, windows: OpenWindows, batch: RowBatch, assignment: SessionAssignment
    ) -> _RowOperations:
        """Return the operations of the assignment's history."""
        entries, operations = np.flatnonzero(~assignment.is_direct), assignment.history.operations
        targets = windows.rows_of(refs_of([one.target for one in operations])).tolist()
        others = [one.original or one.target for one in operations]
        originals = windows.rows_of(refs_of(others)).tolist()
        index_of = dict(zip(entries.tolist(), range(len(entries)), strict=True))
        by_row = [
            RowOperation(target, None if one.original is None else original, index_of[one.value])
            for one, target, original in zip(operations, targets, originals, strict=True)
        ]
        return cls(by_row, *batch.objects(entries), entries)


def retractions(
    windows: OpenWindows, entering: EnteringRows, history: SessionHistory
) -> list[Update]:
    """Return the retractions of sessions that have emitted and that the history merges into others.

    The retractions are ordered by the watermark of the merge. The retracted result is the session's
    present result, because no batch has changed the session since it emitted: batches of one epoch
    enter in order of time, and no value is within reach both of a session that an earlier batch
    changed and of a session before it.
    """
    if windows.is_emitted is None or not history.merges:
        return []
    rows = windows.rows_of(refs_of(list(history.merges)))
    causes = np.array([merge.value for merge in history.merges.values()], np.int64)
    emitted = np.flatnonzero(windows.is_emitted[rows])
    emitted = emitted[np.argsort(causes[emitted], kind="stable")]
    if not len(emitted):
        return []
    rows, order = rows[emitted], entering.watermark_us[causes[emitted]]
    spans = windows.ensure_spans()
    update = Update(
        order,
        windows.slots[rows],
        windows.ids[rows],
        (spans.first_us[rows], spans.last_us[rows]),
        windows.latest_us[rows],
        [column.results(rows) for column in windows.accumulators],
        spans.merged_ids[rows],
        np.ones(len(rows), np.bool_),
    )
    return [update]


class _Emission(NamedTuple):
    """A result that a session emits or retracts.

    Attributes:
        operation: the index of the operation that causes it.
        session: the session.
        bounds: the bounds of the session after the operation; for a retraction, before it.
        is_retraction: True if the result is retracted.
    """

    operation: int
    session: SessionRef
    bounds: Bounds
    is_retraction: bool


def add_with_updates(
    windows: OpenWindows, batch: RowBatch, assignment: SessionAssignment
) -> list[Update]:
    """Apply the operations of a history in order, and return a result for each value.

    Args:
        windows: all sessions, final and merged, before the operations.
        batch: the batch of rows.
        assignment: the sessions of the batch's rows.

    Raises:
        FailedRow: when a user's function raised.
    """
    operations = assignment.history.operations
    if not operations:
        return []
    times_us = batch.entering.times_us.tolist()
    emissions = _emissions(operations, *_before(windows, operations), times_us)
    by_row = _RowOperations.of(windows, batch, assignment)
    with batch.failures_at(by_row.entries):
        results = [one.apply_each(*by_row[:3]) for one in windows.accumulators]
    causes = [one.operation for one in emissions]
    sessions = refs_of([one.session for one in emissions])
    spans = Spans.of([one.bounds for one in emissions])
    update = Update(
        np.array([operations[at].value for at in causes], np.int64),
        sessions.slots,
        sessions.ids,
        (spans.first_us, spans.last_us),
        spans.last_us,
        [[column[at] for at in causes] for column in results],
        spans.merged_ids,
        np.array([one.is_retraction for one in emissions], np.bool_),
    )
    return [update]


def _before(
    windows: OpenWindows, operations: list[SessionOperation]
) -> tuple[dict[SessionRef, Bounds], set[SessionRef]]:
    """Return the bounds of all sessions in operations, and the set of sessions that have emitted.

    Both are those before the operations.
    """
    sessions = list({one for each in operations for one in each[:2] if one is not None})
    rows = windows.rows_of(refs_of(sessions))
    spans = windows.ensure_spans().take(rows)
    columns = (spans.first_us.tolist(), spans.last_us.tolist(), spans.merged_ids.tolist())
    is_emitted = windows.ensure_emitted()[rows].tolist()
    return (
        dict(zip(sessions, map(Bounds, *columns), strict=True)),
        {one for one, has_emitted in zip(sessions, is_emitted, strict=True) if has_emitted},
    )


def _emissions(
    operations: list[SessionOperation],
    bounds: dict[SessionRef, Bounds],
    emitted: set[SessionRef],
    times_us: list[int],
) -> list[_Emission]:
    """Return the results and retractions that operations emit, in order.

    Args:
        operations: the operations.
        bounds: the bounds of all sessions before the operations; changed to those after them.
        emitted: the sessions that have emitted before the operations; changed likewise.
        times_us: the timestamp of each entering row.
    """
    emissions = []
    for index, (target, original, value) in enumerate(operations):
        if original is None:
            bounds[target] = bounds[target].with_value(times_us[value])
            emitted.add(target)
            emissions.append(_Emission(index, target, bounds[target], is_retraction=False))
            continue
        if original in emitted:
            emissions.append(_Emission(index, original, bounds[original], is_retraction=True))
        bounds[target] = bounds[target].with_session(original.id, bounds[original])
    return emissions


class SessionWindows(Windowing):
    """Windows that last as long as values of a key keep arriving.

    The id of a session is a timestamp in it, and the sessions of a key do not overlap. So the order
    of ids is the order of time, in which sessions close.
    """

    kind = "sessions"
    is_order_dependent = True
    may_merge = True

    def __init__(self, windower: SessionWindower) -> None:
        self._windower = windower
        self._reach_us = windower.gap_us if windower.inclusive else windower.gap_us - 1
        self._closing_us = self._reach_us + (windower.grace_us or 0) + 1
        self.is_late_at_once = windower.grace_us is None

    @override
    def ids_at(self, times_us: Ints) -> tuple[Ints, Ints]:
        return times_us, np.ones(len(times_us), np.int64)

    @override
    def closed_at_us(self, state: ShardState) -> Ints:
        return state.windows.ensure_spans().last_us + self._closing_us

    @override
    def enter(self, state: ShardState, batch: RowBatch) -> UnassignedRows:
        entering = batch.entering
        if not len(entering.rows):
            return UnassignedRows()
        assignment = assign_sessions(
            self._windower, state.windows, entering, self._reach_us, not self.is_late_at_once
        )
        merges = assignment.history.merges
        windows, rows = state.windows.open(assignment.all_sessions())
        state.windows = windows
        if batch.emit == "update":
            self._add_with_updates(state, batch, assignment)
        else:
            batch.updates.extend(retractions(windows, entering, assignment.history))
            add_values(windows, batch, assignment)
        if merges:
            rows = windows.rows_of(assignment.sessions)
        windows.ensure_spans().replace_rows(rows, assignment.spans)
        _mark_emitted(windows, rows, batch.emit)
        if merges:
            stays = np.ones(len(windows), np.bool_)
            stays[windows.rows_of(refs_of(list(merges)))] = False
            state.windows = windows.take(stays)
        late = np.array(assignment.history.late, np.int64)
        ids, counts = self.ids_at(entering.times_us[late])
        return UnassignedRows(NO_ROWS, late, ids, counts)

    def _add_with_updates(
        self, state: ShardState, batch: RowBatch, assignment: SessionAssignment
    ) -> None:
        """Add values to sessions, with a result for each value."""
        self.add_groups(state, batch, _grouped(batch, assignment, assignment.is_direct))
        batch.updates.extend(add_with_updates(state.windows, batch, assignment))
        if batch.needs_latest:
            rows = state.windows.rows_of(assignment.sessions)
            state.windows.latest_us[rows] = assignment.spans.last_us


def _mark_emitted(windows: OpenWindows, rows: Ints, emit: Emit) -> None:
    """Set `is_emitted` of changed sessions; with ``emit="epoch"`` the end of the epoch sets it."""
    if emit == "update":
        windows.ensure_emitted()[rows] = True
    elif emit == "close" and windows.is_emitted is not None:
        windows.is_emitted[rows] = False
