"""The contract for keyed steps that run many keys at once.

A `StatefulBatchLogic` lives for one key, and is called for it. Where a step does the same
arithmetic for every key, it can offer a `ShardLogic` besides: one object that has the state of many
keys of a shard, takes all their values of an epoch together, and works on columns. Laws:

- For each key it gives what the step's logics would give, item for item, in the same order.
- State that either of the two has written can be read by the other.
- Keys have *places*: first those of the segments that were loaded, in order, then new ones as they
  turn up. A place never changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flow.columns.arrays import Ints
from flow.columns.chunks import Chunk
from flow.instants import NEVER, Moment
from flow.keyed.logic import Counted


class ShardRows(NamedTuple):
    """What has arrived in an epoch, the rows of each key together, in order of position.

    Attributes:
        keys: the keys, each once, as Arrow text.
        counts: how many rows each key has.
        order: which of `values` each row is.
        pos: each row's position in the epoch.
        values: rows of an Arrow schema, or Python objects.
        reached_us: for a step that measures progress, how far its stream had come once each row was
            counted; it grows from row to row of a key.
        others_us: where source partitions may hold the step's watermarks, the bound by the others
            than each row's own.
        own_us: the progress of each row's own source partition, this row counted.
        sources: the number of that partition in the epoch, -1 for a row of none.
    """

    keys: pa.Array
    counts: Ints
    order: Ints
    pos: Ints
    values: pa.RecordBatch | list[Any]
    reached_us: Ints | None = None
    others_us: Ints | None = None
    own_us: Ints | None = None
    sources: Ints | None = None


class ShardEpoch(NamedTuple):
    """What an epoch asks of a shard.

    Attributes:
        moment: its system time, and how far the step's stream has come with all of the epoch.
        before: the same, with how far the stream had come before the epoch's rows.
        end_of_input: whether nothing will come after it.
        wanted: which of the step's streams anybody reads, by number; what would go to another need
            only be counted.
        changed_from: what the step's settings were when the state was kept, if they are others now
            (see `flow.keyed.step.LogicBuilder.settings`); all keys are loaded then.
    """

    moment: Moment
    before: Moment
    end_of_input: bool
    wanted: frozenset[int]
    changed_from: str | None = None


@dataclass
class ShardMade:
    """What came of a shard's part of an epoch.

    Attributes:
        chunks: for each of the step's streams, what goes there, in any number of pieces.
        unwanted: for each of them, how many items besides, that nobody reads.
        counted: what else is to be counted.
    """

    chunks: list[list[Chunk]]
    unwanted: list[int]
    counted: list[Counted] = field(default_factory=list)

    @classmethod
    def nothing(cls, ports: int) -> ShardMade:
        """Nothing for any of so many streams."""
        return cls([[] for _ in range(ports)], [0] * ports)


class KeyFailure(Exception):
    """Raised by a `ShardLogic` to say at which key and value something went wrong.

    What went wrong is its cause, a `RejectedValue` or what a user's function raised.

    Attributes:
        key: the key.
        value: the value; ``None`` when it is not about one.
        cause: what went wrong.
    """

    def __init__(self, key: str, value: Any, cause: BaseException) -> None:
        self.key = key
        self.value = value
        self.cause = cause
        super().__init__(key, value, cause)


class Dumped(NamedTuple):
    """A segment to be kept.

    Attributes:
        content: the segment; ``None`` when its keys have nothing to remember.
        keys: how many keys it holds.
        due_us: the least time at which one of them is due.
        held_us: the least watermark that one of them waits for whose watermark is held.
    """

    content: bytes | None
    keys: int
    due_us: int
    held_us: int = NEVER


class ShardLogic(ABC):
    """The state of keys of one shard, and what to do with their values."""

    @abstractmethod
    def load(self, content: bytes) -> int:
        """Add the keys of a segment; returns how many there are.

        It is called before `run`, or after it, when a segment is to be laid out anew.
        """

    @abstractmethod
    def run(self, rows: ShardRows | None, epoch: ShardEpoch) -> ShardMade:
        """Take an epoch's rows, and do what is due.

        Raises:
            KeyFailure: when a value cannot be used, or a user's function raised.
        """

    @abstractmethod
    def keys(self) -> pa.Array:
        """All keys, by place, as Arrow text."""

    @abstractmethod
    def changed(self) -> npt.NDArray[np.bool_]:
        """By place, whether what is remembered of a key may differ from what was loaded."""

    @abstractmethod
    def dump(self, numbers: Ints, wanted: list[int]) -> list[Dumped]:
        """The keys, by segment.

        Args:
            numbers: each key's segment, by place.
            wanted: the segments to give.
        """

    @abstractmethod
    def due_us(self) -> int:
        """The least time at which a key is due; for a step that measures progress, in its units."""


ShardLogicBuilder: TypeAlias = Callable[[], ShardLogic]
"""Makes a `ShardLogic` without keys."""
