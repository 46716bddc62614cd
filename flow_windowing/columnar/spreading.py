"""Spreading values over the windows that each is in, a bounded number of pairs at a time.

A value is in 1,440 windows of a day where one opens every minute. A pair of a value and a window
takes some 55 bytes while the value enters; an open window takes about as many, but many values
share it. So values enter by lots of consecutive ones: at hand are the open windows and one lot.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flow.engine.segmented import Ints, ranges
from flow_windowing.columnar.entering import Entering, Gathered, gather
from flow_windowing.columnar.holding import Holding
from flow_windowing.columnar.open_windows import OpenWindows

_PAIRS = 1 << 18


def pairs_at_once(windows: OpenWindows) -> int:
    """How many pairs may enter together, at the least one value's.

    A lot goes through all open windows once, so where there are many it is as large as they are:
    then the work for windows is never more than that for pairs.
    """
    return max(_PAIRS, len(windows))


def gathered_lots(
    held: Holding, entering: Entering, first: Ints, counts: Ints
) -> Iterator[Gathered]:
    """Values by the windows that they enter, lot after lot; a lot is in before the next is made.

    Args:
        held: what holds the windows.
        entering: the values.
        first: the first window of each.
        counts: how many it enters from there on.
    """
    if (counts == 1).all():
        yield gather(entering, np.arange(len(first)), first)
        return
    ends, begin, before = np.cumsum(counts), 0, 0
    while begin < len(counts):
        most = before + pairs_at_once(held.windows)
        end = max(int(np.searchsorted(ends, most, "right")), begin + 1)
        at = np.repeat(np.arange(begin, end), counts[begin:end])
        yield gather(entering, at, ranges(first[begin:end], counts[begin:end]))
        begin, before = end, int(ends[end - 1])
