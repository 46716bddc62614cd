"""The assignment of entering rows to sessions."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from flow.columns.arrays import Ints, Mask, order_by
from flow_windowing.columnar.admission.rows import EnteringRows
from flow_windowing.columnar.state.open_windows import OpenWindows, WindowRefs
from flow_windowing.columnar.state.spans import Spans
from flow_windowing.columnar.windows.sessions.clusters import (
    Clusters,
    ClusterSessions,
    cluster_sessions,
    find_clusters,
)
from flow_windowing.columnar.windows.sessions.history import (
    IncomingValue,
    SessionHistory,
    SessionRef,
)
from flow_windowing.rules.lateness import is_behind
from flow_windowing.windowers.sessions import SessionState, SessionWindower


class SessionAssignment(NamedTuple):
    """The final sessions of entering rows, after all merges of the batch.

    Attributes:
        ids: the id of the final session of each row.
        is_accepted: False for a late row.
        is_direct: True for a row whose session is not merged into another.
        sessions: the final sessions that get values, sorted by slot and id.
        spans: the bounds of the final sessions.
        history: the history of the sessions of the rows that are not direct.
    """

    ids: Ints
    is_accepted: Mask
    is_direct: Mask
    sessions: WindowRefs
    spans: Spans
    history: SessionHistory

    def all_sessions(self) -> WindowRefs:
        """Return the final sessions and the sessions merged into them, sorted by slot and id."""
        if not self.history.merges:
            return self.sessions
        merged = refs_of(list(self.history.merges))
        slots = np.concatenate([self.sessions.slots, merged.slots])
        ids = np.concatenate([self.sessions.ids, merged.ids])
        order = order_by(slots, ids)
        return WindowRefs(slots[order], ids[order])


def refs_of(sessions: list[SessionRef]) -> WindowRefs:
    """Return references to sessions as columns."""
    return WindowRefs(
        np.array([one.slot for one in sessions], np.int64),
        np.array([one.id for one in sessions], np.int64),
    )


def assign_sessions(
    windower: SessionWindower,
    windows: OpenWindows,
    entering: EnteringRows,
    reach_us: int,
    late_if_behind: bool,
) -> SessionAssignment:
    """Assign entering rows to sessions.

    Clusters that are one session at every time are assigned in columns. All other clusters, which
    merge sessions or may have late values, are assigned value by value.

    Args:
        windower: the windower.
        windows: the open sessions.
        entering: the rows.
        reach_us: the greatest distance within a session.
        late_if_behind: True if a row behind the watermark may be late for its session.
    """
    spans = windows.ensure_spans()
    clusters = find_clusters(windows, spans, entering, reach_us)
    of_clusters = cluster_sessions(clusters, windows, spans, entering, reach_us)
    is_single = of_clusters.is_single
    if late_if_behind:
        may_be_late = is_behind(entering.times_us, entering.watermark_us)
        is_single[clusters.of_value[may_be_late]] = False
    is_direct = is_single[clusters.of_value]
    ids = of_clusters.ids[clusters.of_value]
    is_accepted = np.ones(len(ids), np.bool_)
    history = SessionHistory()
    if not is_direct.all():
        history = _history_of(windower, windows, clusters, is_single, entering)
        is_accepted[history.late] = False
        for value, session in history.sessions_of_values().items():
            ids[value] = session.id
    sessions, bounds = _final_sessions(clusters, of_clusters, spans, history)
    return SessionAssignment(ids, is_accepted, is_direct, sessions, bounds, history)


def _history_of(
    windower: SessionWindower,
    windows: OpenWindows,
    clusters: Clusters,
    is_single: Mask,
    entering: EnteringRows,
) -> SessionHistory:
    """Add the values of clusters that are not single to their sessions one by one."""
    rows = np.flatnonzero(~is_single[clusters.of_value])
    columns = (rows, entering.times_us[rows], entering.watermark_us[rows])
    values = map(IncomingValue, *(column.tolist() for column in columns))
    by_cluster: dict[int, list[IncomingValue]] = defaultdict(list)
    for cluster, value in zip(clusters.of_value[rows].tolist(), values, strict=True):
        by_cluster[cluster].append(value)
    states = _states_of(windows, clusters, is_single)
    history = SessionHistory()
    for cluster, of_cluster in by_cluster.items():
        slot = int(clusters.slots[cluster])
        history.add_values(windower, slot, states.get(cluster, []), of_cluster)
    return history


def _states_of(
    windows: OpenWindows, clusters: Clusters, is_single: Mask
) -> dict[int, SessionState]:
    """Return the open sessions of each cluster that is not single, as the windower's state."""
    spans = windows.ensure_spans()
    chosen = ~is_single[clusters.of_session]
    rows = clusters.sessions[chosen]
    states: dict[int, SessionState] = defaultdict(list)
    columns = (windows.ids, spans.first_us, spans.last_us, spans.merged_ids)
    sessions = zip(*(column[rows].tolist() for column in columns), strict=True)
    for cluster, session in zip(clusters.of_session[chosen].tolist(), sessions, strict=True):
        states[cluster].append(session)
    return states


def _final_sessions(
    clusters: Clusters, of_clusters: ClusterSessions, spans: Spans, history: SessionHistory
) -> tuple[WindowRefs, Spans]:
    """Return the resulting sessions, sorted by slot and id, and their bounds."""
    merged_ids = Spans.empty(len(clusters.slots)).merged_ids
    merged_ids[clusters.of_session] = spans.merged_ids[clusters.sessions]
    single = np.flatnonzero(of_clusters.is_single)
    of_history = refs_of(list(history.sessions))
    slots = np.concatenate([clusters.slots[single], of_history.slots])
    ids = np.concatenate([of_clusters.ids[single], of_history.ids])
    bounds = Spans(of_clusters.first_us[single], of_clusters.last_us[single], merged_ids[single])
    order = order_by(slots, ids)
    all_bounds = bounds.concat(Spans.of(list(history.sessions.values())))
    return WindowRefs(slots[order], ids[order]), all_bounds.take(order)
