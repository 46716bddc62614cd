"""Segments of a step that runs key by key.

Each snapshot is a separate pickle, which is read only for a key that an epoch touches. Segments
that a `ShardLogic` wrote, in columns, are read as well.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from flow.columns.chunks import key_array
from flow.engine.packets.shards import hash_keys, segment_of, segments_for
from flow.engine.state.step_state import Header
from flow.instants import NEVER
from flow.keyed.state import (
    MOVED,
    WINDOWS,
    StateCounter,
    StateCounts,
    WholeKeys,
    held_watermark_us,
    kind_of,
)

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
        counts: the open windows and buffered values of each key; empty for a step that is not
            counted.
        holds: the hold of each key, in µs; empty for a step without holds.
    """

    kept: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    changed: bool = False
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    holds: dict[str, int] = field(default_factory=dict)

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

    @property
    def hold_us(self) -> int:
        """The least hold of the keys, in µs."""
        return min(self.holds.values(), default=NEVER)

    @property
    def total(self) -> StateCounts:
        """The open windows and buffered values of all keys."""
        return StateCounts.total(self.counts.values())

    def encode(self) -> bytes | None:
        """Return the segment as bytes; ``None`` for an empty segment."""
        if not self.kept:
            return None
        snapshots, dues = zip(*self.kept.values(), strict=True)
        stored = WholeKeys(list(self.kept), list(snapshots), np.array(dues, np.int64))
        if self.holds:
            stored = stored._replace(holds_us=tuple(map(self.holds.__getitem__, self.kept)))
        if not self.counts:
            return stored.encode()
        windows, values = zip(*map(self.counts.__getitem__, self.kept), strict=True)
        return stored._replace(windows=windows, values=values).encode()

    @classmethod
    def decode(
        cls,
        content: bytes | None,
        step_id: str,
        snapshots_in: SnapshotsIn | None = None,
        counter: StateCounter | None = None,
    ) -> Segment:
        """Return the segment in bytes made by `encode`, or by a `ShardLogic` of the step.

        Args:
            content: the bytes; ``None`` for an empty segment.
            step_id: the step, for errors.
            snapshots_in: the reader of segments that a `ShardLogic` made.
            counter: the counter of a counted step. Keys that are stored without counts are
                counted, since the step had no counter when they were written.
        """
        if content is None:
            return cls()
        if kind_of(content) == WINDOWS and snapshots_in is not None:
            return cls._of_states(snapshots_in(content), counter)
        stored = WholeKeys.decode(content, f"the state of step {step_id!r}")
        snapshots = stored.snapshots
        if snapshots_in is not None:
            snapshots = [_of_key(snapshot, snapshots_in) for snapshot in snapshots]
        kept = dict(
            zip(stored.keys, zip(snapshots, stored.due_us.tolist(), strict=True), strict=True)
        )
        segment = cls(kept)
        if stored.holds_us:
            segment.holds = dict(zip(stored.keys, stored.holds_us, strict=True))
        if counter is not None and stored.windows:
            segment.counts = dict(zip(stored.keys, stored.counts, strict=True))
        elif counter is not None:
            segment.changed = True
            for key, (snapshot, _) in kept.items():
                segment.counts[key] = counter(pickle.loads(snapshot))
        return segment

    @classmethod
    def _of_states(
        cls, states: Iterable[tuple[str, Any, int]], counter: StateCounter | None
    ) -> Segment:
        segment = cls()
        for key, state, due_us in states:
            segment.kept[key] = pickle.dumps(state, 5), due_us
            if counter is not None:
                segment.counts[key] = counter(state)
        return segment


def _of_key(snapshot: bytes, snapshots_in: SnapshotsIn) -> bytes:
    """Return the pickled snapshot of a key.

    A checkpoint that was moved to another layout has, in the place of the pickle, a segment of a
    `ShardLogic` with the one key, or the pickle with its blocks: the move copies state without
    unpickling it.
    """
    if kind_of(snapshot) not in {WINDOWS, MOVED}:
        return snapshot
    ((_, state, _),) = snapshots_in(snapshot)
    return pickle.dumps(state, 5)


def weight(key: str, snapshot: bytes) -> int:
    """Return the approximate number of bytes of a key in a segment."""
    return len(key) + len(snapshot) + _OVERHEAD_BYTES


def lay_out(
    kept: dict[str, tuple[bytes, int]],
    step_id: str,
    settings: str = "",
    counts: Mapping[str, tuple[int, int]] | None = None,
) -> tuple[Header, list[Segment]]:
    """Return the header and segments of a shard's keys.

    Args:
        kept: the snapshot and due time of each key.
        step_id: the step, for errors.
        settings: the step's settings that the due times depend on; empty if unknown.
        counts: the open windows and buffered values of each key; ``None`` if they are not counted.
    """
    size = sum(weight(key, snapshot) for key, (snapshot, _) in kept.items())
    segments = [Segment() for _ in range(segments_for(size, 0))]
    numbers = segment_of(hash_keys(key_array(list(kept), step_id)), len(segments)).tolist()
    for number, key in zip(numbers, kept, strict=True):
        segments[number].kept[key] = kept[key]
        if counts is not None:
            segments[number].counts[key] = counts[key]
    dues = np.array([segment.due_us for segment in segments], np.int64)
    held = np.array([segment.held_us for segment in segments], np.int64)
    header = Header(dues, len(kept), size, settings, held)
    header.is_counted = counts is not None
    header.counts[:] = np.array([segment.total for segment in segments], np.int32).T
    return header, segments
