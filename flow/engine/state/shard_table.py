"""State of a keyed step that runs over columns: its `ShardLogic`, and the storage of its segments.

The layout assigns keys to segments as for other steps, see `flow.engine.state.segment`. The logic
defines the format of a segment.
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
from flow.engine.state.segment import moved_segments, segments_for
from flow.engine.state.step_state import LiveState, StepState, StoredState
from flow.engine.state.store import StateStore
from flow.format_version import check_format, version_in
from flow.keyed.shard_logic import (
    SegmentDump,
    ShardEpoch,
    ShardLogic,
    ShardLogicBuilder,
    ShardOutput,
    ShardRows,
)
from flow.keyed.state import DueLimit, StateCounts


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
            return ShardOutput.empty(0)
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
