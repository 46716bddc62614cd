"""The assignment of entering rows to sessions, by clusters.

A cluster is the values and open sessions of a key that become one session. Each session or value of
a cluster is within reach of another one. Without late values, a cluster becomes one session for any
order of its values; the order only determines the session's id. If each value, as it enters, has
exactly one session of the cluster within reach, the id of that session does not change.

The history of sessions that merge or may have late values is computed value by value.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from flow.columns.arrays import Ints, Mask, order_by, run_starts, running_max
from flow_windowing.columnar.admission.admitted_rows import EnteringRows
from flow_windowing.columnar.state.shard_state import Bounds, OpenWindows, Spans, WindowRefs
from flow_windowing.rules.watermark import is_behind
from flow_windowing.windowers.session_windower import SessionState, SessionWindower


class Clusters(NamedTuple):
    """Clusters that have values, sorted by slot and time.

    Attributes:
        slots: the slot of each cluster.
        sessions: the rows of the open sessions that are in a cluster.
        of_session: the cluster of each session in `sessions`.
        of_value: the cluster of each entering row.
    """

    slots: Ints
    sessions: Ints
    of_session: Ints
    of_value: Ints


class ClusterSessions(NamedTuple):
    """The session that each cluster becomes if its values enter one after the other.

    Attributes:
        ids: the id of the first session of each cluster.
        first_us: the least timestamp of each cluster.
        last_us: the greatest timestamp of each cluster.
        is_single: True if the cluster is one session at every time.
    """

    ids: Ints
    first_us: Ints
    last_us: Ints
    is_single: Mask


def find_clusters(windows: OpenWindows, entering: EnteringRows, reach_us: int) -> Clusters:
    """Group open sessions and entering rows into clusters.

    Args:
        windows: the open sessions.
        entering: the rows.
        reach_us: the greatest distance within a session.
    """
    spans = windows.ensure_spans()
    gets_values = np.zeros(int(entering.slots.max()) + 1, np.bool_)
    gets_values[entering.slots] = True
    is_near = windows.slots < len(gets_values)
    sessions = np.flatnonzero(is_near)[gets_values[windows.slots[is_near]]]
    slots = np.concatenate([windows.slots[sessions], entering.slots])
    first_us = np.concatenate([spans.first_us[sessions], entering.times_us])
    last_us = np.concatenate([spans.last_us[sessions], entering.times_us])
    order = order_by(slots, first_us)
    starts_cluster = _starts_cluster(slots[order], first_us[order], last_us[order], reach_us)
    cluster = np.empty(len(order), np.int64)
    cluster[order] = np.cumsum(starts_cluster) - 1
    return _clusters_with_values(cluster, slots, sessions)


def _starts_cluster(slots: Ints, first_us: Ints, last_us: Ints, reach_us: int) -> Mask:
    """Return the mask of intervals that begin a cluster: no interval before is within reach.

    Args:
        slots: the slot of each interval, ascending.
        first_us: the start of each interval, ascending within a slot.
        last_us: the end of each interval.
        reach_us: the greatest distance within a session.
    """
    is_new_slot = np.ones(len(slots), np.bool_)
    is_new_slot[1:] = slots[1:] != slots[:-1]
    greatest_us = running_max(last_us, np.cumsum(is_new_slot) - 1)
    starts = is_new_slot.copy()
    starts[1:] |= first_us[1:] > greatest_us[:-1] + reach_us
    return starts


def _clusters_with_values(cluster: Ints, slots: Ints, sessions: Ints) -> Clusters:
    """Return the clusters that have values, numbered from 0.

    Args:
        cluster: the cluster of each session, then of each value.
        slots: the slot of each session, then of each value.
        sessions: the rows of the sessions.
    """
    count = len(sessions)
    has_value = np.zeros(int(cluster.max()) + 1, np.bool_)
    has_value[cluster[count:]] = True
    number = np.cumsum(has_value) - 1
    stays = has_value[cluster[:count]]
    of_value = number[cluster[count:]]
    slot_of_cluster = np.empty(int(number[-1]) + 1, np.int64)
    slot_of_cluster[of_value] = slots[count:]
    return Clusters(slot_of_cluster, sessions[stays], number[cluster[:count][stays]], of_value)


def cluster_sessions(
    clusters: Clusters, windows: OpenWindows, entering: EnteringRows, reach_us: int
) -> ClusterSessions:
    """Return the session that each cluster becomes when its values enter in order."""
    sessions, spans = clusters.sessions, windows.ensure_spans()
    cluster = np.concatenate([clusters.of_session, clusters.of_value])
    order = np.argsort(cluster, kind="stable")
    cluster = cluster[order]
    ids = np.concatenate([windows.ids[sessions], entering.times_us])[order]
    first_us = np.concatenate([spans.first_us[sessions], entering.times_us])[order]
    last_us = np.concatenate([spans.last_us[sessions], entering.times_us])[order]
    greatest_us = running_max(last_us, cluster)
    least_us = -running_max(-first_us, cluster)
    begins = run_starts(cluster)
    is_out_of_reach = np.zeros(len(cluster), np.bool_)
    is_out_of_reach[1:] = first_us[1:] > greatest_us[:-1] + reach_us
    is_out_of_reach[1:] |= last_us[1:] < least_us[:-1] - reach_us
    is_out_of_reach[begins] = False
    ends = np.append(begins[1:], len(cluster)) - 1
    is_single = ~np.logical_or.reduceat(is_out_of_reach, begins)
    return ClusterSessions(ids[begins], least_us[ends], greatest_us[ends], is_single)


class SessionRef(NamedTuple):
    """A reference to a session, by slot and id."""

    slot: int
    id: int


class SessionOperation(NamedTuple):
    """The addition of a value to a session, or the merge of one session into another.

    Attributes:
        target: the session that gets the value or the other session.
        original: the session to merge into the target; ``None`` to add the value.
        value: the entering row that is added, or that caused the merge.
    """

    target: SessionRef
    original: SessionRef | None
    value: int


class IncomingValue(NamedTuple):
    """A value that enters sessions.

    Attributes:
        value: the index of its entering row.
        time_us: the timestamp.
        watermark_us: the watermark at which the value enters.
    """

    value: int
    time_us: int
    watermark_us: int


class Merge(NamedTuple):
    """The merge of a session into another.

    Attributes:
        target: the session after the merge.
        value: the entering row that caused the merge.
    """

    target: SessionRef
    value: int


@dataclass
class SessionHistory:
    """Operations that values cause, and the resulting sessions.

    Attributes:
        operations: the operations, those of each key in order.
        sessions: the bounds of the resulting sessions, including sessions that have closed.
        merges: the merge of each session that is merged into another.
        late: the entering rows that are late.
    """

    operations: list[SessionOperation] = field(default_factory=list)
    sessions: dict[SessionRef, Bounds] = field(default_factory=dict)
    merges: dict[SessionRef, Merge] = field(default_factory=dict)
    late: list[int] = field(default_factory=list)

    def add_values(
        self, windower: SessionWindower, slot: int, state: SessionState, values: list[IncomingValue]
    ) -> None:
        """Add values of a key to its open sessions, one after the other."""
        logic = windower.build(state)
        for value, time_us, watermark_us in values:
            if logic.next_close_us() <= watermark_us:
                before = logic.snapshot() or []
                logic.close_for(watermark_us)
                self._record_sessions(slot, before)
            opened = logic.open_for(time_us, watermark_us)
            for original_id, target_id in logic.merged():
                original, target = SessionRef(slot, original_id), SessionRef(slot, target_id)
                self.operations.append(SessionOperation(target, original, value))
                self.merges[original] = Merge(target, value)
                self.sessions.pop(original, None)
            for session_id in opened.ids:
                self.operations.append(SessionOperation(SessionRef(slot, session_id), None, value))
            if not opened.ids:
                self.late.append(value)
        self._record_sessions(slot, logic.snapshot() or [])

    def _record_sessions(self, slot: int, sessions: SessionState) -> None:
        for session_id, first_us, last_us, merged_ids in sessions:
            self.sessions[SessionRef(slot, session_id)] = Bounds(first_us, last_us, merged_ids)

    def final_session(self, session: SessionRef) -> SessionRef:
        """Return the session that contains a session after all merges."""
        while session in self.merges:
            session = self.merges[session].target
        return session

    def sessions_of_values(self) -> dict[int, SessionRef]:
        """Return the session that contains each value after all merges, by entering row."""
        entered = {value: target for target, original, value in self.operations if original is None}
        final = {session: self.final_session(session) for session in set(entered.values())}
        return {value: final[session] for value, session in entered.items()}


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
        return _sorted_refs(self.sessions, refs_of(list(self.history.merges)))[0]


def refs_of(sessions: list[SessionRef]) -> WindowRefs:
    """Return references to sessions as columns."""
    return WindowRefs(
        np.array([one.slot for one in sessions], np.int64),
        np.array([one.id for one in sessions], np.int64),
    )


def _sorted_refs(left: WindowRefs, right: WindowRefs) -> tuple[WindowRefs, Ints]:
    """Return references to sessions sorted by slot and id, and the permutation that sorts them."""
    slots, ids = map(np.concatenate, zip(left, right, strict=True))
    order = order_by(slots, ids)
    return WindowRefs(slots[order], ids[order]), order


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
    clusters = find_clusters(windows, entering, reach_us)
    of_clusters = cluster_sessions(clusters, windows, entering, reach_us)
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
    sessions, bounds = _final_sessions(clusters, of_clusters, windows.ensure_spans(), history)
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
    singles = WindowRefs(clusters.slots[single], of_clusters.ids[single])
    bounds = Spans(of_clusters.first_us[single], of_clusters.last_us[single], merged_ids[single])
    sessions, order = _sorted_refs(singles, refs_of(list(history.sessions)))
    return sessions, bounds.concat(Spans.of(list(history.sessions.values()))).take(order)
