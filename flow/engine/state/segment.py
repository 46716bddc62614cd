"""A segment of a step that runs key by key: whole keys, each with its snapshot and due time.

A segment is a version byte and a pickle of ``(keys, snapshots, dues)``; each snapshot is a pickle
of its own, which is read only when its key is touched.
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
from flow.keyed.pickles import load_pickle

FORMAT_OF_SHARDS = 2
"""The version byte of a segment whose content is a `ShardLogic`'s own."""
_OVERHEAD_BYTES = 24
"""Bytes that a key costs in a segment besides its text and its snapshot."""

SnapshotsIn: TypeAlias = Callable[[bytes], Iterable[tuple[str, Any, int]]]
"""Reads a segment that a `ShardLogic` wrote, see `flow.keyed.step.LogicBuilder.snapshots_in`."""


@dataclass
class Segment:
    """The keys of a segment, each with its snapshot and when it is due."""

    kept: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    changed: bool = False

    @property
    def size(self) -> int:
        """About how many bytes the segment weighs."""
        return sum(weight(key, snapshot) for key, (snapshot, _) in self.kept.items())

    @property
    def due_us(self) -> int:
        """The least time at which a key is due that is not held."""
        dues = (due for _, due in self.kept.values() if held_watermark_us(due) is None)
        return min(dues, default=NEVER)

    @property
    def held_us(self) -> int:
        """The least watermark that a held key waits for."""
        held = (held_watermark_us(due) for _, due in self.kept.values())
        return min((at for at in held if at is not None), default=NEVER)

    def encode(self) -> bytes | None:
        """The segment as bytes, ``None`` when it is empty."""
        if not self.kept:
            return None
        snapshots, dues = zip(*self.kept.values(), strict=True)
        content = (list(self.kept), list(snapshots), np.array(dues, "<i8").tobytes())
        return bytes([FORMAT]) + pickle.dumps(content, 5)

    @classmethod
    def decode(
        cls, content: bytes | None, step_id: str, snapshots_in: SnapshotsIn | None = None
    ) -> Segment:
        """The segment in bytes made by `encode`, or by a `ShardLogic` of the step.

        Args:
            content: the bytes; ``None`` for an empty segment.
            step_id: the step, for errors.
            snapshots_in: what finds the keys in a segment that a `ShardLogic` has made.
        """
        if content is None:
            return cls()
        if content[:1] == bytes([FORMAT_OF_SHARDS]) and snapshots_in is not None:
            found = snapshots_in(content)
            return cls({key: (pickle.dumps(state, 5), due) for key, state, due in found})
        check_format(content, step_id)
        keys, snapshots, dues = load_pickle(memoryview(content)[1:])
        due_list = np.frombuffer(dues, "<i8").tolist()
        return cls(dict(zip(keys, zip(snapshots, due_list, strict=True), strict=True)))


def weight(key: str, snapshot: bytes) -> int:
    """Return about how many bytes a key takes in a segment."""
    return len(key) + len(snapshot) + _OVERHEAD_BYTES
