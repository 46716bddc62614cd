"""Ranges of windows that values enter, expanded to pairs a bounded number at a time.

A value is in 1,440 windows of a day if one opens every minute. A pair of a value and a window takes
about 55 bytes while the value enters; an open window takes about as many, but many values share it.
So values enter in chunks of consecutive ones, and memory holds the open windows and one chunk.
Columns of numbers take a faster way where windows get many values: see `panes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from flow.columns.arrays import Ints, Mask, ranges
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.state.shard_state import ShardState
from flow_windowing.columnar.windows.row_batch import EnteringRows, WindowGroups, group_by_window

_PAIRS = 1 << 18


class WindowRanges(NamedTuple):
    """Entering rows, each with the range of windows that it enters.

    Attributes:
        entries: the index of each entering row, in order of entering.
        first: the id of the first window of each.
        counts: the number of windows of each, with consecutive ids.
    """

    entries: Ints
    first: Ints
    counts: Ints

    @classmethod
    def of(cls, first: Ints, counts: Ints) -> WindowRanges:
        """Return the ranges of all entering rows."""
        return cls(np.arange(len(first)), first, counts)

    def take(self, chosen: Ints | Mask | slice) -> WindowRanges:
        """Return the chosen ranges."""
        return WindowRanges(self.entries[chosen], self.first[chosen], self.counts[chosen])


def pairs_per_chunk(windows: OpenWindows) -> int:
    """Return the number of pairs that enter together; a chunk has at least one value's pairs.

    Each chunk scans all open windows once, so a chunk has at least as many pairs as there are open
    windows: then the work for windows is never more than the work for pairs.
    """
    return max(_PAIRS, len(windows))


def grouped_chunks(
    state: ShardState, entering: EnteringRows, ranges_: WindowRanges
) -> Iterator[WindowGroups]:
    """Group entering rows by window, chunk after chunk.

    Args:
        state: the shard state; each chunk's values are in before the next chunk is made.
        entering: the entering rows.
        ranges_: the windows that they enter.
    """
    if (ranges_.counts == 1).all():
        yield group_by_window(entering, ranges_.entries, ranges_.first)
        return
    ends, begin, before = np.cumsum(ranges_.counts), 0, 0
    while begin < len(ends):
        most = before + pairs_per_chunk(state.windows)
        end = max(int(np.searchsorted(ends, most, "right")), begin + 1)
        entries, first, counts = ranges_.take(slice(begin, end))
        yield group_by_window(entering, np.repeat(entries, counts), ranges(first, counts))
        begin, before = end, int(ends[end - 1])
