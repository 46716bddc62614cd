"""Clusters: the values and open sessions of a key that become one session.

Each session or value of a cluster is within reach of another one. Without late values, a cluster
becomes one session for any order of its values; the order only determines the session's id. If each
value, as it enters, has exactly one session of the cluster within reach, the id of that session
does not change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flow.columns.arrays import Ints, Mask, order_by, run_starts, running_max
from flow_windowing.columnar.admission.rows import EnteringRows
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.state.spans import Spans


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


def find_clusters(
    windows: OpenWindows, spans: Spans, entering: EnteringRows, reach_us: int
) -> Clusters:
    """Group open sessions and entering rows into clusters.

    Args:
        windows: the open sessions.
        spans: the bounds of the open sessions.
        entering: the rows.
        reach_us: the greatest distance within a session.
    """
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
    clusters: Clusters, windows: OpenWindows, spans: Spans, entering: EnteringRows, reach_us: int
) -> ClusterSessions:
    """Return the session that each cluster becomes when its values enter in order."""
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
    is_out_of_reach = np.zeros(len(cluster), np.bool_)
    is_out_of_reach[1:] = first_us[1:] > greatest_us[:-1] + reach_us
    is_out_of_reach[1:] |= last_us[1:] < least_us[:-1] - reach_us
    is_out_of_reach[begins] = False
    ends = np.append(begins[1:], len(cluster)) - 1
    is_single = ~np.logical_or.reduceat(is_out_of_reach, begins)
    return ClusterSessions(ids[begins], least_us[ends], greatest_us[ends], is_single)
