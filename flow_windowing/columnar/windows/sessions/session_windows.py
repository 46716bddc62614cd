"""Sessions of many keys at once."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.state.shard_state import ShardState
from flow_windowing.columnar.state.spans import MergedIds
from flow_windowing.columnar.windows.row_batch import (
    RowBatch,
    UnassignedRows,
    WindowGroups,
    group_by_window,
)
from flow_windowing.columnar.windows.sessions.additions import SessionAdder
from flow_windowing.columnar.windows.sessions.assignment import (
    SessionAssignment,
    assign_sessions,
    refs_of,
)
from flow_windowing.columnar.windows.sessions.retractions import add_with_updates, retractions
from flow_windowing.columnar.windows.updates import greatest_so_far
from flow_windowing.columnar.windows.windowing import Windowing
from flow_windowing.rules.settings import Emit
from flow_windowing.windowers.sessions import SessionWindower


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
    def missed_by(self, times_us: Ints) -> tuple[Ints, Ints]:
        return times_us, np.ones(len(times_us), np.int64)

    @override
    def missed_bounds_us(self, window_ids: Ints) -> tuple[Ints, Ints]:
        return window_ids, window_ids

    @override
    def bounds_us(self, windows: OpenWindows, rows: Ints) -> tuple[Ints, Ints]:
        spans = windows.ensure_spans()
        return spans.first_us[rows], spans.last_us[rows]

    @override
    def closed_at_us(self, state: ShardState) -> Ints:
        return state.windows.ensure_spans().last_us + self._closing_us

    @override
    def enter(self, state: ShardState, batch: RowBatch) -> UnassignedRows:
        entering = batch.entering
        if not len(entering.rows):
            return UnassignedRows.none()
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
            SessionAdder(windows, batch, assignment).add()
        if merges:
            rows = windows.rows_of(assignment.sessions)
        windows.ensure_spans().replace_rows(rows, assignment.spans)
        _mark_emitted(windows, rows, batch.emit)
        if merges:
            stays = np.ones(len(windows), np.bool_)
            stays[windows.rows_of(refs_of(list(merges)))] = False
            state.windows = windows.take(stays)
        late = np.array(assignment.history.late, np.int64)
        ids, counts = self.missed_by(entering.times_us[late])
        return UnassignedRows(UnassignedRows.none().in_gap, late, ids, counts)

    @override
    def bounds_per_value(
        self, windows: OpenWindows, rows: Ints, batch: RowBatch, groups: WindowGroups
    ) -> tuple[Ints, Ints]:
        spans, counts = windows.ensure_spans(), groups.counts
        times_us = batch.entering.times_us[groups.entries]
        first_us = -greatest_so_far(-spans.first_us[rows], -times_us, counts)
        return first_us, greatest_so_far(spans.last_us[rows], times_us, counts)

    @override
    def merged_ids_per_value(self, windows: OpenWindows, rows: Ints, counts: Ints) -> MergedIds:
        return np.repeat(windows.ensure_spans().merged_ids[rows], counts)

    def _add_with_updates(
        self, state: ShardState, batch: RowBatch, assignment: SessionAssignment
    ) -> None:
        """Add values to sessions, with a result for each value."""
        entries = np.flatnonzero(assignment.is_direct)
        groups = group_by_window(batch.entering, entries, assignment.ids[entries])
        self.add_groups(state, batch, groups)
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
