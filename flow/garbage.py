"""How often Python looks for garbage: what reference counts alone would never let go of.

The interpreter looks whenever some hundred more objects have been made than let go, and looks again
and again at what stays. An epoch makes a million items that stay until it ends, so that this takes
a third of the time of windows over Python objects, and half of that of reading Kafka's messages.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_SELDOM = 100_000
"""How many more objects have to be made: what a user's functions leave in cycles is found then."""


def collect_seldom() -> None:
    """From now on, let this process look for garbage seldom, if it looks at all.

    >>> before = gc.get_threshold()
    >>> collect_seldom()
    >>> gc.get_threshold()[0] >= 100_000
    True
    >>> gc.set_threshold(*before)
    """
    first, *others = gc.get_threshold()
    if first:  # at 0 it never looks
        gc.set_threshold(max(first, _SELDOM), *others)


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Look for garbage seldom meanwhile, in a process that is not ours alone."""
    before = gc.get_threshold()
    collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def no_collection() -> Iterator[None]:
    """Look for no garbage while objects are made of which none can be in a cycle."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
