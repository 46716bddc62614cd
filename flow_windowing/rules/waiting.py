"""The buffer of one key: values, in timestamp order, until the watermark passes them.

New values are in a heap. A snapshot sorts the values of a large heap, cuts them into blocks and
pickles the blocks; a block is read again only when the watermark reaches it. A sorted run of blocks
is merged with runs of similar size, as in a log-structured merge tree (O'Neil et al. 1996), so that
a value is pickled a logarithmic number of times, for any number of epochs in the buffer. Each
snapshot still holds the bytes of all blocks.
"""

from __future__ import annotations

import heapq
import pickle
from typing import Any, NamedTuple, TypeAlias

from flow.instants import NEVER

BLOCK_VALUES = 256
"""The number of values in a block, which are read together as the watermark advances."""

LIVE_VALUES = 64
"""The greatest number of values that a snapshot holds without pickling them."""


class Waiting(NamedTuple):
    """A buffered value.

    Attributes:
        timestamp_us: the timestamp.
        number: the arrival number, which orders values with equal timestamps.
        value: the value; never compared, as no two values have the same number.
    """

    timestamp_us: int
    number: int
    value: Any


class Block(NamedTuple):
    """Buffered values, sorted by timestamp and arrival number, and pickled.

    Attributes:
        first: timestamp and arrival number of the first value.
        size: the number of values.
        content: the pickle of a list of tuples.
    """

    first: tuple[int, int]
    size: int
    content: bytes


Run: TypeAlias = list[Block]
"""Blocks that do not overlap, sorted by `Block.first`."""

WaitState: TypeAlias = tuple[list[Waiting], list[Run]]
"""The values of the heap, and the runs of blocks."""


def count_waiting(state: WaitState) -> int:
    """Return the number of values in a snapshot of a `WaitQueue`."""
    live, runs = state
    return len(live) + sum(block.size for run in runs for block in run) if runs else len(live)


class WaitQueue:
    """The buffered values of a key, in timestamp order, then order of arrival."""

    __slots__ = ("_heap", "_runs")

    def __init__(self, state: WaitState | None = None) -> None:
        live, runs = state or ((), ())
        self._heap = list(live)
        self._runs = [list(run) for run in runs]
        heapq.heapify(self._heap)

    def __bool__(self) -> bool:
        return bool(self._heap or self._runs)

    def push(self, waiting: Waiting) -> None:
        """Add a value."""
        heapq.heappush(self._heap, waiting)

    def next_us(self) -> int:
        """Return the least timestamp, `NEVER` for an empty buffer."""
        least = self._heap[0].timestamp_us if self._heap else NEVER
        return min(least, min((run[0].first[0] for run in self._runs), default=NEVER))

    def pop(self) -> Waiting:
        """Remove and return the first value.

        Raises:
            IndexError: when the buffer is empty.
        """
        while self._runs:
            run = min(self._runs, key=_first_of)
            if self._heap and self._heap[0][:2] < _first_of(run):
                break
            for waiting in _decode(run.pop(0)):
                heapq.heappush(self._heap, waiting)
            self._runs = [rest for rest in self._runs if rest]
        return heapq.heappop(self._heap)

    def snapshot(self) -> WaitState:
        """Return the buffered values; a heap of more than `LIVE_VALUES` is turned into blocks."""
        if len(self._heap) > LIVE_VALUES:
            self._flush()
        return list(self._heap), [list(run) for run in self._runs]

    def _flush(self) -> None:
        """Turn the heap into a run of blocks, and merge it with runs at most twice as long."""
        values, self._heap = self._heap, []
        while self._runs and sum(block.size for block in self._runs[-1]) <= 2 * len(values):
            values += [value for block in self._runs.pop() for value in _decode(block)]
        values.sort(key=lambda waiting: waiting[:2])
        starts = range(0, len(values), BLOCK_VALUES)
        self._runs.append([_encode(values[at : at + BLOCK_VALUES]) for at in starts])


def _first_of(run: Run) -> tuple[int, int]:
    return run[0].first


def _encode(values: list[Waiting]) -> Block:
    content = pickle.dumps([tuple(one) for one in values], 5)
    return Block(values[0][:2], len(values), content)


def _decode(block: Block) -> list[Waiting]:
    """Return the values of a block."""
    return [Waiting(*one) for one in pickle.loads(block.content)]
