"""Shares of an epoch that bring source partitions forward together in event time.

Partitions advance at different paces: an hour may be a thousand messages of one and a hundred
thousand of another. An epoch that reads as much of each leaves the dense one far behind, and all
that the sparse one has brought waits for it. `Leveling` learns how much event time a unit of each
partition covers, and deals an epoch out so that all of them come to about the same time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)

_HALVINGS = 60
"""Steps of the search for the common time: enough for any range of microseconds."""


class Leveling(Generic[P]):
    """Deals an epoch's units out to the partitions that have some.

    Until a partition's time and pace are known it gets a share in proportion to what it has, as all
    partitions do at the beginning. The pace of a partition that was read and stood still, or that
    starts over, is not known: it would otherwise take whole epochs from the others.
    """

    def __init__(self) -> None:
        self._reached_us: dict[P, int] = {}
        self._units: dict[P, int] = {}
        self._pace: dict[P, float] = {}

    def hear(self, reached_us: Mapping[P, int], units: Mapping[P, int]) -> None:
        """Learn where partitions are.

        Args:
            reached_us: the event time that each has come to, in microseconds, where it is known.
            units: how many units of each have been read since its beginning.
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
        """Remove partitions that are finished, so that memory follows the others."""
        for partition in partitions:
            self._reached_us.pop(partition, None)
            self._units.pop(partition, None)
            self._pace.pop(partition, None)

    def shares(self, waiting: Mapping[P, int], most: int) -> dict[P, int]:
        """Return how many units an epoch reads of each partition, without those it does not read.

        Args:
            waiting: how many units each partition has, more than none.
            most: how many units the epoch reads.
        """
        if sum(waiting.values()) <= most:
            return dict(waiting)
        shares = proportional(waiting, most)
        known = [one for one in waiting if one in self._pace]
        budget = sum(shares.get(one, 0) for one in known)
        leveled = self._leveled({one: waiting[one] for one in known}, budget)
        # A partition too small for a share in proportion may be the one that is furthest behind.
        found = {one: (leveled if one in self._pace else shares).get(one, 0) for one in waiting}
        return {one: share for one, share in found.items() if share}

    def _leveled(self, waiting: Mapping[P, int], most: int) -> dict[P, int]:
        """Shares of partitions whose pace is known, which all lead to the same event time."""
        if not waiting or not most:
            return {}
        low = min(self._reached_us[one] for one in waiting)
        high = max(self._reached_us[one] + self._pace[one] * waiting[one] for one in waiting)
        least, greatest = float(low), float(high)
        for _ in range(_HALVINGS):
            middle = (least + greatest) / 2
            if sum(self._up_to(middle, waiting).values()) > most:
                greatest = middle
            else:
                least = middle
        shares = self._up_to(least, waiting)
        left = most - sum(shares.values())
        # What rounding left goes to the partitions that are furthest behind.
        for one in sorted(waiting, key=lambda one: (self._reached_us[one], str(one))):
            more = min(left, waiting[one] - shares[one])
            shares[one] += more
            left -= more
        return shares

    def _up_to(self, time_us: float, waiting: Mapping[P, int]) -> dict[P, int]:
        """Return how many units bring each partition to a time."""
        return {
            one: max(0, min(count, int((time_us - self._reached_us[one]) / self._pace[one])))
            for one, count in waiting.items()
        }


def proportional(waiting: Mapping[P, int], most: int) -> dict[P, int]:
    """Return shares of at most `most` units in proportion to what each partition has.

    >>> proportional({"a": 10, "b": 30}, 8)
    {'a': 2, 'b': 6}
    """
    total = sum(waiting.values())
    if total <= most:
        return dict(waiting)
    shares = {one: count * most // total for one, count in waiting.items()}
    left = most - sum(shares.values())
    # What rounding left goes, one by one, to those that got least of what they have.
    for one in sorted(waiting, key=lambda one: (shares[one] / waiting[one], str(one)))[:left]:
        shares[one] += 1
    return {one: share for one, share in shares.items() if share}
