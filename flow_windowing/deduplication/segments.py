"""The formats of segments that hold remembered ids.

Ids that are all text, or all integers of 64 bits, are stored in columns. After its kind, a segment
is then a pickle of plain texts, tuples and bytes: the columns of an `IdSegment`, in its order.
Columns of numbers are little-endian.

A segment with other ids, or with a clock without columns, has the format of a step that runs key by
key, `WholeKeys`, where the snapshot of a key is a pickle of `IdState`. The tools of recovery thus
move ids of any class without unpickling them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints
from flow.keyed.state import (
    IDS,
    WholeKeys,
    columns_in,
    kind_of,
)
from flow_windowing.columnar.admission.shard_clocks import KeyClocks, KeyLogics, ShardClock
from flow_windowing.columnar.state.encoded_clocks import (
    EncodedClocks,
    clocks_of_states,
    decode_clocks,
)
from flow_windowing.columnar.values.encoding import (
    decode_column,
    decode_texts,
    encode_column,
    encode_texts,
)
from flow_windowing.deduplication.ids import Ids, column_of_ids, id_objects

IdState: TypeAlias = "tuple[Any, list[Any], list[int]]"
"""The snapshot of a key: its clock's state, its ids, and the time of the value that passed for each
id, in µs."""
IdKind: TypeAlias = Literal["text", "int", "key"]
"""The type of the ids of a segment: text, integers of 64 bits, or for each key the key itself."""


class IdSegment(NamedTuple):
    """The content of a segment, column by column; ids are in the order of their keys.

    Attributes:
        key_lengths: the length of each key in bytes, int32.
        key_texts: the keys in UTF-8, one after the other.
        due_us: the due time of each key, int64.
        clocks: the columns of the keys' clocks, see `EncodedClocks`.
        id_counts: the number of ids of each key, int32; empty if each key has one.
        kind: the type of the ids.
        ids: integers, int64, or texts in UTF-8, one after the other; empty for ids that are keys.
        id_lengths: the length of each text in bytes, int32.
        is_known: a byte for each id, 0 for ``None``; empty if no id is ``None``.
        first_us: the time of the value that passed for each id, int64.
    """

    key_lengths: bytes
    key_texts: bytes
    due_us: bytes
    clocks: tuple[bytes, bytes, bytes, bytes]
    id_counts: bytes
    kind: IdKind
    ids: bytes
    id_lengths: bytes
    is_known: bytes
    first_us: bytes

    def encode(self) -> bytes:
        """Return the segment as bytes."""
        return IDS + pickle.dumps(tuple(self), 5)

    @classmethod
    def decode(cls, content: bytes, load: Callable[[memoryview], Any] = pickle.loads) -> IdSegment:
        """Return the content of a segment.

        Args:
            content: the bytes that `encode` made.
            load: reads the pickle in the bytes.

        Raises:
            CheckpointError: when the bytes are not such a segment.
        """
        return cls(*columns_in(content, len(cls._fields), "ids", load))

    @property
    def key_count(self) -> int:
        """The number of keys."""
        return len(self.key_lengths) // 4

    @property
    def encoded_clocks(self) -> EncodedClocks:
        """The clocks of the keys."""
        return EncodedClocks(*self.clocks, [])


class KeyedIds(NamedTuple):
    """Keys with their ids.

    Attributes:
        keys: the keys, Arrow large text, shape (keys,).
        counts: the number of ids of each key, shape (keys,).
        ids: the ids, in the order of their keys, shape (ids,); ``None`` if each id is its key.
        first_us: the time of the value that passed for each id, int64 µs, shape (ids,).
    """

    keys: pa.Array
    counts: Ints
    ids: Ids | None
    first_us: Ints


def decode_segment(content: bytes) -> IdSegment | WholeKeys:
    """Return the content of a segment, in columns or as whole keys.

    Raises:
        CheckpointError: when the bytes are no such segment.
    """
    if kind_of(content) == IDS:
        return IdSegment.decode(content)
    return WholeKeys.decode(content, "a segment of remembered ids")


def read_segments(
    clock: ShardClock[Any], segments: Sequence[IdSegment | WholeKeys]
) -> list[tuple[KeyedIds, KeyClocks]]:
    """Return the keys and ids of segments with their clocks, for each kind of ids in one.

    Args:
        clock: the clock of the step.
        segments: the segments.
    """
    columns = [one for one in segments if isinstance(one, IdSegment)]
    pickled = [one for one in segments if isinstance(one, WholeKeys)]
    found = []
    for kind in sorted({one.kind for one in columns}):
        of_kind = [one for one in columns if one.kind == kind]
        clocks = [one.encoded_clocks for one in of_kind]
        counts = [one.key_count for one in of_kind]
        found.append((_read_columns(of_kind), decode_clocks(clock, clocks, counts)))
    return [*found, _unpickled(clock, pickled)] if pickled else found


def _read_columns(segments: Sequence[IdSegment]) -> KeyedIds:
    keys = decode_texts([one.key_lengths for one in segments], [one.key_texts for one in segments])
    counts = np.concatenate(
        [
            np.frombuffer(one.id_counts, "<i4") if one.id_counts else np.ones(one.key_count, "<i4")
            for one in segments
        ]
    )
    first_us = decode_column([one.first_us for one in segments])
    return KeyedIds(keys, counts.astype(np.int64), _ids(segments), first_us)


def _ids(segments: Sequence[IdSegment]) -> pa.Array | None:
    if segments[0].kind == "key":
        return None
    is_missing = None
    if any(one.is_known for one in segments):
        known = [one.is_known or bytes([1]) * (len(one.first_us) // 8) for one in segments]
        is_missing = np.frombuffer(b"".join(known), np.uint8) == 0
    if segments[0].kind == "int":
        return pa.array(decode_column([one.ids for one in segments]), mask=is_missing)
    validity = None if is_missing is None else pa.array(~is_missing).buffers()[1]
    lengths, texts = [one.id_lengths for one in segments], [one.ids for one in segments]
    return decode_texts(lengths, texts, validity)


def _unpickled(clock: ShardClock[Any], segments: list[WholeKeys]) -> tuple[KeyedIds, KeyClocks]:
    """Return the keys and ids in segments of whole keys with their clocks."""
    keys = [key for one in segments for key in one.keys]
    states: list[IdState] = [pickle.loads(kept) for one in segments for kept in one.snapshots]
    keyed = KeyedIds(
        pa.array(keys, pa.large_string()),
        np.array([len(ids) for _, ids, _ in states], np.int64),
        column_of_ids(list(chain.from_iterable(ids for _, ids, _ in states))),
        np.array(list(chain.from_iterable(first for _, _, first in states)), np.int64),
    )
    return keyed, clocks_of_states(clock, [state[0] for state in states])


def snapshots_of_segment(segment: IdSegment) -> Iterator[tuple[str, IdState, int]]:
    """Yield each key of a segment with its snapshot and its due time."""
    keys, counts, ids, first_us = _read_columns([segment])
    if ids is None:
        ids = keys.take(pa.array(np.repeat(np.arange(len(keys)), counts)))
    id_list, first_list = id_objects(ids), first_us.tolist()
    clocks = segment.encoded_clocks.states(len(keys))
    dues = decode_column([segment.due_us]).tolist()
    ends = np.cumsum(counts).tolist()
    begin = 0
    for key, clock, due_us, end in zip(keys.to_pylist(), clocks, dues, ends, strict=True):
        yield key, (clock, id_list[begin:end], first_list[begin:end]), due_us
        begin = end


def writer_of(
    chosen: KeyedIds, clocks: KeyClocks, expires: bool, due_us: Ints
) -> Callable[[int, int], bytes]:
    """Return a function that returns the segment of a range of keys, end exclusive.

    Args:
        chosen: the keys, sorted by segment.
        clocks: the clocks of the keys.
        expires: True if the clocks of silent keys expire.
        due_us: the due time of each key.
    """
    if isinstance(clocks, KeyLogics):
        return _pickler(chosen, clocks.snapshots(), due_us)
    encoded = EncodedClocks.of(clocks, expires)
    if isinstance(chosen.ids, list):
        return _pickler(chosen, encoded.states(len(chosen.keys)), due_us)
    return IdWriter(chosen, chosen.ids, encoded, due_us)


def _pickler(chosen: KeyedIds, clocks: list[Any], due_us: Ints) -> Callable[[int, int], bytes]:
    """Return the function for segments of whole keys."""
    keys, first_us = chosen.keys.to_pylist(), chosen.first_us.tolist()
    ids = keys if chosen.ids is None else id_objects(chosen.ids)
    ends: list[int] = np.concatenate([[0], np.cumsum(chosen.counts)]).tolist()

    def write(begin: int, end: int) -> bytes:
        spans = zip(clocks[begin:end], pairwise(ends[begin : end + 1]), strict=True)
        snapshots = [
            pickle.dumps((clock, ids[first:last], first_us[first:last]), 5)
            for clock, (first, last) in spans
        ]
        return WholeKeys(keys[begin:end], snapshots, due_us[begin:end]).encode()

    return write


class IdWriter:
    """Writer of ranges of keys as segments.

    Columns are encoded once for all segments; a segment has slices of the bytes.

    Args:
        chosen: the keys, sorted by segment.
        ids: their ids, Arrow large text or int64; ``None`` if each id is its key.
        clocks: their clocks.
        due_us: the due time of each key.
    """

    def __init__(
        self, chosen: KeyedIds, ids: pa.Array | None, clocks: EncodedClocks, due_us: Ints
    ) -> None:
        keys, counts, _, first_us = chosen
        self._key_ends, self._key_texts = encode_texts(keys)
        self._key_lengths = encode_column(np.diff(self._key_ends), "<i4")
        self._due = encode_column(due_us)
        *self._clocks, _ = clocks
        self._counts = b"" if bool((counts == 1).all()) else encode_column(counts, "<i4")
        self._ends = np.concatenate([[0], np.cumsum(counts)])
        self._first = encode_column(first_us)
        self._known, self._ids, self._id_ends, self._id_lengths = b"", b"", self._ends, b""
        self._kind: IdKind
        if ids is None:
            self._kind = "key"
            return
        if ids.null_count:
            self._known = ids.is_valid().to_numpy(zero_copy_only=False).tobytes()
        if pa.types.is_large_string(ids.type):
            self._kind = "text"
            self._id_ends, self._ids = encode_texts(ids)
            self._id_lengths = encode_column(np.diff(self._id_ends), "<i4")
        else:
            self._kind = "int"
            numbers: Ints = (ids.fill_null(0) if ids.null_count else ids).to_numpy()
            self._ids = encode_column(numbers)

    def __call__(self, begin: int, end: int) -> bytes:
        """Return the segment of the keys from `begin` to `end`, exclusive."""
        first, last = self._ends[begin], self._ends[end]
        keys, short_keys = slice(begin * 8, end * 8), slice(begin * 4, end * 4)
        rows, ids = slice(first * 8, last * 8), slice(first * 8, last * 8)
        if self._kind == "text":
            ids = slice(self._id_ends[first], self._id_ends[last])
        base_us, set_at_us, last_us, held_us = self._clocks
        return IdSegment(
            key_lengths=self._key_lengths[short_keys],
            key_texts=self._key_texts[self._key_ends[begin] : self._key_ends[end]],
            due_us=self._due[keys],
            clocks=(base_us[keys], set_at_us[keys], last_us[keys], held_us[keys]),
            id_counts=self._counts[short_keys],
            kind=self._kind,
            ids=self._ids[ids],
            id_lengths=self._id_lengths[first * 4 : last * 4],
            is_known=self._known[first:last],
            first_us=self._first[rows],
        ).encode()
