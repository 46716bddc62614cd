"""State: what a keyed step remembers between epochs.

A shard's state of a step is cut into *segments* of some sixteen kilobytes, which hold whole keys
and are read and written alone, and a *header* that says how many there are and when each next has
something due. An epoch reads the header and the segments that its keys fall into, or in which
something is due: its cost follows the keys it touches. Segments split, and are joined again, by
linear hashing (Litwin 1980): going from n to n + 1 segments takes only one apart.

A segment is a version byte and a pickle of ``(keys, snapshots, dues)``; each snapshot is a pickle
of its own, which is read only when its key is touched.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Protocol, TypeAlias

import numpy as np

from flow.columns.chunks import key_array
from flow.engine.packets.shards import Hashes, hash_keys, segment_of
from flow.engine.state.header import FORMAT, Header, check_format, read_header
from flow.errors import RAISED, said, step_error
from flow.instants import NEVER
from flow.keyed.due import DueLimit, held_at_us, held_until
from flow.keyed.pickles import load_pickle
from flow.keyed.step import LogicBuilder

FORMAT_OF_SHARDS = 2
"""The version byte of a segment whose content is a `ShardLogic`'s own."""
TARGET_BYTES = 16_000
"""What a segment should weigh: larger ones are quicker where an epoch touches most keys of a shard,
smaller ones where it touches few."""
PROGRESS_SEGMENT = -1
"""The number of the segment that holds no keys but how far the step's stream has come."""
_OVERHEAD_BYTES = 24
"""What a key costs in a segment besides its text and its snapshot."""


SnapshotsIn: TypeAlias = Callable[[bytes], Iterable[tuple[str, Any, int]]]
"""Reads a segment that a `ShardLogic` wrote, see `flow.keyed.step.LogicBuilder.snapshots_in`."""


class StateStore(Protocol):
    """Where the engine keeps headers and segments of one shard: Spark's state, or a dict."""

    def read_header(self, step_id: str) -> bytes | None:
        """A step's header, ``None`` when it has no state."""

    def write_header(self, step_id: str, content: bytes) -> None:
        """Replace a step's header."""

    def read_segments(self, step_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        """The segments of these numbers, ``None`` for those that are empty."""

    def write_segments(self, step_id: str, contents: Mapping[int, bytes | None]) -> None:
        """Replace segments, by number; ``None`` removes one."""


class MemoryStore:
    """A `StateStore` in a dict: what the in-process driver keeps state in."""

    def __init__(self) -> None:
        self._headers: dict[str, bytes] = {}
        self._segments: dict[tuple[str, int], bytes] = {}

    def copied(self) -> MemoryStore:
        """A store with the same content, which does not change with this one."""
        copy = MemoryStore()
        copy._headers.update(self._headers)
        copy._segments.update(self._segments)
        return copy

    def read_header(self, step_id: str) -> bytes | None:
        return self._headers.get(step_id)

    def write_header(self, step_id: str, content: bytes) -> None:
        self._headers[step_id] = content

    def read_segments(self, step_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        return [self._segments.get((step_id, number)) for number in numbers]

    def write_segments(self, step_id: str, contents: Mapping[int, bytes | None]) -> None:
        for number, content in contents.items():
            if content is None:
                self._segments.pop((step_id, number), None)
            else:
                self._segments[step_id, number] = content


@dataclass
class Segment:
    """The keys of a segment, each with its snapshot and when it is due."""

    kept: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    changed: bool = False

    @property
    def size(self) -> int:
        """About how many bytes the segment weighs."""
        return sum(_weight(key, snapshot) for key, (snapshot, _) in self.kept.items())

    @property
    def due_us(self) -> int:
        """The least time at which a key is due that is not held."""
        dues = (due for _, due in self.kept.values() if held_at_us(due) is None)
        return min(dues, default=NEVER)

    @property
    def held_us(self) -> int:
        """The least watermark that a held key waits for."""
        held = (held_at_us(due) for _, due in self.kept.values())
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


def lay_out(
    kept: dict[str, tuple[bytes, int]], step_id: str, settings: str = ""
) -> tuple[Header, list[Segment]]:
    """Lay a shard's keys out in segments, as if they had always been there.

    Args:
        kept: each key's snapshot, and when it is due.
        step_id: the step, for errors.
        settings: what the step was set to when that was worked out, if that is known.
    """
    size = sum(_weight(key, snapshot) for key, (snapshot, _) in kept.items())
    segments = [Segment() for _ in range(max(1, -(-size // TARGET_BYTES)))]
    keys = list(kept)
    numbers = segment_of(hash_keys(key_array(keys, step_id)), len(segments)).tolist()
    for number, key in zip(numbers, keys, strict=True):
        segments[number].kept[key] = kept[key]
    dues = np.array([segment.due_us for segment in segments], np.int64)
    held = np.array([segment.held_us for segment in segments], np.int64)
    return Header(dues, len(keys), size, settings, held), segments


def _weight(key: str, snapshot: bytes) -> int:
    return len(key) + len(snapshot) + _OVERHEAD_BYTES


class KeyStates(ABC):
    """The logics of a step's keys in one shard, as the step's run sees them."""

    def changed_from(self) -> str | None:
        """What the step was set to as the state was written, if it is set otherwise now.

        Empty where the state does not say. In such an epoch every key is to be put again.
        """
        return None

    @abstractmethod
    def prepare(self, keys: list[str]) -> None:
        """Say which keys will be touched."""

    @abstractmethod
    def take(self, key: str) -> Any | None:
        """The logic of a prepared key, ``None`` when it has none."""

    @abstractmethod
    def put(self, key: str, logic: Any, due_us: int) -> None:
        """Keep the logic of a prepared key, to be called at `due_us`."""

    @abstractmethod
    def drop(self, key: str) -> None:
        """Forget a prepared key."""

    @abstractmethod
    def due(self, limit: DueLimit) -> list[str]:
        """The keys whose due times have been reached, in order of key; they are prepared."""

    @abstractmethod
    def all(self) -> list[str]:
        """All keys, in order of key; they are prepared."""

    @abstractmethod
    def progress(self) -> bytes | None:
        """What the step remembers of how far its stream has come, whatever the key."""

    @abstractmethod
    def keep_progress(self, content: bytes) -> None:
        """Replace what the step remembers of how far its stream has come."""

    @abstractmethod
    def flush(self) -> int:
        """Write what changed; returns the least time at which a key is due."""

    @abstractmethod
    def count(self) -> int:
        """How many keys are kept for a later epoch."""

    @abstractmethod
    def size(self) -> int:
        """Return how many bytes are kept for a later epoch."""


class SegmentedStates(KeyStates):
    """Key states in a `StateStore`: logics are built from snapshots, and leave as snapshots.

    Args:
        store: where they are kept.
        step_id: the step.
        builder: makes a logic from a snapshot.
        settings: what the step is set to.
    """

    def __init__(
        self, store: StateStore, step_id: str, builder: Callable[[Any], Any], settings: str = ""
    ) -> None:
        self._store = store
        self._step_id = step_id
        self._builder = builder
        self._content = store.read_header(step_id)
        self._header, self._changed_from = read_header(self._content, step_id, settings)
        if self._changed_from is not None:
            self._header.dues[:] = -NEVER  # whenever they were due, they are looked at now
        self._loaded: dict[int, Segment] = {}
        self._home: dict[str, Segment] = {}

    def changed_from(self) -> str | None:
        return self._changed_from

    def prepare(self, keys: list[str]) -> None:
        new = [key for key in keys if key not in self._home]
        if not new:
            return
        numbers = segment_of(self._hash(new), self._header.segments).tolist()
        self._load(numbers)
        for key, number in zip(new, numbers, strict=True):
            self._home[key] = self._loaded[number]

    def take(self, key: str) -> Any | None:
        kept = self._home[key].kept.get(key)
        if kept is None:
            return None
        logic = self._builder(load_pickle(kept[0]))
        if logic is None:  # it would pass for a key without state, and the state would be lost
            raise TypeError("the builder returned None")
        return logic

    def put(self, key: str, logic: Any, due_us: int) -> None:
        snapshot = self._pickled(key, logic.snapshot())
        segment = self._home[key]
        before = segment.kept.get(key)
        if before == (snapshot, due_us):
            return
        if before is None:
            self._header.keys += 1
            self._header.size += _weight(key, snapshot)
        else:
            self._header.size += len(snapshot) - len(before[0])
        segment.kept[key] = (snapshot, due_us)
        segment.changed = True

    def drop(self, key: str) -> None:
        segment = self._home[key]
        before = segment.kept.pop(key, None)
        if before is not None:
            self._header.keys -= 1
            self._header.size -= _weight(key, before[0])
            segment.changed = True

    def due(self, limit: DueLimit) -> list[str]:
        found: list[str] = []
        reached = limit.reached_by(self._header.dues, self._header.held)
        numbers = np.flatnonzero(reached).tolist()
        self._load(numbers)
        for number in numbers:
            segment = self._loaded[number]
            found.extend(key for key, (_, due) in segment.kept.items() if limit.reached(due))
            self._home.update(dict.fromkeys(segment.kept, segment))
        return sorted(found)

    def all(self) -> list[str]:
        self._load(range(self._header.segments))
        for segment in self._loaded.values():
            self._home.update(dict.fromkeys(segment.kept, segment))
        return sorted(key for segment in self._loaded.values() for key in segment.kept)

    def progress(self) -> bytes | None:
        (content,) = self._store.read_segments(self._step_id, [PROGRESS_SEGMENT])
        return content

    def keep_progress(self, content: bytes) -> None:
        self._store.write_segments(self._step_id, {PROGRESS_SEGMENT: content})

    def flush(self) -> int:
        self._fit()
        changed = {number: one for number, one in self._loaded.items() if one.changed}
        contents = {number: segment.encode() for number, segment in changed.items()}
        self._store.write_segments(self._step_id, contents)
        for number, segment in (changed if self._changed_from is None else self._loaded).items():
            self._header.dues[number] = segment.due_us
            self._header.held[number] = segment.held_us
        content = self._header.encode()
        if content != self._content and (self._content is not None or self._header.keys):
            self._store.write_header(self._step_id, content)
        return int(self._header.dues.min())

    def count(self) -> int:
        return self._header.keys

    def size(self) -> int:
        return self._header.size

    def _load(self, numbers: Iterable[int]) -> None:
        """Load segments, unless they are."""
        missing = sorted(set(numbers).difference(self._loaded))
        contents = self._store.read_segments(self._step_id, missing)
        builder = self._builder
        snapshots_in = builder.snapshots_in if isinstance(builder, LogicBuilder) else None
        for number, content in zip(missing, contents, strict=True):
            self._loaded[number] = Segment.decode(content, self._step_id, snapshots_in)

    def _hash(self, keys: list[str]) -> Hashes:
        return hash_keys(key_array(keys, self._step_id))

    def _pickled(self, key: str, snapshot: Any) -> bytes:
        try:
            return pickle.dumps(snapshot, 5)
        except RAISED as error:  # pickle raises whatever a user's __reduce__ does
            raise step_error(
                self._step_id,
                f"its state cannot be pickled, so it cannot be kept: {said(error)}",
                key=key,
                item=snapshot,
            ) from error

    def _fit(self) -> None:
        """Split or join segments until they weigh about what they should."""
        now = self._header.segments
        wanted = segments_for(self._header.size, now)
        if wanted != now:
            self._relay(range(min(now, wanted), max(now, wanted)), wanted)

    def _relay(self, moved: Iterable[int], wanted: int) -> None:
        """Go to `wanted` segments: those that gain or lose keys by it are loaded and dealt anew."""
        before = self._header.segments
        touched = {parent_of(number, min(before, wanted)) for number in moved}
        touched.update(range(wanted, before))
        self._load(touched)
        segments = [self._loaded[number] for number in sorted(touched)]
        kept = {key: value for segment in segments for key, value in segment.kept.items()}
        self._header.resize(wanted)
        for number in sorted(touched | set(range(before, wanted))):
            self._loaded[number] = Segment(changed=True)
        if kept:
            numbers = segment_of(self._hash(list(kept)), wanted).tolist()
            for number, (key, value) in zip(numbers, kept.items(), strict=True):
                self._loaded[number].kept[key] = value
        self._store.write_segments(self._step_id, dict.fromkeys(range(wanted, before)))
        for number in range(wanted, before):
            del self._loaded[number]


def segments_for(size: int, now: int) -> int:
    """In how many segments so many bytes should lie, if they lie in so many now."""
    wanted = max(1, -(-size // TARGET_BYTES))
    return wanted if wanted > now or wanted < now // 4 else now


def parent_of(number: int, limit: int) -> int:
    """The segment below `limit` that a segment's keys come from, or go to."""
    while number >= limit:
        number &= (1 << (number.bit_length() - 1)) - 1
    return number


class LiveStates(KeyStates):
    """Key states in memory, for a batch run: logics stay whole.

    Due times lie in a heap, where those that no longer hold stay until they come up, or are more
    than those that do: finding what is due costs as much as is due.
    """

    def __init__(self) -> None:
        self._logics: dict[str, Any] = {}
        self._dues: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._held: list[tuple[int, str]] = []
        self._progress: bytes | None = None

    def prepare(self, keys: list[str]) -> None:
        pass

    def take(self, key: str) -> Any | None:
        return self._logics.get(key)

    def put(self, key: str, logic: Any, due_us: int) -> None:
        self._logics[key] = logic
        if due_us >= NEVER:
            self._dues.pop(key, None)
        elif self._dues.get(key) != due_us:
            self._dues[key] = due_us
            held_us = held_at_us(due_us)
            if held_us is None:
                heappush(self._heap, (due_us, key))
            else:
                heappush(self._held, (held_us, key))
            self._trim()

    def drop(self, key: str) -> None:
        self._logics.pop(key, None)
        self._dues.pop(key, None)

    def due(self, limit: DueLimit) -> list[str]:
        found = {key for _, key in self._passed(self._heap, limit.time_us, int)}
        found |= {key for _, key in self._passed(self._held, limit.bound_us, held_until)}
        return sorted(found)

    def _passed(
        self, heap: list[tuple[int, str]], limit_us: int, as_due: Callable[[int], int]
    ) -> set[tuple[int, str]]:
        """What has come up in a heap and still holds; it stays there until its key is put again."""
        found: set[tuple[int, str]] = set()
        while heap and heap[0][0] <= limit_us:
            at_us, key = heappop(heap)
            if self._dues.get(key) == as_due(at_us):
                found.add((at_us, key))
        for one in found:
            heappush(heap, one)
        return found

    def all(self) -> list[str]:
        return sorted(self._logics)

    def progress(self) -> bytes | None:
        return self._progress

    def keep_progress(self, content: bytes) -> None:
        self._progress = content

    def flush(self) -> int:
        while self._heap and self._dues.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER

    def count(self) -> int:
        return 0

    def size(self) -> int:
        return 0

    def _trim(self) -> None:
        if len(self._heap) + len(self._held) <= 2 * len(self._dues) + _SPARE:
            return
        held = {key: held_at_us(due_us) for key, due_us in self._dues.items()}
        self._heap = [(self._dues[key], key) for key, at in held.items() if at is None]
        self._held = [(at, key) for key, at in held.items() if at is not None]
        heapify(self._heap)
        heapify(self._held)


_SPARE = 64
"""How many due times that no longer hold are not worth removing."""
