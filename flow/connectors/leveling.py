"""Shares of an epoch by source partition, so that partitions advance together in event time.

An hour of event time may be a thousand messages in one partition and a hundred thousand in another.
If an epoch reads equally much of both, the dense partition falls far behind, and the watermark
holds back the values of the sparse one. `Leveling` learns how much event time a unit of each
partition covers, and chooses shares that bring all partitions to about the same time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)


class Leveling(Generic[P]):
    """Learned pace of each partition, and shares made of it.

    A unit is a message, or a row. A partition's pace is the event time of a unit, in µs. Until its
    pace is known a partition gets a share in proportion to its backlog, as all do at the beginning.
    The pace of a partition that was read and did not advance, or that starts over, is unknown: it
    would otherwise take whole epochs from the others.
    """

    def __init__(self) -> None:
        self._reached_us: dict[P, int] = {}
        self._units: dict[P, int] = {}
        self._pace: dict[P, float] = {}

    def learn_pace(self, reached_us: Mapping[P, int], units: Mapping[P, int]) -> None:
        """Learn the pace of the partitions that were read since the last call.

        Args:
            reached_us: event time of each partition, in µs, where known.
            units: number of units read of each partition since its beginning.
        """
        for partition, time_us in reached_us.items():
            before_us, now = self._reached_us.get(partition), units.get(partition)
            if now is None or now == self._units.get(partition):
                continue
            self._pace.pop(partition, None)
            if before_us is not None and now > self._units[partition] and time_us > before_us:
                self._pace[partition] = (time_us - before_us) / (now - self._units[partition])
            self._reached_us[partition], self._units[partition] = time_us, now

    def forget(self, partitions: Iterable[P]) -> None:
        """Drop the state of finished partitions, so that memory stays bounded."""
        for partition in partitions:
            self._reached_us.pop(partition, None)
            self._units.pop(partition, None)
            self._pace.pop(partition, None)

    def shares(self, waiting: Mapping[P, int], most: int) -> dict[P, int]:
        """Return how many units an epoch reads of each partition; none of the shares is zero.

        Args:
            waiting: backlog of each partition in units, positive.
            most: greatest number of units of the epoch.
        """
        if sum(waiting.values()) <= most:
            return dict(waiting)
        shares = proportional(waiting, most)
        known = [partition for partition in waiting if partition in self._pace]
        budget = sum(shares.get(partition, 0) for partition in known)
        leveled = self._leveled({partition: waiting[partition] for partition in known}, budget)
        # A partition too small for a share in proportion may be the one that is furthest behind.
        found = {
            partition: (leveled if partition in self._pace else shares).get(partition, 0)
            for partition in waiting
        }
        return {partition: share for partition, share in found.items() if share}

    def _leveled(self, waiting: Mapping[P, int], most: int) -> dict[P, int]:
        """Return shares that lead to the same event time, of partitions whose pace is known."""
        if not waiting or not most:
            return {}
        low = min(self._reached_us[partition] for partition in waiting)
        high = max(
            self._reached_us[partition] + self._pace[partition] * waiting[partition]
            for partition in waiting
        )
        # A range of more than 2^63 elements has no length.
        times_us = range(low, min(int(high) + 2, low + (1 << 62)))
        count = bisect_right(times_us, most, key=lambda us: sum(self._up_to(us, waiting).values()))
        shares = self._up_to(times_us[count - 1], waiting)
        left = most - sum(shares.values())
        # The partitions furthest behind get the units that rounding left over.
        for partition in sorted(
            waiting, key=lambda partition: (self._reached_us[partition], str(partition))
        ):
            more = min(left, waiting[partition] - shares[partition])
            shares[partition] += more
            left -= more
        return shares

    def _up_to(self, time_us: int, waiting: Mapping[P, int]) -> dict[P, int]:
        """Return how many units bring each partition to an event time."""
        return {
            partition: max(
                0, min(count, int((time_us - self._reached_us[partition]) / self._pace[partition]))
            )
            for partition, count in waiting.items()
        }


def proportional(waiting: Mapping[P, int], most: int) -> dict[P, int]:
    """Return shares of at most `most` units in all, in proportion to each backlog.

    >>> proportional({"a": 10, "b": 30}, 8)
    {'a': 2, 'b': 6}
    """
    total = sum(waiting.values())
    if total <= most:
        return dict(waiting)
    shares = {partition: count * most // total for partition, count in waiting.items()}
    left = most - sum(shares.values())
    # The units that rounding left over go, one by one, to the partitions with the least share.
    for partition in sorted(
        waiting, key=lambda partition: (shares[partition] / waiting[partition], str(partition))
    )[:left]:
        shares[partition] += 1
    return {partition: share for partition, share in shares.items() if share}
