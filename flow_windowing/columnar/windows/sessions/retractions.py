"""Results that sessions emit before they close, and retract when they are merged into another."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flow_windowing.columnar.admission.rows import EnteringRows
from flow_windowing.columnar.aggregates.accumulators import FailedRow
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.state.spans import Bounds, Spans
from flow_windowing.columnar.windows.row_batch import RowBatch
from flow_windowing.columnar.windows.sessions.additions import row_operations
from flow_windowing.columnar.windows.sessions.assignment import SessionAssignment, refs_of
from flow_windowing.columnar.windows.sessions.history import (
    SessionHistory,
    SessionOperation,
    SessionRef,
)
from flow_windowing.columnar.windows.updates import Update


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
    results = _apply_operations(windows, batch, assignment, operations)
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


def _apply_operations(
    windows: OpenWindows,
    batch: RowBatch,
    assignment: SessionAssignment,
    operations: list[SessionOperation],
) -> list[list[Any]]:
    """Apply operations, and return each aggregate's result for each operation."""
    entries = np.flatnonzero(~assignment.is_direct)
    values, arrivals = batch.objects(entries)
    by_row = row_operations(windows, operations, entries)
    try:
        return [one.apply_each(by_row, values, arrivals) for one in windows.accumulators]
    except FailedRow as error:
        row = int(batch.entering.rows[entries[error.row]])
        raise FailedRow(row) from error.__cause__
