"""Which values and open sessions of a key belong together, once all of them are there.

A cluster is what hangs together: each of its sessions and values is within reach of another. In the
end it is one session, in whatever order its values came, unless some of them came late. Order only
decides what the session is called. As long as each value finds, as it comes, the one session that
there is by then within its reach, that session's id is the one that stays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flow.columns.arrays import Ints, Mask, order_by, run_starts, running_max
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.state.spans import Spans
from flow_windowing.columnar.windows.entering import Entering


class Clusters(NamedTuple):
    """Clusters that have values, in order of place and time.

    Attributes:
        places: the place of each.
        sessions: the rows of the open sessions that are in one.
        of_session: the cluster of each of these.
        of_value: the cluster of each value.
    """

    places: Ints
    sessions: Ints
    of_session: Ints
    of_value: Ints


class Chains(NamedTuple):
    """What clusters come to.

    Attributes:
        ids: the id of each one's first session.
        first_us: its least timestamp.
        last_us: its greatest.
        single: whether there was one session in it at every time.
    """

    ids: Ints
    first_us: Ints
    last_us: Ints
    single: Mask


def clusters_of(windows: OpenWindows, spans: Spans, entering: Entering, reach_us: int) -> Clusters:
    """Bring open sessions and values together."""
    concerned = np.zeros(int(entering.places.max()) + 1, np.bool_)
    concerned[entering.places] = True
    near = windows.places < len(concerned)
    sessions = np.flatnonzero(near)[concerned[windows.places[near]]]
    places = np.concatenate([windows.places[sessions], entering.places])
    first_us = np.concatenate([spans.first_us[sessions], entering.times_us])
    last_us = np.concatenate([spans.last_us[sessions], entering.times_us])
    order = order_by(places, first_us)
    apart = _apart(places[order], first_us[order], last_us[order], reach_us)
    cluster = np.empty(len(order), np.int64)
    cluster[order] = np.cumsum(apart) - 1
    return _with_values(cluster, places, sessions)


def _apart(places: Ints, first_us: Ints, last_us: Ints, reach_us: int) -> Mask:
    """Which of these, in order of place and time, is out of reach of all before it."""
    new_place = np.ones(len(places), np.bool_)
    new_place[1:] = places[1:] != places[:-1]
    greatest_us = running_max(last_us, np.cumsum(new_place) - 1)
    apart = new_place.copy()
    apart[1:] |= first_us[1:] > greatest_us[:-1] + reach_us
    return apart


def _with_values(cluster: Ints, places: Ints, sessions: Ints) -> Clusters:
    """Leave out the clusters that have no value: the last of these are the values."""
    count = len(sessions)
    has_value = np.zeros(int(cluster.max()) + 1, np.bool_)
    has_value[cluster[count:]] = True
    number = np.cumsum(has_value) - 1
    stays = has_value[cluster[:count]]
    of_value = number[cluster[count:]]
    of_cluster = np.empty(int(number[-1]) + 1, np.int64)
    of_cluster[of_value] = places[count:]
    return Clusters(of_cluster, sessions[stays], number[cluster[:count][stays]], of_value)


def chains_of(
    clusters: Clusters, windows: OpenWindows, spans: Spans, entering: Entering, reach_us: int
) -> Chains:
    """What each cluster comes to when its values come one after the other."""
    sessions = clusters.sessions
    cluster = np.concatenate([clusters.of_session, clusters.of_value])
    order = np.argsort(cluster, kind="stable")
    cluster = cluster[order]
    ids = np.concatenate([windows.ids[sessions], entering.times_us])[order]
    first_us = np.concatenate([spans.first_us[sessions], entering.times_us])[order]
    last_us = np.concatenate([spans.last_us[sessions], entering.times_us])[order]
    greatest_us = running_max(last_us, cluster)
    least_us = -running_max(-first_us, cluster)
    begins = run_starts(cluster)
    out_of_reach = np.zeros(len(cluster), np.bool_)
    out_of_reach[1:] = first_us[1:] > greatest_us[:-1] + reach_us
    out_of_reach[1:] |= last_us[1:] < least_us[:-1] - reach_us
    out_of_reach[begins] = False
    ends = np.append(begins[1:], len(cluster)) - 1
    single = ~np.logical_or.reduceat(out_of_reach, begins)
    return Chains(ids[begins], least_us[ends], greatest_us[ends], single)
