"""Sessions of many keys at once."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, order_by
from flow_windowing.columnar.state.holding import Holding
from flow_windowing.columnar.state.open_windows import OpenWindows, Rows
from flow_windowing.columnar.state.spans import Merged, Spans, merged_of
from flow_windowing.columnar.windows.clusters import Chains, Clusters, chains_of, clusters_of
from flow_windowing.columnar.windows.entering import Entering, Gathered, Missing, Newcomers, gather
from flow_windowing.columnar.windows.session_additions import Additions, Entrance, rows_of_sessions
from flow_windowing.columnar.windows.session_turns import Coming, Played, SessionKey, by_cluster
from flow_windowing.columnar.windows.session_updates import played_out, taken_back
from flow_windowing.columnar.windows.updates import greatest_so_far
from flow_windowing.columnar.windows.windows import Windowing
from flow_windowing.rules.settings import Emit
from flow_windowing.windowers.sessions import SessionState, SessionWindower


class Sessions(Windowing):
    """Windows that last as long as values keep coming.

    Ids of sessions are timestamps in them, and sessions of a key are apart, so that the order of
    ids is the order of time, in which they close.
    """

    kind = "sessions"
    in_turn = True
    may_merge = True

    def __init__(self, windower: SessionWindower) -> None:
        self._windower = windower
        self._reach_us = windower.gap_us if windower.inclusive else windower.gap_us - 1
        self._closing_us = self._reach_us + (windower.grace_us or 0) + 1
        self.late_at_once = windower.grace_us is None

    @override
    def missed_by(self, time_us: Ints) -> tuple[Ints, Ints]:
        return time_us, np.ones(len(time_us), np.int64)

    @override
    def missed_bounds_us(self, window_ids: Ints) -> tuple[Ints, Ints]:
        return window_ids, window_ids

    @override
    def bounds_us(self, windows: OpenWindows, rows: Ints) -> tuple[Ints, Ints]:
        spans = windows.known_spans()
        return spans.first_us[rows], spans.last_us[rows]

    @override
    def closed_at_us(self, held: Holding) -> Ints:
        return held.windows.known_spans().last_us + self._closing_us

    @override
    def enter(self, held: Holding, newcomers: Newcomers) -> Missing:
        if not len(newcomers.entering.rows):
            return Missing.none()
        entrance = self._entrance(held.windows, newcomers.entering)
        windows, rows = held.windows.opened(_all_sessions(entrance))
        held.windows = windows
        if newcomers.emit == "update":
            self._update_each(held, newcomers, entrance)
        else:
            newcomers.updates.extend(taken_back(windows, newcomers.entering, entrance.played))
            Additions(windows, newcomers, entrance).add()
        part_of = entrance.played.part_of
        if part_of:
            rows = windows.rows_of(entrance.sessions)
        windows.known_spans().put(rows, entrance.spans)
        _note_shown(windows, rows, newcomers.emit)
        if part_of:
            stays = np.ones(len(windows), np.bool_)
            stays[rows_of_sessions(windows, list(part_of))] = False
            held.windows = windows.take(stays)
        late = np.array(entrance.played.missed, np.int64)
        ids, counts = self.missed_by(newcomers.entering.times_us[late])
        return Missing(Missing.none().fallen, late, ids, counts)

    @override
    def bounds_with_each(
        self, windows: OpenWindows, rows: Ints, newcomers: Newcomers, gathered: Gathered
    ) -> tuple[Ints, Ints]:
        spans, counts = windows.known_spans(), gathered.counts
        times_us = newcomers.entering.times_us[gathered.at]
        first_us = -greatest_so_far(-spans.first_us[rows], -times_us, counts)
        return first_us, greatest_so_far(spans.last_us[rows], times_us, counts)

    @override
    def merged_with_each(self, windows: OpenWindows, rows: Ints, counts: Ints) -> Merged:
        return np.repeat(windows.known_spans().merged[rows], counts)

    def _update_each(self, held: Holding, newcomers: Newcomers, entrance: Entrance) -> None:
        """Let values into sessions, and say what each makes of its own."""
        at = np.flatnonzero(entrance.plainly)
        self.let_in(held, newcomers, gather(newcomers.entering, at, entrance.ids[at]))
        newcomers.updates.extend(played_out(held.windows, newcomers, entrance))
        if newcomers.keeps_latest:
            rows = held.windows.rows_of(entrance.sessions)
            held.windows.latest_us[rows] = entrance.spans.last_us

    def _entrance(self, windows: OpenWindows, entering: Entering) -> Entrance:
        """Work out where values go."""
        spans = windows.known_spans()
        clusters = clusters_of(windows, spans, entering, self._reach_us)
        chains = chains_of(clusters, windows, spans, entering, self._reach_us)
        single = chains.single
        if not self.late_at_once:
            behind = entering.times_us < entering.watermark_us
            single[clusters.of_value[behind]] = False
        plainly = single[clusters.of_value]
        ids = chains.ids[clusters.of_value]
        enters = np.ones(len(ids), np.bool_)
        played = Played()
        if not plainly.all():
            played = self._played(windows, clusters, single, entering)
            enters[played.missed] = False
            for value, session in played.sessions_of_values().items():
                ids[value] = session.id
        sessions, bounds = _finally(clusters, chains, spans, played)
        return Entrance(ids, enters, plainly, sessions, bounds, played)

    def _played(
        self, windows: OpenWindows, clusters: Clusters, single: Mask, entering: Entering
    ) -> Played:
        """Let the values come one by one in clusters where that matters."""
        values = np.flatnonzero(~single[clusters.of_value])
        columns = (values, entering.times_us[values], entering.watermark_us[values])
        coming = list(map(Coming, *(column.tolist() for column in columns)))
        states = _states_of(windows, clusters, single)
        played = Played()
        for cluster, of_cluster in by_cluster(clusters.of_value[values].tolist(), coming).items():
            place = int(clusters.places[cluster])
            played.play(self._windower, place, states.get(cluster, []), of_cluster)
        return played


def _note_shown(windows: OpenWindows, rows: Ints, emit: Emit) -> None:
    """Note of sessions that have changed whether that has been emitted."""
    if emit == "update":
        windows.known_shown()[rows] = True
    elif emit == "close" and windows.shown is not None:
        windows.shown[rows] = False


def _states_of(windows: OpenWindows, clusters: Clusters, single: Mask) -> dict[int, SessionState]:
    """The open sessions of clusters in which values have to come one by one."""
    spans = windows.known_spans()
    chosen = ~single[clusters.of_session]
    rows = clusters.sessions[chosen]
    states: dict[int, SessionState] = defaultdict(list)
    columns = (windows.ids, spans.first_us, spans.last_us, spans.merged)
    sessions = zip(*(column[rows].tolist() for column in columns), strict=True)
    for cluster, session in zip(clusters.of_session[chosen].tolist(), sessions, strict=True):
        states[cluster].append(session)
    return states


def _finally(
    clusters: Clusters, chains: Chains, spans: Spans, played: Played
) -> tuple[Rows, Spans]:
    """The sessions that there are in the end, in order of place and id, and their bounds."""
    merged = Spans.fresh(len(clusters.places)).merged
    merged[clusters.of_session] = spans.merged[clusters.sessions]
    single = np.flatnonzero(chains.single)
    more = Spans(
        np.array([one.first_us for one in played.final.values()], np.int64),
        np.array([one.last_us for one in played.final.values()], np.int64),
        merged_of([one.merged for one in played.final.values()]),
    )
    places, ids = _columns_of(list(played.final))
    places = np.concatenate([clusters.places[single], places])
    ids = np.concatenate([chains.ids[single], ids])
    bounds = Spans(chains.first_us[single], chains.last_us[single], merged[single])
    order = order_by(places, ids)
    return Rows(places[order], ids[order]), bounds.followed_by(more).take(order)


def _all_sessions(entrance: Entrance) -> Rows:
    """The sessions that there are in the end, and those that become part of them."""
    if not entrance.played.part_of:
        return entrance.sessions
    places, ids = _columns_of(list(entrance.played.part_of))
    places = np.concatenate([entrance.sessions.places, places])
    ids = np.concatenate([entrance.sessions.ids, ids])
    order = order_by(places, ids)
    return Rows(places[order], ids[order])


def _columns_of(sessions: list[SessionKey]) -> tuple[Ints, Ints]:
    places = np.array([one.place for one in sessions], np.int64)
    return places, np.array([one.id for one in sessions], np.int64)
