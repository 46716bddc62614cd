"""Ranges of windows that values enter, expanded in chunks to pairs of a value and a window.

If a window of a day opens every minute, a value is in 1,440 windows. A pair of a value and a window
takes about 55 bytes while the value enters. An open window takes about as many bytes, but values
share it. So consecutive values enter in chunks, and memory has the open windows and the pairs of
one chunk.

For columns of numbers and windows with many values, tiles are faster: see `tiles`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from flow.columns.arrays import Ints, Mask, ranges
from flow_windowing.columnar.admission.rows import EnteringRows
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.state.shard_state import ShardState
from flow_windowing.columnar.windows.row_batch import WindowGroups, group_by_window

_PAIRS = 1 << 18


class WindowRanges(NamedTuple):
    """Entering rows, each with the range of windows that it enters.

    Attributes:
        entries: the index of each entering row, in order of entering.
        first: the id of the first window of each row.
        counts: the number of windows of each row, with consecutive ids.
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
    """Return the number of pairs of a chunk; a chunk has at least the pairs of one value.

    Each chunk scans all open windows once. A chunk has at least as many pairs as there are open
    windows, so that the scan never takes longer than the work on pairs.
    """
    return max(_PAIRS, len(windows))


def grouped_chunks(
    state: ShardState, entering: EnteringRows, ranges_: WindowRanges
) -> Iterator[WindowGroups]:
    """Group entering rows by window, chunk after chunk.

    Args:
        state: the shard state; the caller adds a chunk's values before it takes the next chunk.
        entering: the entering rows.
        ranges_: the windows that the rows enter.
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
