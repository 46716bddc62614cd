"""Shards: fixed slices of the key space, and where Spark puts them.

A key's hash is 64 bits of its UTF-8 bytes: a polynomial in an odd constant, the bytes counted from
the left, then mixed. It is computed for whole columns, and is the same in every version and on
every machine; a checkpoint depends on that. The low bits choose the shard, the high bits the
segment.

The mixing is the finalizer of MurmurHash3 (Austin Appleby, public domain).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

DEFAULT_SHARDS = 16
"""Shards of a new checkpoint, unless it has more partitions."""

Hashes: TypeAlias = npt.NDArray[np.uint64]
Text: TypeAlias = npt.NDArray[np.uint8]
Places: TypeAlias = npt.NDArray[np.int64]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)
_HALF = np.uint64(32)


def hash_keys(keys: pa.Array) -> Hashes:
    """Hash an Arrow array of text keys, none of them null.

    >>> [hex(h) for h in hash_keys(pa.array(["", "a", "user-1"])).tolist()]
    ['0x9ca066f1a4ab2eea', '0xb1aa52abb4e20925', '0xcb17a3664f1bd730']
    """
    keys = keys.cast(pa.large_string())
    count = len(keys)
    _, offset_buffer, data = keys.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, count + 1 + keys.offset)[keys.offset :]
    starts, lengths = offsets[:-1], np.diff(offsets)
    sums = np.zeros(count, np.uint64)
    if offsets[-1] > offsets[0]:
        text = np.frombuffer(data, np.uint8)
        long = lengths > _SHORT
        if long.any():
            sums[long] = _sums_of_long(text, starts[long], lengths[long])
            sums[~long] = _sums_of_short(text, starts[~long], lengths[~long])
        else:
            sums = _sums_of_short(text, starts, lengths)
    return _mix(sums + lengths.astype(np.uint64) * _FACTOR + _FACTOR)


_SHORT = 64
"""Keys of no more bytes than this are summed up byte by byte, all keys at a time."""


def _sums_of_short(text: Text, starts: Places, lengths: Places) -> Hashes:
    """The polynomials of keys, the first byte of all of them, then the second, and so on."""
    order = np.argsort((_SHORT - lengths).astype(np.uint16), kind="stable")  # the longest first
    firsts = starts[order]
    holding = np.cumsum(np.bincount(lengths, minlength=_SHORT + 1)[::-1])[::-1]
    sums = np.zeros(len(starts), np.uint64)
    powers = _powers(_SHORT)
    for at in range(int(lengths.max(initial=0))):
        some = int(holding[at + 1])
        sums[:some] += (text[firsts[:some] + at].astype(np.uint64) + np.uint64(1)) * powers[at]
    found = np.empty_like(sums)
    found[order] = sums
    return found


def _sums_of_long(text: Text, starts: Places, lengths: Places) -> Hashes:
    """The polynomials of keys, all bytes of all of them at a time."""
    ends = np.cumsum(lengths)
    places = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)
    terms = text[np.repeat(starts, lengths) + places].astype(np.uint64) + np.uint64(1)
    terms *= _powers(int(lengths.max()))[places]
    return np.add.reduceat(terms, ends - lengths)


def shard_of(hashes: Hashes, shards: int) -> npt.NDArray[np.int64]:
    """The shard of each hash."""
    return ((hashes & np.uint64(0xFFFFFFFF)) % np.uint64(shards)).astype(np.int64)


def segment_of(hashes: Hashes, segments: int) -> npt.NDArray[np.int64]:
    """The segment of each hash, by linear hashing over `segments` segments."""
    high = (hashes >> _HALF).astype(np.int64)
    power = 1 << max(0, (segments - 1).bit_length())
    wide = high & (power - 1)
    return np.where(wide < segments, wide, high & (power // 2 - 1) if power > 1 else 0)


@lru_cache(maxsize=64)
def _powers(count: int) -> Hashes:
    factors = np.full(count, _FACTOR)
    factors[0] = 1
    return np.multiply.accumulate(factors)


def _mix(hashes: Hashes) -> Hashes:
    hashes ^= hashes >> _SHIFT
    hashes *= _MIX_1
    hashes ^= hashes >> _SHIFT
    hashes *= _MIX_2
    hashes ^= hashes >> _SHIFT
    return hashes


Slots: TypeAlias = tuple[int, ...]


@lru_cache(maxsize=8)
def group_ids(shards: int, partitions: int) -> Slots:
    """A Spark grouping key for each shard, such that every partition gets its fair share.

    Spark puts an integer key into the partition that its own 32-bit Murmur3 hash, seed 42, says.
    Shard s is given the least integer not yet used whose partition is ``s % partitions``.
    """
    waiting: dict[int, list[int]] = {number: [] for number in range(partitions)}
    for shard in reversed(range(shards)):
        waiting[shard % partitions].append(shard)
    ids = [0] * shards
    candidate = 0
    while any(waiting.values()):
        partition = spark_hash(candidate) % partitions
        if waiting[partition]:
            ids[waiting[partition].pop()] = candidate
        candidate += 1
    return tuple(ids)


def spark_hash(value: int) -> int:
    """Spark SQL's hash of a 32-bit integer: MurmurHash3 x86-32 of it, seed 42, signed.

    >>> spark_hash(0), spark_hash(1)
    (933211791, -559580957)
    """
    mask = 0xFFFFFFFF
    mixed = (value * 0xCC9E2D51) & mask
    mixed = ((mixed << 15) | (mixed >> 17)) & mask
    mixed = 42 ^ ((mixed * 0x1B873593) & mask)
    mixed = ((mixed << 13) | (mixed >> 19)) & mask
    mixed = ((mixed * 5 + 0xE6546B64) & mask) ^ 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & mask
    return mixed - (1 << 32) if mixed >> 31 else mixed
