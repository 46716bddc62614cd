"""The state of a keyed step in one shard: its header, and its keys in memory or in segments.

A header is a version byte, a byte that is 1 for a counted step, the totals, the columns of the
segments one after the other, and the texts of the settings and of the rule of holds; numbers are
little-endian.

A step over columns has its keys in a `ShardLogic`, which defines the format of a segment; the
keys of other steps are in `flow.engine.state.key_states`.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints
from flow.engine.packets.shards import hash_keys, moved_segments, segment_of, segments_for
from flow.engine.state.store import FIRST_BLOCK, PROGRESS_SEGMENT, StateStore
from flow.errors import CheckpointError
from flow.format_version import VERSION, check_format, version_in
from flow.instants import NEVER
from flow.keyed.shard_logic import (
    SegmentDump,
    ShardEpoch,
    ShardLogic,
    ShardLogicBuilder,
    ShardOutput,
    ShardRows,
)
from flow.keyed.state import DueLimit, StateCounts


@dataclass
class Header:
    """Layout and totals of a step's state in a shard.

    Attributes:
        dues: the least due time of the keys of each segment, int64 µs, shape (segments,).
        keys: the number of keys.
        size: the weight of all keys without their blocks, in bytes.
        settings: the step's settings that the due times depend on, see `Stateful`.
        held: the least watermark at which a held key of each segment is due, int64 µs, shape
            (segments,); `NEVER` for a segment without a held key.
        counts: the open windows and the buffered values of each segment, int32, shape
            (2, segments); 0 in a step that is not counted.
        is_counted: True for a step whose open windows and buffered values are counted.
        hold_rule: the rule by which `holds` were determined, see
            `flow.keyed.step.TimedResults.rule`; empty for a step without holds.
        holds: the least hold of the keys of each segment, int64 µs, shape (segments,); empty for a
            step without holds.
        blocks: the number of blocks that have been written.
        block_bytes: the size of the blocks that are stored.
    """

    _FIXED: ClassVar = struct.Struct("<B?qqIIIIq")
    _BYTES_OF_SEGMENT: ClassVar = 8 + 8 + 2 * 4
    _BYTES_OF_HOLD: ClassVar = 8

    dues: npt.NDArray[np.int64]
    keys: int = 0
    size: int = 0
    settings: str = ""
    held: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    counts: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty((2, 0), np.int32))
    is_counted: bool = False
    hold_rule: str = ""
    holds: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    blocks: int = 0
    block_bytes: int = 0

    def __post_init__(self) -> None:
        if not len(self.held):
            self.held = np.full(len(self.dues), NEVER, np.int64)
        if not self.counts.size:
            self.counts = np.zeros((2, len(self.dues)), np.int32)

    def set_hold_rule(self, rule: str) -> bool:
        """Set the rule of holds; return True if the holds of all keys must be determined again."""
        is_new = rule not in ("", self.hold_rule)
        if is_new or not rule:
            self.holds = np.full(self.segments if rule else 0, NEVER, np.int64)
        self.hold_rule = rule
        return is_new

    @classmethod
    def empty(cls) -> Header:
        """The header of a step that has no state: one empty segment."""
        return cls(np.full(1, NEVER, np.int64))

    @property
    def weight(self) -> int:
        """The weight of all keys with their blocks."""
        return self.size + self.block_bytes

    @property
    def segments(self) -> int:
        """The number of segments."""
        return len(self.dues)

    @property
    def total(self) -> StateCounts:
        """The open windows and buffered values of all segments."""
        return StateCounts(*self.counts.sum(1, np.int64).tolist())

    def resize(self, segments: int) -> None:
        """Change the number of segments; new segments have no due time and no counts."""
        added = max(0, segments - self.segments)
        new = np.full(added, NEVER, np.int64)
        self.dues = np.concatenate([self.dues[:segments], new])
        self.held = np.concatenate([self.held[:segments], new])
        if self.hold_rule:
            self.holds = np.concatenate([self.holds[:segments], new])
        zeros = np.zeros((2, added), np.int32)
        self.counts = np.concatenate([self.counts[:, :segments], zeros], axis=1)

    def encode(self) -> bytes:
        """Return the header as bytes."""
        settings, rule = self.settings.encode(), self.hold_rule.encode()
        totals = self.keys, self.size, self.segments, len(settings), len(rule), self.blocks
        times = (self.dues, self.held, self.holds)
        columns = [*(column.astype("<i8") for column in times), self.counts.astype("<i4")]
        content = self._FIXED.pack(VERSION, self.is_counted, *totals, self.block_bytes)
        return b"".join([content, *(column.tobytes() for column in columns), settings, rule])

    @classmethod
    def decode(cls, content: bytes, step_id: str) -> Header:
        """Return the header in bytes made by `encode`, which a store may have extended.

        Raises:
            CheckpointError: when the bytes were written in a format this version does not know.
        """
        check_format(f"the state of step {step_id!r}", version_in(content))
        _, is_counted, keys, size, *lengths = cls._FIXED.unpack_from(content)
        segments, settings, rule, *of_blocks = lengths
        at = cls._FIXED.size
        sizes = [segments, segments, segments if rule else 0]
        times = np.frombuffer(content, "<i8", sum(sizes), at).astype(np.int64)
        dues, held, holds = np.split(times, np.cumsum(sizes)[:-1])
        at += times.nbytes
        counts = np.frombuffer(content, "<i4", 2 * segments, at).astype(np.int32)
        at += counts.nbytes
        texts = content[at : at + settings].decode(), content[at + settings :][:rule].decode()
        pairs = counts.reshape(2, segments)
        counted = pairs, is_counted
        return cls(dues, keys, size, texts[0], held, *counted, texts[1], holds, *of_blocks)

    @classmethod
    def segments_in(cls, content: bytes) -> int:
        """Return the number of segments that an encoded header describes."""
        return int(cls._FIXED.unpack_from(content)[4]) if len(content) >= cls._FIXED.size else 0

    @classmethod
    def length_in(cls, content: bytes) -> int:
        """Return the length in bytes of the header that these bytes begin with."""
        if len(content) < cls._FIXED.size:
            return cls._FIXED.size
        *_, segments, settings, rule, _, _ = cls._FIXED.unpack_from(content)
        bytes_of_segment = cls._BYTES_OF_SEGMENT + (cls._BYTES_OF_HOLD if rule else 0)
        return int(cls._FIXED.size + bytes_of_segment * segments + settings + rule)


class StoredBlocks:
    """The blocks of a step's state in a shard, see `flow.keyed.shard_logic.BlockStore`.

    Args:
        store: the store.
        step_id: the step.
        header: the header, which numbers and weighs the blocks.

    Attributes:
        changes: the blocks to write, by number; ``None`` removes a block.
    """

    def __init__(self, store: StateStore, step_id: str, header: Header) -> None:
        self._store, self._step_id, self._header = store, step_id, header
        self.changes: dict[int, bytes | None] = {}

    def add(self, content: bytes, number: int | None = None) -> int:
        if number is None:
            number = FIRST_BLOCK - self._header.blocks
            self._header.blocks += 1
        self.changes[number] = content
        self._header.block_bytes += len(content)
        return number

    def take(self, numbers: Sequence[int]) -> list[bytes]:
        stored = self._store.read_segments(self._step_id, numbers)
        # Blocks that were added in this epoch are not in the store yet.
        found = [self.changes.get(one) or old for one, old in zip(numbers, stored, strict=True)]
        contents = [content for content in found if content is not None]
        if len(contents) < len(numbers):
            raise CheckpointError(
                f"the state of step {self._step_id!r} lacks one of the blocks {list(numbers)}: "
                "restore the checkpoint from a copy, or reset the step"
            )
        self.changes.update(dict.fromkeys(numbers))
        self._header.block_bytes -= sum(map(len, contents))
        return contents


class StepState(ABC):
    """State of a step in one shard.

    Attributes:
        header: the totals of what is stored for later epochs.
    """

    header: Header

    @abstractmethod
    def progress(self) -> bytes | None:
        """Return the encoded stream progress, stored beside the keys; ``None`` if there is none."""

    @abstractmethod
    def keep_progress(self, content: bytes) -> None:
        """Replace the progress of the step's stream."""

    @abstractmethod
    def flush(self) -> int:
        """Write changed state; return the least due time of a key that is not held, in µs."""

    @abstractmethod
    def hold_us(self) -> int:
        """Return the least hold of a key, in µs, after `flush`; `NEVER` for none."""


class LiveState(StepState):
    """State in memory, for a batch run: nothing is stored for later epochs."""

    def __init__(self) -> None:
        self.header = Header.empty()
        self._progress: bytes | None = None

    @override
    def progress(self) -> bytes | None:
        return self._progress

    @override
    def keep_progress(self, content: bytes) -> None:
        self._progress = content


class StoredState(StepState):
    """State in segments of a `StateStore`, with a header.

    Args:
        store: the store.
        step_id: the step.
        settings: the step's settings, see `flow.keyed.step.Capabilities.settings`.
        is_counted: True for a step whose open windows and buffered values are counted.
        hold_rule: the rule of the step's holds; empty for a step without holds.

    Attributes:
        _changed_from: the settings that the state was written with if they differ from the present
            ones, else ``None``; empty if the state has none.
        _is_new_to_counts: True if the step is counted since this run: all segments must be loaded.
        _is_new_to_holds: True if the rule of its holds is new in this run: the same.
    """

    def __init__(
        self,
        store: StateStore,
        step_id: str,
        settings: str,
        is_counted: bool = False,
        hold_rule: str = "",
    ) -> None:
        self._store = store
        self._step_id = step_id
        self._content = store.read_header(step_id)
        self.header = header = Header.empty()
        self._changed_from: str | None = None
        self._is_new_to_counts = False
        if self._content is not None:
            self.header = header = Header.decode(self._content, step_id)
            if settings and header.settings != settings:
                self._changed_from = header.settings
            self._is_new_to_counts = is_counted and not header.is_counted
            if not is_counted:
                header.counts[:] = 0
        header.settings, header.is_counted = settings, is_counted
        self._is_new_to_holds = header.set_hold_rule(hold_rule) and self._content is not None
        self._blocks = StoredBlocks(store, step_id, header)

    @override
    def progress(self) -> bytes | None:
        (content,) = self._store.read_segments(self._step_id, [PROGRESS_SEGMENT])
        return content

    @override
    def keep_progress(self, content: bytes) -> None:
        self._store.write_segments(self._step_id, {PROGRESS_SEGMENT: content})

    @override
    def hold_us(self) -> int:
        return int(self.header.holds.min(initial=NEVER))

    def _write_header(self) -> int:
        """Write the header if it changed; return the least due time of a key that is not held."""
        content = self.header.encode()
        if content != self._content and (self._content is not None or self.header.keys):
            self._store.write_header(self._step_id, content)
        return int(self.header.dues.min())


class ShardTable(StepState):
    """A `ShardLogic` with its keys in one shard."""

    @abstractmethod
    def run(self, rows: ShardRows | None, epoch: ShardEpoch, limit: DueLimit) -> ShardOutput:
        """Run an epoch over the shard.

        Args:
            rows: the values of the epoch; ``None`` for an epoch without values.
            epoch: parameters of the epoch.
            limit: the due times that the epoch has reached.
        """


class LiveTable(LiveState, ShardTable):
    """State of all keys in memory, for a batch run."""

    def __init__(self, builder: ShardLogicBuilder) -> None:
        super().__init__()
        self._logic = builder()

    @override
    def run(self, rows: ShardRows | None, epoch: ShardEpoch, limit: DueLimit) -> ShardOutput:
        return self._logic.run(rows, epoch)

    @override
    def flush(self) -> int:
        return self._logic.due_us()

    @override
    def hold_us(self) -> int:
        return self._logic.hold_us()


class _SegmentSize(NamedTuple):
    """Size of a stored segment: number of keys, and bytes."""

    keys: int
    size: int


class SegmentedTable(StoredState, ShardTable):
    """State in a `StateStore`, of which an epoch loads only the segments that it needs.

    Args:
        store: the store of segments.
        step_id: the step.
        builder: the function that returns the step's `ShardLogic`.
        settings: the step's settings.
        is_counted: True for a step whose open windows and buffered values are counted.
        hold_rule: the rule of the step's holds; empty for a step without holds.
    """

    def __init__(
        self,
        store: StateStore,
        step_id: str,
        builder: ShardLogicBuilder,
        settings: str = "",
        is_counted: bool = False,
        hold_rule: str = "",
    ) -> None:
        super().__init__(store, step_id, settings, is_counted, hold_rule)
        self._builder = builder
        self._loaded: dict[int, _SegmentSize] = {}
        self._ran = False

    @cached_property
    def _logic(self) -> ShardLogic:
        """The step's logic, built on first use: in most epochs most shards have no work."""
        logic = self._builder()
        logic.blocks = self._blocks
        return logic

    @override
    def run(self, rows: ShardRows | None, epoch: ShardEpoch, limit: DueLimit) -> ShardOutput:
        needs_all = epoch.end_of_input or self._is_rewritten
        needed = np.flatnonzero(
            limit.reached_segments(self.header.dues, self.header.held) | needs_all
        )
        if rows is not None:
            needed = np.union1d(needed, self._numbers(rows.keys))
        self._load(needed.tolist())
        self._ran = bool(len(needed))
        if not self._ran:
            return ShardOutput([], [])
        return self._logic.run(rows, epoch._replace(changed_from=self._changed_from))

    @override
    def flush(self) -> int:
        if self._ran:
            self._write(self._changed_segments())
        return self._write_header()

    @property
    def _is_rewritten(self) -> bool:
        """True if all segments are written again: settings, counts or holds may have changed.

        Changed settings may change the due times of keys whose state has not changed.
        """
        is_new = self._is_new_to_counts or self._is_new_to_holds
        return self._changed_from is not None or is_new

    def _load(self, numbers: Sequence[int]) -> None:
        contents = self._store.read_segments(self._step_id, numbers)
        for number, content in zip(numbers, contents, strict=True):
            if content is None:
                self._loaded[number] = _SegmentSize(0, 0)
            else:
                check_format(f"the state of step {self._step_id!r}", version_in(content))
                keys = self._logic.load(content)
                self._loaded[number] = _SegmentSize(keys, len(content))

    def _numbers(self, keys: pa.Array) -> Ints:
        """Return the number of the segment of each key, int64, shape (keys,)."""
        return segment_of(hash_keys(keys), self.header.segments)

    def _changed_segments(self) -> dict[int, SegmentDump]:
        """Return the segments to write, after adapting the layout to their weight."""
        numbers = self._numbers(self._logic.keys())
        is_changed = self._logic.changed() | self._is_rewritten
        changed: set[int] = {*np.flatnonzero(np.bincount(numbers[is_changed])).tolist()}
        dumps = self._dump(numbers, sorted(changed))
        size = self.header.size + sum(
            len(dump.content or b"") - self._loaded[number].size for number, dump in dumps.items()
        )
        now = self.header.segments
        wanted = segments_for(size, now)
        if wanted == now:
            return dumps
        moved = self._resize(now, wanted)
        return self._dump(
            self._numbers(self._logic.keys()),
            sorted(number for number in {*changed, *moved} if number < wanted),
        )

    def _resize(self, now: int, wanted: int) -> set[int]:
        """Change the number of segments, and return those that gain or lose keys."""
        touched = moved_segments(now, wanted)
        self._load(sorted(one for one in touched if one < now and one not in self._loaded))
        for number in range(wanted, now):
            self._account(number, _SegmentSize(0, 0), StateCounts())
        self.header.resize(wanted)
        self._store.write_segments(self._step_id, dict.fromkeys(range(wanted, now)))
        return touched

    def _dump(self, numbers: Ints, wanted: list[int]) -> dict[int, SegmentDump]:
        return dict(zip(wanted, self._logic.dump(numbers, wanted), strict=True))

    def _write(self, dumps: dict[int, SegmentDump]) -> None:
        contents = {number: dump.content for number, dump in dumps.items()}
        self._store.write_segments(self._step_id, {**contents, **self._blocks.changes})
        for number, dump in dumps.items():
            now = _SegmentSize(dump.keys, len(dump.content or b""))
            self._account(number, now, dump.counts)
            self.header.dues[number] = dump.due_us
            self.header.held[number] = dump.held_us
            if self.header.hold_rule:
                self.header.holds[number] = dump.hold_us

    def _account(self, number: int, now: _SegmentSize, counts: StateCounts) -> None:
        """Adjust the totals of the header to the new size and counts of a segment."""
        before = self._loaded.get(number, _SegmentSize(0, 0))
        if self.header.is_counted:
            self.header.counts[:, number] = counts
        self.header.keys += now.keys - before.keys
        self.header.size += now.size - before.size
        self._loaded[number] = now
