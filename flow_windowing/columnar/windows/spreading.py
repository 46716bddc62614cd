"""Spreading values over the windows that each is in, a bounded number of pairs at a time.

A value is in 1,440 windows of a day where one opens every minute. A pair of a value and a window
takes some 55 bytes while the value enters; an open window takes about as many, but many values
share it. So values enter by lots of consecutive ones: at hand are the open windows and one lot.
Numbers in columns take another way where windows get many values: see `panes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from flow.columns.arrays import Ints, Mask, ranges
from flow_windowing.columnar.state.holding import Holding
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.windows.entering import Entering, Gathered, gather

_PAIRS = 1 << 18


class Spread(NamedTuple):
    """Values, each with the windows that it enters: so many from a first one on.

    Attributes:
        at: the values, in order of entering.
        first: the first window of each.
        counts: how many there are from there on.
    """

    at: Ints
    first: Ints
    counts: Ints

    @classmethod
    def of(cls, first: Ints, counts: Ints) -> Spread:
        """All values."""
        return cls(np.arange(len(first)), first, counts)

    def take(self, chosen: Ints | Mask | slice) -> Spread:
        """Some of them."""
        return Spread(self.at[chosen], self.first[chosen], self.counts[chosen])


def pairs_at_once(windows: OpenWindows) -> int:
    """How many pairs may enter together, at the least one value's.

    A lot goes through all open windows once, so where there are many it is as large as they are:
    then the work for windows is never more than that for pairs.
    """
    return max(_PAIRS, len(windows))


def gathered_lots(held: Holding, entering: Entering, spread: Spread) -> Iterator[Gathered]:
    """Values by the windows that they enter, lot after lot; a lot is in before the next is made.

    Args:
        held: what holds the windows.
        entering: the values.
        spread: the windows that they enter.
    """
    if (spread.counts == 1).all():
        yield gather(entering, spread.at, spread.first)
        return
    ends, begin, before = np.cumsum(spread.counts), 0, 0
    while begin < len(ends):
        most = before + pairs_at_once(held.windows)
        end = max(int(np.searchsorted(ends, most, "right")), begin + 1)
        at, first, counts = spread.take(slice(begin, end))
        yield gather(entering, np.repeat(at, counts), ranges(first, counts))
        begin, before = end, int(ends[end - 1])
