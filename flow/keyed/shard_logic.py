"""The contract of keyed steps that run over columns: one logic for all keys of a shard.

A `StatefulBatchLogic` lives for one key. A step that does the same arithmetic for every key can
also offer a `ShardLogic`: one object with the state of many keys of a shard, which processes all
their values of an epoch in one call, as columns. Laws:

- For each key a `ShardLogic` emits the items that the step's key logic would emit, in that order.
- Each of the two logics can restore state that the other has written.
- A key's *slot* is its row in the shard state: slots first number the keys of the loaded segments,
  in the order of loading, then new keys in the order of arrival. A slot never changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flow.columns.arrays import Ints
from flow.columns.chunks import Chunk
from flow.columns.record_batches import SidedRecords
from flow.instants import NEVER, Moment
from flow.keyed.logic import Counted
from flow.keyed.state import StateCounts

PARTIAL_TIME, PARTIAL_COUNT = "time", "count"
"""Columns of partial rows: the greatest timestamp of their records, int64 µs, and the number of
these records."""
STAMP_COLUMN = "__flow_reached__"
"""The column of stamps, int64 µs: the greatest measure of a sender's records up to each record."""


class ShardRows(NamedTuple):
    """Values of one epoch and shard, grouped by key, in order of position within a key.

    All arrays are int64.

    Attributes:
        keys: the distinct keys, Arrow text, shape (keys,).
        counts: the number of rows of each key, shape (keys,).
        order: the index into `values` of each row, shape (rows,); the partial rows are numbered
            after the values.
        pos: the position of each row in the epoch, shape (rows,).
        values: the values in order of arrival: rows of an Arrow schema, or Python objects; of a
            step of several streams ``(side, value)``, or `SidedRecords` if the lowering takes them.
        reached_us: for a step that measures progress, the progress of its stream including each
            row, in µs, shape (rows,); non-decreasing within a key.
        others_us: for a step that source partitions may hold, the bound of all partitions but the
            row's own at each row, in µs, shape (rows,).
        own_us: the progress of each row's own source partition including the row, in µs, shape
            (rows,).
        sources: the number of that partition in the epoch, shape (rows,); -1 for a row without a
            source partition.
        partials: partial rows, see `flow.keyed.step.Preaggregation`, in batches.
    """

    keys: pa.Array
    counts: Ints
    order: Ints
    pos: Ints
    values: pa.RecordBatch | SidedRecords | list[Any]
    reached_us: Ints | None = None
    others_us: Ints | None = None
    own_us: Ints | None = None
    sources: Ints | None = None
    partials: tuple[pa.RecordBatch, ...] = ()

    def key_of(self, row: int) -> str:
        """Return the key of a row, which is given by its number."""
        key: str = self.keys[int(np.searchsorted(np.cumsum(self.counts), row, "right"))].as_py()
        return key


class ShardEpoch(NamedTuple):
    """Parameters of an epoch for a shard.

    Attributes:
        moment: the epoch's system time, with the stream progress after all of the epoch's rows;
            `Moment.before` has that before the rows.
        end_of_input: True if this is the last epoch of the input.
        wanted: numbers of the step's streams that have a reader; items of other streams need only
            be counted.
        holding: numbers of the streams, without late values, that steps in event time read; empty
            if the step need not determine holds.
        changed_from: the settings with which the state was written, if the step's settings differ
            now (see `flow.keyed.step.Capabilities.settings`), else ``None``. All keys are loaded in
            such an epoch.
    """

    moment: Moment
    end_of_input: bool
    wanted: frozenset[int]
    holding: frozenset[int] = frozenset()
    changed_from: str | None = None


@dataclass
class ShardOutput:
    """Output of a step in one shard and epoch.

    Attributes:
        chunks: for each of the step's streams, the chunks to emit there.
        unread: for each of the streams, the number of items that were only counted, because no step
            reads the stream.
        counted: further counts of the step, such as of late values.
        watermarks_us: the watermarks, after the epoch, of keys that the epoch touched, int64 µs;
            empty for a step without watermarks.
    """

    chunks: list[list[Chunk]]
    unread: list[int]
    counted: list[Counted] = field(default_factory=list)
    watermarks_us: Ints = field(default_factory=partial[Ints](np.empty, 0, np.int64))


class KeyFailure(Exception):
    """A failure at one key, raised by a `ShardLogic`.

    Attributes:
        key: the key.
        value: the value; ``None`` for a failure that no single value caused.
        cause: a `RejectedValue`, or the exception that a user's function raised.
    """

    def __init__(self, key: str, value: Any, cause: BaseException) -> None:
        self.key = key
        self.value = value
        self.cause = cause
        super().__init__(key, value, cause)


class SegmentDump(NamedTuple):
    """Snapshot of a segment.

    Attributes:
        content: the segment's bytes; ``None`` if none of its keys has state.
        keys: the number of keys in the segment.
        due_us: the least due time of its keys, in µs.
        held_us: the least watermark at which a held key of the segment is due, in µs; `NEVER` if no
            key is held.
        counts: the open windows and buffered values of its keys; not used for a step whose builder
            has no `flow.keyed.step.Capabilities.counter`.
        hold_us: the least hold of its keys, see `ShardLogic.hold_us`.
    """

    content: bytes | None
    keys: int
    due_us: int
    held_us: int = NEVER
    counts: StateCounts = StateCounts()
    hold_us: int = NEVER


class BlockStore(Protocol):
    """The storage of a shard's blocks.

    A *block* is a part of a key's state that is written once, and is not read again before it is
    needed. The segment of the key holds the block's number instead of the block. So an epoch's cost
    does not depend on the values that a key holds, only on those that the epoch needs.
    """

    def add(self, content: bytes, number: int | None = None) -> int:
        """Store a block, and return its number: a new one, or that of a block that was taken."""

    def take(self, numbers: Sequence[int]) -> list[bytes]:
        """Return blocks and remove them from the store.

        Raises:
            CheckpointError: when a block is missing.
        """


class BlockHolder:
    """A logic that may move a part of its state to blocks.

    Attributes:
        blocks: the storage of blocks; ``None`` for state that stays in memory.
    """

    blocks: BlockStore | None = None


class ShardLogic(BlockHolder, ABC):
    """State of the keys of one shard, and the step's work on their values."""

    @abstractmethod
    def load(self, content: bytes) -> int:
        """Add the keys of a segment, and return their number.

        The engine calls the method before `run`; and after `run`, for segments whose keys move to
        other segments because the number of segments changes.
        """

    @abstractmethod
    def run(self, rows: ShardRows | None, epoch: ShardEpoch) -> ShardOutput:
        """Process an epoch's rows and the timers that are due.

        Raises:
            KeyFailure: when a value is rejected, or a user's function raised.
        """

    @abstractmethod
    def keys(self) -> pa.Array:
        """Return all keys by slot, as Arrow text, shape (slots,)."""

    @abstractmethod
    def changed(self) -> npt.NDArray[np.bool_]:
        """Return the mask of slots whose state may differ from the loaded one, shape (slots,)."""

    @abstractmethod
    def dump(self, numbers: Ints, wanted: list[int]) -> list[SegmentDump]:
        """Return snapshots of segments, in the order of `wanted`.

        Args:
            numbers: the segment number of each key by slot, int64, shape (slots,).
            wanted: the numbers of the segments to return.
        """

    @abstractmethod
    def due_us(self) -> int:
        """Return the least due time of a key, in µs.

        For a step that measures progress, due times are in the units of the measure.
        """

    def hold_us(self) -> int:
        """Return the least timestamp that a result of a key's state may still have, in µs.

        Only results of the streams `ShardEpoch.holding` of the last epoch count.
        """
        return NEVER


ShardLogicBuilder: TypeAlias = Callable[[], ShardLogic]
"""Function that returns a `ShardLogic` without keys."""
