"""Enrichment of items by a slow look-up, whose results are cached."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from flow.dataflow import Operator, Stream
from flow.durations import Duration, natural_us
from flow.errors import shorten
from flow.operators.building import add_step, check_callable

X = TypeVar("X")
Y = TypeVar("Y")
DK = TypeVar("DK")
DV = TypeVar("DV")


@dataclass(frozen=True)
class EnrichCached(Operator):
    """Map each item with a cache of a slow getter's results."""

    getter: Callable[[Any], Any]
    mapper: Callable[[TTLCache[Any, Any], Any], Any]
    ttl_us: int


_EVICTED_AT_ONCE = 2
"""Expired entries that each new entry evicts: with one, a cache that grew would never shrink."""


class TTLCache(Generic[DK, DV]):
    """A cache of a getter's results, with a time to live; `enrich_cached` passes it to the mapper.

    Entries are ordered by age, the oldest first. Each new entry evicts up to two expired entries,
    so the cache shrinks as fast as it grew, and no look-up pays for all of them. An `OrderedDict`
    finds its first entry in constant time, which a dict does not after many removals.
    """

    def __init__(self, getter: Callable[[DK], DV], ttl_us: int) -> None:
        self._getter = getter
        self._ttl_us = ttl_us
        self._known: OrderedDict[DK, tuple[int, DV]] = OrderedDict()
        self.now_us = 0

    def get(self, key: DK) -> DV:
        """Return the getter's result for `key`, from the cache unless the entry has expired."""
        known = self._known.get(key)
        if known is None or self._is_old(known):
            known = (self.now_us, self._getter(key))
            self.remove(key)  # A new entry of the key has to be the last.
            self._known[key] = known
            self._evict_expired()
        return known[1]

    def remove(self, key: DK) -> None:
        """Remove the entry of `key`, if the cache has it."""
        self._known.pop(key, None)

    def _is_old(self, known: tuple[int, DV]) -> bool:
        return self.now_us - known[0] > self._ttl_us

    def _evict_expired(self) -> None:
        for _ in range(_EVICTED_AT_ONCE):
            key, oldest = next(iter(self._known.items()))
            if not self._is_old(oldest):
                return
            del self._known[key]


def enrich_cached(
    step_id: str,
    up: Stream[X],
    getter: Callable[[DK], DV],
    mapper: Callable[[TTLCache[DK, DV], X], Y],
    ttl: Duration = "5m",
) -> Stream[Y]:
    """Map each item with a slow look-up, whose results are cached for a time.

    The cache lives in each worker and is not part of the flow's state: after a restart, or in
    another worker, the getter is called again, and may return another result.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read.
        getter: called with a key that is not in the cache.
        mapper: called with the cache and each item.
        ttl: the time for which a cached result is valid, in system time.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> run_once(["a"], lambda s: op.enrich_cached("up", s, str.upper, lambda c, x: c.get(x)))
        ['A']
    """
    check_callable(step_id, "getter", getter)
    check_callable(step_id, "mapper", mapper)
    ttl_us = natural_us(ttl, f"step {shorten(step_id)}: ttl")
    return add_step(step_id, EnrichCached(getter, mapper, ttl_us), up)[0]
