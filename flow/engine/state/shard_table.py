"""The state of a keyed step that runs many keys at once: its `ShardLogic`, and where it is kept.

Keys lie in segments as those of other steps do (see `flow.engine.state.layout`); the logic itself
says what a segment holds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints
from flow.engine.packets.shards import hash_keys, segment_of
from flow.engine.state.layout import moved_segments, segments_for
from flow.engine.state.step_state import LiveState, StepState, StoredState
from flow.engine.state.store import StateStore
from flow.keyed.due import DueLimit
from flow.keyed.shard_logic import (
    SegmentDump,
    ShardEpoch,
    ShardLogic,
    ShardLogicBuilder,
    ShardOutput,
    ShardRows,
)


class ShardTable(StepState):
    """A `ShardLogic` with its keys, as the engines see it."""

    @abstractmethod
    def run(self, rows: ShardRows | None, epoch: ShardEpoch, limit: DueLimit) -> ShardOutput:
        """Run an epoch over the shard.

        Args:
            rows: what has arrived.
            epoch: what the epoch asks.
            limit: keys whose due times it has reached have something to do.
        """


class LiveTable(LiveState, ShardTable):
    """Keys in memory, for a batch run."""

    def __init__(self, builder: ShardLogicBuilder) -> None:
        super().__init__()
        self._logic = builder()

    @override
    def run(self, rows: ShardRows | None, epoch: ShardEpoch, limit: DueLimit) -> ShardOutput:
        return self._logic.run(rows, epoch)

    @override
    def flush(self) -> int:
        return self._logic.due_us()


class _Segment(NamedTuple):
    """What a segment was when it was loaded: how many keys, how many bytes."""

    keys: int
    size: int


class SegmentedTable(StoredState, ShardTable):
    """Keys in a `StateStore`, of which an epoch loads the segments that it needs.

    Args:
        store: where they are kept.
        step_id: the step.
        builder: makes the step's `ShardLogic`.
        settings: what the step is set to.
    """

    def __init__(
        self, store: StateStore, step_id: str, builder: ShardLogicBuilder, settings: str = ""
    ) -> None:
        super().__init__(store, step_id, settings)
        self._builder = builder
        self._loaded: dict[int, _Segment] = {}
        self._ran = False

    @cached_property
    def _logic(self) -> ShardLogic:
        """Made when it is needed: in most epochs, most shards have nothing to do."""
        return self._builder()

    @override
    def run(self, rows: ShardRows | None, epoch: ShardEpoch, limit: DueLimit) -> ShardOutput:
        every = epoch.end_of_input or self._changed_from is not None
        needed = np.flatnonzero(
            limit.reached_segments(self._header.dues, self._header.held) | every
        )
        if rows is not None:
            needed = np.union1d(needed, self._numbers(rows.keys))
        self._load(needed.tolist())
        self._ran = bool(len(needed))
        if not self._ran:
            return ShardOutput.empty(0)
        return self._logic.run(rows, epoch._replace(changed_from=self._changed_from))

    @override
    def flush(self) -> int:
        if self._ran:
            self._write(self._dumped())
        return self._write_header()

    def _load(self, numbers: Sequence[int]) -> None:
        contents = self._store.read_segments(self._step_id, numbers)
        for number, content in zip(numbers, contents, strict=True):
            if content is None:
                self._loaded[number] = _Segment(0, 0)
            else:
                keys = self._logic.load(content)
                self._loaded[number] = _Segment(keys, len(content))

    def _numbers(self, keys: pa.Array) -> Ints:
        return segment_of(hash_keys(keys), self._header.segments)

    def _dumped(self) -> dict[int, SegmentDump]:
        """The segments to write, laid out so that they weigh about what they should."""
        numbers = self._numbers(self._logic.keys())
        # When a step is set otherwise, what has not changed may be due at another time.
        due_anew = self._changed_from is not None
        changed = np.unique(numbers[self._logic.changed() | due_anew]).tolist()
        dumped = self._dump(numbers, changed)
        size = self._header.size + sum(
            len(one.content or b"") - self._loaded[number].size for number, one in dumped.items()
        )
        now = self._header.segments
        wanted = segments_for(size, now)
        if wanted == now:
            return dumped
        moved = self._relaid(now, wanted)
        return self._dump(
            self._numbers(self._logic.keys()),
            sorted(number for number in {*changed, *moved} if number < wanted),
        )

    def _relaid(self, now: int, wanted: int) -> set[int]:
        """Go from so many segments to so many; returns those that gain or lose keys by it."""
        touched = moved_segments(now, wanted)
        self._load(sorted(one for one in touched if one < now and one not in self._loaded))
        self._header.resize(wanted)
        self._store.write_segments(self._step_id, dict.fromkeys(range(wanted, now)))
        for number in range(wanted, now):
            self._account(number, _Segment(0, 0))
        return touched

    def _dump(self, numbers: Ints, wanted: list[int]) -> dict[int, SegmentDump]:
        return dict(zip(wanted, self._logic.dump(numbers, wanted), strict=True))

    def _write(self, dumped: dict[int, SegmentDump]) -> None:
        contents = {number: one.content for number, one in dumped.items()}
        self._store.write_segments(self._step_id, contents)
        for number, one in dumped.items():
            self._account(number, _Segment(one.keys, len(one.content or b"")))
            self._header.dues[number] = one.due_us
            self._header.held[number] = one.held_us

    def _account(self, number: int, now: _Segment) -> None:
        before = self._loaded.get(number, _Segment(0, 0))
        self._header.keys += now.keys - before.keys
        self._header.size += now.size - before.size
        self._loaded[number] = now
