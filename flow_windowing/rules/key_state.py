"""State of one key of a step with a clock: its buffer, and the snapshots of both paths.

The buffer holds values in timestamp order until the watermark passes them. New values are in a
heap. A snapshot sorts the values of a large heap, cuts them into blocks and pickles the blocks; a
block is read again only when the watermark reaches it. A sorted run of blocks is merged with runs
of similar size, as in a log-structured merge tree (O'Neil et al. 1996), so that a value is pickled
a logarithmic number of times, for any number of epochs in the buffer. Each snapshot still holds the
bytes of all blocks.

The list of a window is packed in the same way: entries are appended to it, and an epoch that does
not read it does not pickle its earlier entries again.

The values that a join by time retains have tags: arrival number, side and mark in one number.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Callable
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

from flow.columns.arrays import Ints
from flow.errors import CheckpointError
from flow.instants import NEVER
from flow.keyed.state import MOVED, BlockReader, columns_in, kind_of
from flow_windowing.rules.leaves import BLOCK_MISSING, Leaves, Load, count_in
from flow_windowing.rules.metadata import WindowMetadata
from flow_windowing.rules.window_logic import Arrival

N = TypeVar("N", int, Ints)


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


PACKED_ENTRIES = 1024
"""The least number of entries of a list that are packed together."""


class PackedList(list[Any]):
    """The last entries of the list of a window, whose earlier entries are packed.

    Attributes:
        packed: the earlier entries, as pickles of lists.
    """

    __slots__ = ("packed",)

    def __init__(self, entries: list[Any], packed: tuple[bytes, ...]) -> None:
        super().__init__(entries)
        self.packed = packed

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedList, (list(self), self.packed)


def pack_list(entries: list[Any]) -> list[Any]:
    """Return a list after packing its entries, if it has many; else the list."""
    if len(entries) < PACKED_ENTRIES:
        return entries
    packed = entries.packed if isinstance(entries, PackedList) else ()
    return PackedList([], (*packed, pickle.dumps(list(entries), 5)))


def unpack_list(entries: list[Any], load: Callable[[bytes], Any] = pickle.loads) -> list[Any]:
    """Return a list with its packed entries, whose pickles `load` reads."""
    if not isinstance(entries, PackedList):
        return entries
    return [*chain.from_iterable(map(load, entries.packed)), *entries]


def tag_of(number: N, side: N, mark: N) -> N:
    """Return arrival number, side and mark of a retained value as one number.

    The mark is 0 or 1; see `JoinValue.is_marked`. Tags sort by arrival number. Segments and
    snapshots hold them.

    >>> tag_of(5, 1, 1), number_of(23), side_of(23), mark_of(23)
    (23, 5, 1, 1)
    """
    return number * 4 + side * 2 + mark


def number_of(tag: N) -> N:
    """Return the arrival number in a tag."""
    return tag >> 2


def side_of(tag: N) -> N:
    """Return the side in a tag."""
    return tag >> 1 & 1


def mark_of(tag: N) -> N:
    """Return the mark in a tag."""
    return tag & 1


class RetainedValue(NamedTuple):
    """A retained value, for windows that open over it later.

    Attributes:
        timestamp_us: the timestamp.
        at: the arrival.
        value: the value.
    """

    timestamp_us: int
    at: Arrival
    value: Any


class DriverState(NamedTuple):
    """The state of a key between epochs.

    Attributes:
        clock: the snapshot of the clock.
        windower: the snapshot of the windower.
        waiting: the buffered values.
        arrived: the number of values that arrived since the key last had no value in state: the
            arrival number of the next value.
        entered: the number of these values that entered windows.
        windows: the snapshot of each open window's logic, by window id.
        retained: the retained values, sorted by timestamp, then entry number.
        emissions: the last emission of each open window that may have to be retracted, by window
            id; ``None`` for the window's current result, a pickle if the window was in a leaf.
        latest: the greatest timestamp in each open window, by window id, if metadata carries it.
        leaves: the directory of the open windows if they are in blocks, see `Leaves`.
    """

    clock: Any
    windower: Any
    waiting: WaitState | None
    arrived: int
    entered: int
    windows: dict[int, Any]
    retained: tuple[RetainedValue, ...]
    emissions: dict[int, tuple[WindowMetadata, Any] | bytes | None]
    latest: dict[int, int]
    leaves: bytes = b""

    def whole(self, read: BlockReader, load: Load = pickle.loads) -> DriverState:
        """Return the state with the windows of its leaves.

        Args:
            read: returns the blocks of given numbers.
            load: reads the pickle in the bytes of a block.
        """
        if not self.leaves:
            return self
        stored = Leaves(self.leaves).take_due(read, NEVER, load=load)
        return self._replace(
            windower=sorted((session for session, *_ in stored), key=itemgetter(1)),
            windows={session[0]: window for session, window, *_ in stored},
            emissions={session[0]: last for session, _, last, _ in stored if last is not None},
            latest={session[0]: last_us for session, *_, last_us in stored if last_us is not None},
            leaves=b"",
        )


def moved_snapshot(snapshot: bytes, blocks: dict[int, bytes]) -> bytes:
    """Return a pickled `DriverState` with the blocks of its leaves, by number."""
    return MOVED + pickle.dumps((snapshot, blocks), 5)


def read_snapshot(content: bytes, load: Load = pickle.loads) -> Any:
    """Return the snapshot of a key, which `moved_snapshot` may have extended.

    Raises:
        CheckpointError: when a block is missing.
    """
    if kind_of(content) != MOVED:
        return load(content)
    snapshot, blocks = columns_in(content, 2, "a key", load)
    try:
        return load(snapshot).whole(lambda numbers: [blocks[number] for number in numbers], load)
    except KeyError as error:
        raise CheckpointError(BLOCK_MISSING) from error


class IntervalState(NamedTuple):
    """The state of a key of a join by time, interval or as-of, between epochs.

    Attributes:
        clock: the snapshot of the clock.
        arrived: the number of values that arrived since the key last had no value in state: the
            arrival number of the next value.
        retained: the retained values, each as timestamp in µs, tag and value; a tag has arrival
            number, side and mark, see `tag_of`.
    """

    clock: Any
    arrived: int
    retained: list[tuple[int, int, Any]]


def counts_of(state: DriverState | IntervalState) -> tuple[int, int]:
    """Return the number of open windows and of buffered values of a key.

    >>> counts_of(IntervalState(None, 2, [(0, 0, "left"), (5, 3, "right")]))
    (0, 2)
    """
    # The function is called for each touched key, and a `StateCounts` would double its time.
    values = len(state.retained)
    if isinstance(state, IntervalState):
        return 0, values
    if state.waiting is not None:
        values += count_waiting(state.waiting)
    leaves = count_in(state.leaves) if state.leaves else 0
    return len(state.windows) + leaves, values
