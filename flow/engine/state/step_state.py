"""State of a step in one shard, common to steps over columns and key by key, and its header.

A header is a version byte, a byte that is 1 for a counted step, the totals, the columns of the
segments one after the other, and the texts of the settings and of the rule of holds; numbers are
little-endian.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from flow.engine.state.store import FIRST_BLOCK, PROGRESS_SEGMENT, StateStore
from flow.errors import CheckpointError
from flow.format_version import VERSION, check_format, version_in
from flow.instants import NEVER
from flow.keyed.state import StateCounts


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

    def add(self, content: bytes) -> int:
        number = FIRST_BLOCK - self._header.blocks
        self.changes[number] = content
        self._header.blocks += 1
        self._header.block_bytes += len(content)
        return number

    def take(self, numbers: Sequence[int]) -> list[bytes]:
        stored = self._store.read_segments(self._step_id, numbers)
        contents = [content for content in stored if content is not None]
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
        settings: the step's settings, see `flow.keyed.step.LogicBuilder.settings`.
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
