"""A segment of a step that runs key by key: whole keys, each with its snapshot and due time.

A segment is a version byte and a pickle of ``(keys, snapshots, dues)``; for a step whose windows
and buffered values are counted, ``(keys, snapshots, dues, windows, values)``. Each snapshot is a
separate pickle, which is read only for a key that an epoch touches. Segments that a `ShardLogic`
wrote, in columns, are read as well.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from flow.engine.state.header import FORMAT, check_format
from flow.instants import NEVER
from flow.keyed.due import held_watermark_us
from flow.keyed.id_segments import FORMAT_OF_IDS, IdSegment, snapshots_of_segment
from flow.keyed.state_counts import StateCounter, StateCounts
from flow.pickles import load_pickle

FORMAT_OF_SHARDS = 2
"""The version byte of a segment in the format of a `ShardLogic`."""
FORMAT_WITH_COUNTS = 5
"""The version byte of a segment of whole keys with the counts of each key."""
_OVERHEAD_BYTES = 24
"""Bytes of a key in a segment besides its text and its snapshot."""

SnapshotsIn: TypeAlias = Callable[[bytes], Iterable[tuple[str, Any, int]]]
"""Reader of segments of a `ShardLogic`, see `flow.keyed.step.LogicBuilder.snapshots_in`."""


@dataclass
class Segment:
    """The keys of a segment, with the snapshot and due time of each.

    Attributes:
        kept: the pickled snapshot and the due time, in µs, of each key.
        changed: True if the segment differs from the stored one.
        counts: the open windows and buffered values of each key; without keys that an earlier
            version wrote, and empty for a step that has neither.
        stored_keys: the number of keys of the stored segment.
    """

    kept: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    changed: bool = False
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    stored_keys: int = 0

    @property
    def size(self) -> int:
        """The approximate weight of the segment, in bytes."""
        return sum(weight(key, snapshot) for key, (snapshot, _) in self.kept.items())

    @property
    def due_us(self) -> int:
        """The least due time of the keys that are not held, in µs."""
        dues = (due for _, due in self.kept.values() if held_watermark_us(due) is None)
        return min(dues, default=NEVER)

    @property
    def held_us(self) -> int:
        """The least watermark at which a held key is due, in µs."""
        watermarks = (held_watermark_us(due) for _, due in self.kept.values())
        return min((held_us for held_us in watermarks if held_us is not None), default=NEVER)

    def encode(self) -> bytes | None:
        """Return the segment as bytes, with counts if it has any; ``None`` for an empty segment."""
        if not self.kept:
            return None
        snapshots, dues = zip(*self.kept.values(), strict=True)
        content = (list(self.kept), list(snapshots), np.array(dues, "<i8").tobytes())
        if not self.counts:
            return bytes([FORMAT]) + pickle.dumps(content, 5)
        counts = zip(*map(self.counts.__getitem__, self.kept), strict=True)
        return bytes([FORMAT_WITH_COUNTS]) + pickle.dumps((*content, *counts), 5)

    def count(self, counter: StateCounter) -> StateCounts:
        """Return the counts of all keys; a key without counts is counted by its snapshot."""
        if len(self.counts) < len(self.kept):
            for key in self.kept.keys() - self.counts.keys():
                self.counts[key] = counter(load_pickle(self.kept[key][0]))
        return StateCounts.total(self.counts.values())

    @classmethod
    def decode(
        cls,
        content: bytes | None,
        step_id: str,
        snapshots_in: SnapshotsIn | None = None,
    ) -> Segment:
        """Return the segment in bytes made by `encode`, or by a `ShardLogic` of the step.

        Args:
            content: the bytes; ``None`` for an empty segment.
            step_id: the step, for errors.
            snapshots_in: the reader of segments that a `ShardLogic` made.
        """
        if content is None:
            return cls()
        if content[:1] == bytes([FORMAT_OF_IDS]):
            return cls._of_states(snapshots_of_segment(IdSegment.decode(content)))
        if _is_of_shard(content) and snapshots_in is not None:
            return cls._of_states(snapshots_in(content))
        stored = WholeKeys.decode(content, step_id)
        snapshots = stored.snapshots
        if snapshots_in is not None:
            snapshots = [_of_key(snapshot, snapshots_in) for snapshot in snapshots]
        kept = dict(zip(stored.keys, zip(snapshots, stored.due_us, strict=True), strict=True))
        counts = dict(zip(stored.keys, stored.counts or (), strict=stored.counts is not None))
        return cls(kept, counts=counts, stored_keys=len(kept))

    @classmethod
    def _of_states(cls, states: Iterable[tuple[str, Any, int]]) -> Segment:
        kept = {key: (pickle.dumps(state, 5), due_us) for key, state, due_us in states}
        return cls(kept, stored_keys=len(kept))


class WholeKeys(NamedTuple):
    """The content of a segment of whole keys.

    Attributes:
        keys: the keys.
        snapshots: the pickled snapshot of each key; after a move to another layout, a columnar
            segment of the key alone.
        due_us: the due time of each key, in µs.
        counts: the open windows and buffered values of each key; ``None`` in a segment without
            counts.
    """

    keys: list[str]
    snapshots: list[bytes]
    due_us: list[int]
    counts: list[tuple[int, int]] | None = None

    @classmethod
    def decode(
        cls, content: bytes, step_id: str, load: Callable[[memoryview], Any] = load_pickle
    ) -> WholeKeys:
        """Return the content in the bytes of a segment.

        Args:
            content: the bytes.
            step_id: the step, for errors.
            load: reads the pickle in the bytes.

        Raises:
            CheckpointError: when the bytes were written in a format this version does not know.
        """
        check_format(content, step_id, (FORMAT, FORMAT_WITH_COUNTS))
        keys, snapshots, dues, *counts = load(memoryview(content)[1:])
        due_us = np.frombuffer(dues, "<i8").tolist()
        if not counts:
            return cls(keys, snapshots, due_us)
        windows, values = counts
        return cls(keys, snapshots, due_us, list(zip(windows, values, strict=True)))


def _of_key(snapshot: bytes, snapshots_in: SnapshotsIn) -> bytes:
    """Return the pickled snapshot of a key.

    A checkpoint that was moved to another layout has, in the place of the pickle, a segment of a
    `ShardLogic` with the one key: the move copies state without unpickling it.
    """
    if not _is_of_shard(snapshot):
        return snapshot
    ((_, state, _),) = snapshots_in(snapshot)
    return pickle.dumps(state, 5)


def _is_of_shard(content: bytes) -> bool:
    return content[:1] == bytes([FORMAT_OF_SHARDS])


def weight(key: str, snapshot: bytes) -> int:
    """Return the approximate number of bytes of a key in a segment."""
    return len(key) + len(snapshot) + _OVERHEAD_BYTES
