"""State of a step that runs key by key: the logics of its keys, and their snapshots."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from flow.columns.chunks import key_array
from flow.engine.packets.shards import Hashes, hash_keys, moved_segments, segment_of, segments_for
from flow.engine.state.segment import Segment, weight
from flow.engine.state.step_state import LiveState, StepState, StoredState
from flow.engine.state.store import StateStore
from flow.errors import RAISED, error_message, step_error
from flow.instants import NEVER
from flow.keyed.shard_logic import BlockHolder
from flow.keyed.state import DueLimit, held_watermark_us
from flow.keyed.step import LogicBuilder


class KeyStates(StepState):
    """The logics of a step's keys in one shard.

    Attributes:
        holding: numbers of the streams of the step that steps in event time read; empty for a step
            without holds.
    """

    holding: frozenset[int] = frozenset()

    def changed_from(self) -> str | None:
        """Return the settings that the state was written with if they differ from the present ones.

        The settings are empty if the state has none. In an epoch with changed settings the caller
        puts every key again. ``None`` for unchanged settings.
        """
        return None

    @abstractmethod
    def prepare(self, keys: list[str]) -> None:
        """Load the state of keys, which the methods for one key require."""

    @abstractmethod
    def take(self, key: str) -> Any | None:
        """Return the logic of a prepared key, ``None`` for a key without state."""

    @abstractmethod
    def put(self, key: str, logic: Any, due_us: int) -> None:
        """Store the logic of a prepared key, with the due time of its next call."""

    @abstractmethod
    def drop(self, key: str) -> None:
        """Remove the state of a prepared key."""

    @abstractmethod
    def due(self, limit: DueLimit) -> list[str]:
        """Return the keys whose due times are reached, sorted; they are prepared."""

    @abstractmethod
    def all(self) -> list[str]:
        """Return all keys, sorted; they are prepared."""


class SegmentedStates(StoredState, KeyStates):
    """Key states in a `StateStore`, which stores the snapshots of logics.

    Args:
        store: the store of segments.
        step_id: the step.
        builder: the function that returns the logic of a snapshot.
        settings: the step's settings.
        hold_rule: the rule of the step's holds; empty for a step without holds.
        holding: as in `KeyStates`.
    """

    def __init__(
        self,
        store: StateStore,
        step_id: str,
        builder: Callable[[Any], Any],
        settings: str = "",
        hold_rule: str = "",
        holding: frozenset[int] = frozenset(),
    ) -> None:
        counter = builder.capabilities.counter if isinstance(builder, LogicBuilder) else None
        super().__init__(store, step_id, settings, counter is not None, hold_rule)
        self._builder, self._counter, self.holding = builder, counter, holding
        if self._changed_from is not None:
            self.header.dues[:] = -NEVER  # All keys are due in an epoch with changed settings.
        self._loaded: dict[int, Segment] = {}
        self._segment_of_key: dict[str, Segment] = {}
        if self._is_new_to_counts or self._is_new_to_holds:
            self._load(range(self.header.segments))

    def changed_from(self) -> str | None:
        return self._changed_from

    def prepare(self, keys: list[str]) -> None:
        new = [key for key in keys if key not in self._segment_of_key]
        if not new:
            return
        numbers = segment_of(self._hash(new), self.header.segments).tolist()
        self._load(numbers)
        for key, number in zip(new, numbers, strict=True):
            self._segment_of_key[key] = self._loaded[number]

    def take(self, key: str) -> Any | None:
        kept = self._segment_of_key[key].kept.get(key)
        if kept is None:
            return None
        logic = self._builder(pickle.loads(kept[0]))
        if logic is None:  # The caller would treat the key as one without state.
            raise TypeError("the builder returned None")
        return self._with_blocks(logic)

    def _with_blocks(self, logic: Any) -> Any:
        if isinstance(logic, BlockHolder):
            logic.blocks = self._blocks
        return logic

    def snapshot(self, key: str) -> Any | None:
        """Return the snapshot of a key, ``None`` when it has no state."""
        self.prepare([key])
        kept = self._segment_of_key[key].kept.get(key)
        snapshot = None if kept is None else pickle.loads(kept[0])
        if snapshot is not None and isinstance(self._builder, LogicBuilder):
            snapshot = self._builder.whole(snapshot, self._blocks.take)
        return snapshot

    def put(self, key: str, logic: Any, due_us: int) -> None:
        state = self._with_blocks(logic).snapshot()
        snapshot = self._pickled(key, state)
        segment = self._segment_of_key[key]
        before = segment.kept.get(key)
        hold_us = logic.hold_us(self.holding) if self.holding else NEVER
        if before == (snapshot, due_us) and segment.holds.get(key, NEVER) == hold_us:
            return
        if before is None:
            self.header.keys += 1
            self.header.size += weight(key, snapshot)
        else:
            self.header.size += len(snapshot) - len(before[0])
        segment.kept[key] = (snapshot, due_us)
        segment.changed = True
        if self._counter is not None:
            segment.counts[key] = self._counter(state)
        if self.holding:
            segment.holds[key] = hold_us

    def drop(self, key: str) -> None:
        segment = self._segment_of_key[key]
        before = segment.kept.pop(key, None)
        if before is not None:
            self.header.keys -= 1
            self.header.size -= weight(key, before[0])
            segment.changed = True
            segment.counts.pop(key, None)
            segment.holds.pop(key, None)

    def due(self, limit: DueLimit) -> list[str]:
        due_keys: list[str] = []
        reached = limit.reached_segments(self.header.dues, self.header.held)
        numbers = np.flatnonzero(reached).tolist()
        self._load(numbers)
        for number in numbers:
            segment = self._loaded[number]
            due_keys.extend(key for key, (_, due) in segment.kept.items() if limit.includes(due))
            self._segment_of_key.update(dict.fromkeys(segment.kept, segment))
        return sorted(due_keys)

    def all(self) -> list[str]:
        self._load(range(self.header.segments))
        for segment in self._loaded.values():
            self._segment_of_key.update(dict.fromkeys(segment.kept, segment))
        return sorted(key for segment in self._loaded.values() for key in segment.kept)

    def flush(self) -> int:
        self._adapt_layout()
        changed = {number: one for number, one in self._loaded.items() if one.changed}
        contents = {number: segment.encode() for number, segment in changed.items()}
        self._store.write_segments(self._step_id, {**contents, **self._blocks.changes})
        for number, segment in changed.items():
            self.header.counts[:, number] = segment.total
            if self.header.hold_rule:
                self.header.holds[number] = segment.hold_us
        for number, segment in (changed if self._changed_from is None else self._loaded).items():
            self.header.dues[number] = segment.due_us
            self.header.held[number] = segment.held_us
        return self._write_header()

    def _load(self, numbers: Iterable[int]) -> None:
        """Load the segments that are not loaded yet."""
        missing = sorted(set(numbers).difference(self._loaded))
        contents = self._store.read_segments(self._step_id, missing)
        builder = self._builder
        snapshots_in = None
        if isinstance(builder, LogicBuilder):
            snapshots_in = partial(builder.snapshots_in, take=self._blocks.take)
        for number, content in zip(missing, contents, strict=True):
            known = len(self._blocks.changes)
            segment = Segment.decode(content, self._step_id, snapshots_in, self._counter)
            segment.changed |= len(self._blocks.changes) > known  # Its blocks have been read.
            self._loaded[number] = segment
            if self.holding and (self._is_new_to_holds or len(segment.holds) < len(segment.kept)):
                self._determine_holds(segment)

    def _determine_holds(self, segment: Segment) -> None:
        """Determine the holds of a segment that was written by another rule, or over columns."""
        segment.changed = True
        for key, (snapshot, _) in segment.kept.items():
            segment.holds[key] = self._builder(pickle.loads(snapshot)).hold_us(self.holding)

    def _hash(self, keys: list[str]) -> Hashes:
        return hash_keys(key_array(keys, self._step_id))

    def _pickled(self, key: str, snapshot: Any) -> bytes:
        try:
            return pickle.dumps(snapshot, 5)
        except RAISED as error:  # Pickle passes on any exception of a user's `__reduce__`.
            raise step_error(
                self._step_id,
                f"its state cannot be pickled, so it cannot be kept: {error_message(error)}",
                key=key,
                item=snapshot,
            ) from error

    def _adapt_layout(self) -> None:
        """Adapt the number of segments to the weight of all keys."""
        now = self.header.segments
        wanted = segments_for(self.header.size, now)
        if wanted != now:
            self._resize(now, wanted)

    def _resize(self, before: int, wanted: int) -> None:
        """Change the number of segments, and assign the keys of the affected segments again."""
        moved = moved_segments(before, wanted)
        self._load(number for number in moved if number < before)
        sources = [self._loaded.pop(number) for number in sorted(moved) if number < before]
        self._loaded.update((number, Segment(changed=True)) for number in moved if number < wanted)
        self.header.resize(wanted)
        for source in sources:
            numbers = segment_of(self._hash(list(source.kept)), wanted).tolist()
            for number, key in zip(numbers, source.kept, strict=True):
                target = self._loaded[number]
                target.kept[key] = source.kept[key]
                if key in source.counts:
                    target.counts[key] = source.counts[key]
                if key in source.holds:
                    target.holds[key] = source.holds[key]
        self._store.write_segments(self._step_id, dict.fromkeys(range(wanted, before)))


class LiveStates(LiveState, KeyStates):
    """Key states in memory, for a batch run, which takes no snapshots.

    Due times, and the holds of keys, are in heaps. An outdated entry stays in a heap until it
    reaches the top, or until outdated entries outnumber valid ones, so that finding due keys costs
    time in proportion to their number.

    Args:
        holding: as in `KeyStates`.
    """

    def __init__(self, holding: frozenset[int] = frozenset()) -> None:
        super().__init__()
        self.holding = holding
        self._logics: dict[str, Any] = {}
        self._dues, self._watermarks, self._holds = KeyTimes(), KeyTimes(), KeyTimes()

    def prepare(self, keys: list[str]) -> None:
        pass

    def take(self, key: str) -> Any | None:
        return self._logics.get(key)

    def put(self, key: str, logic: Any, due_us: int) -> None:
        self._logics[key] = logic
        watermark_us = held_watermark_us(due_us)
        self._dues.set(key, due_us if watermark_us is None else NEVER)
        self._watermarks.set(key, NEVER if watermark_us is None else watermark_us)
        if self.holding:
            self._holds.set(key, logic.hold_us(self.holding))

    def drop(self, key: str) -> None:
        self._logics.pop(key, None)
        for times in (self._dues, self._watermarks, self._holds):
            times.set(key, NEVER)

    def due(self, limit: DueLimit) -> list[str]:
        return sorted({*self._dues.up_to(limit.time_us), *self._watermarks.up_to(limit.bound_us)})

    def all(self) -> list[str]:
        return sorted(self._logics)

    def flush(self) -> int:
        return self._dues.least()

    def hold_us(self) -> int:
        return self._holds.least()


class KeyTimes:
    """A time of each of many keys, in µs, of which the least are found without visiting all."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def set(self, key: str, time_us: int) -> None:
        """Set the time of a key; `NEVER` removes it."""
        if time_us >= NEVER:
            self._times.pop(key, None)
        elif self._times.get(key) != time_us:
            self._times[key] = time_us
            heappush(self._heap, (time_us, key))
            if len(self._heap) > 2 * len(self._times) + _MIN_OUTDATED:
                self._heap = [(us, one) for one, us in self._times.items()]
                heapify(self._heap)

    def least(self) -> int:
        """Return the least time, `NEVER` for no key."""
        while self._heap and self._is_outdated(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER

    def up_to(self, limit_us: int) -> list[str]:
        """Return the keys whose times are at most `limit_us`; their times stay."""
        valid: set[tuple[int, str]] = set()
        while self._heap and self._heap[0][0] <= limit_us:
            entry = heappop(self._heap)
            if not self._is_outdated(entry):
                valid.add(entry)
        for entry in valid:
            heappush(self._heap, entry)
        return [key for _, key in valid]

    def _is_outdated(self, entry: tuple[int, str]) -> bool:
        return self._times.get(entry[1]) != entry[0]


_MIN_OUTDATED = 64
"""The number of outdated heap entries that are not worth removing."""
