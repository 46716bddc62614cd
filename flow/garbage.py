"""Thresholds of Python's cyclic garbage collector during an epoch.

By default a collection starts whenever some hundred more objects have been made than freed, and
visits all surviving objects again. An epoch makes a million items that survive until its end.
Collections then take a third of the time of windows over Python objects, and half of the time of
reading Kafka messages.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLD = 100_000
"""The number of new objects that starts a collection. Cycles of objects are still freed."""


def collect_seldom() -> None:
    """Raise the collector's threshold in this process, unless the collector is off.

    >>> before = gc.get_threshold()
    >>> collect_seldom()
    >>> gc.get_threshold()[0] >= 100_000
    True
    >>> gc.set_threshold(*before)
    """
    first, *others = gc.get_threshold()
    if first:  # 0 turns the collector off.
        gc.set_threshold(max(first, _THRESHOLD), *others)


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Raise the threshold during the block, for a process that also runs other code."""
    before = gc.get_threshold()
    collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def no_collection() -> Iterator[None]:
    """Turn the collector off during a block whose objects form no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
