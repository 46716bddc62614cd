"""The wait queue: values that wait, in order of time, until the watermark passes them.

Values that came lately are in a heap. What a snapshot finds there in numbers it sorts, cuts into
blocks and pickles; a block is read again only when the watermark reaches it. Sorted runs of blocks
are merged with ones of their own size, as in a log-structured merge tree (O'Neil et al. 1996), so
that a value is pickled a logarithmic number of times however many epochs it waits. What is left is
that a snapshot holds all blocks, as bytes, each time.
"""

from __future__ import annotations

import heapq
import pickle
from typing import Any, NamedTuple, TypeAlias

from flow.instants import NEVER
from flow.keyed.pickles import load_pickle

BLOCK_VALUES = 256
"""How many values a block holds: what has to be read when the watermark moves a little."""
LIVE_VALUES = 64
"""How many values a snapshot keeps as they are."""


class Waiting(NamedTuple):
    """A value that waits.

    Attributes:
        timestamp_us: its time.
        number: its number in order of arrival: values with the same time keep it.
        value: the value, which is never compared: no two have the same number.
    """

    timestamp_us: int
    number: int
    value: Any


class Block(NamedTuple):
    """Values in order of time, pickled.

    Attributes:
        first: time and number of the first of them.
        size: how many there are.
        content: a pickle of a list of tuples.
    """

    first: tuple[int, int]
    size: int
    content: bytes


Run: TypeAlias = list[Block]
"""Blocks in order of time, one after the other."""

WaitState: TypeAlias = tuple[list[Waiting], list[Run]]


class WaitQueue:
    """Values in order of time. Invariant: blocks hold what a snapshot found, the heap the rest."""

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
        """The least timestamp; `NEVER` when nothing waits."""
        least = self._heap[0].timestamp_us if self._heap else NEVER
        return min(least, min((run[0].first[0] for run in self._runs), default=NEVER))

    def pop(self) -> Waiting:
        """Take the first value in order of time.

        Raises:
            IndexError: when nothing waits.
        """
        while self._runs:
            run = min(self._runs, key=_first_of)
            if self._heap and self._heap[0][:2] < _first_of(run):
                break
            for waiting in _unpickled(run.pop(0)):
                heapq.heappush(self._heap, waiting)
            self._runs = [one for one in self._runs if one]
        return heapq.heappop(self._heap)

    def snapshot(self) -> WaitState:
        """What waits, as data."""
        if len(self._heap) > LIVE_VALUES:
            self._settle()
        return list(self._heap), [list(run) for run in self._runs]

    def _settle(self) -> None:
        """Turn what is in the heap into blocks, merged with runs that are not much longer."""
        values, self._heap = self._heap, []
        while self._runs and sum(block.size for block in self._runs[-1]) <= 2 * len(values):
            values += [one for block in self._runs.pop() for one in _unpickled(block)]
        values.sort(key=lambda one: one[:2])
        starts = range(0, len(values), BLOCK_VALUES)
        self._runs.append([_pickled(values[at : at + BLOCK_VALUES]) for at in starts])


def _first_of(run: Run) -> tuple[int, int]:
    return run[0].first


def _pickled(values: list[Waiting]) -> Block:
    content = pickle.dumps([tuple(one) for one in values], 5)
    return Block(values[0][:2], len(values), content)


def _unpickled(block: Block) -> list[Waiting]:
    return [Waiting(*one) for one in load_pickle(block.content)]
