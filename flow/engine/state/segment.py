"""A segment of a step that runs key by key: whole keys, each with its snapshot and due time.

A segment is a version byte and a pickle of ``(keys, snapshots, dues)``. Each snapshot is a separate
pickle, which is read only for a key that an epoch touches. Segments that a `ShardLogic` wrote, in
columns, are read as well.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from flow.engine.state.header import FORMAT, check_format
from flow.instants import NEVER
from flow.keyed.due import held_watermark_us
from flow.keyed.id_segments import FORMAT_OF_IDS, IdSegment, snapshots_of_segment
from flow.pickles import load_pickle

FORMAT_OF_SHARDS = 2
"""The version byte of a segment in the format of a `ShardLogic`."""
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
    """

    kept: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    changed: bool = False

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
        """Return the segment as bytes; ``None`` for an empty segment."""
        if not self.kept:
            return None
        snapshots, dues = zip(*self.kept.values(), strict=True)
        content = (list(self.kept), list(snapshots), np.array(dues, "<i8").tobytes())
        return bytes([FORMAT]) + pickle.dumps(content, 5)

    @classmethod
    def decode(
        cls, content: bytes | None, step_id: str, snapshots_in: SnapshotsIn | None = None
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
            ids = snapshots_of_segment(IdSegment.decode(content))
            return cls({key: (pickle.dumps(state, 5), due) for key, state, due in ids})
        if _is_of_shard(content) and snapshots_in is not None:
            states = snapshots_in(content)
            return cls({key: (pickle.dumps(state, 5), due) for key, state, due in states})
        check_format(content, step_id)
        keys, snapshots, dues = load_pickle(memoryview(content)[1:])
        if snapshots_in is not None:
            snapshots = [_of_key(snapshot, snapshots_in) for snapshot in snapshots]
        due_list = np.frombuffer(dues, "<i8").tolist()
        return cls(dict(zip(keys, zip(snapshots, due_list, strict=True), strict=True)))


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
