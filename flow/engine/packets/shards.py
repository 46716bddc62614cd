"""Shards and segments of the key space, and the hash that assigns keys to them.

The shards of a checkpoint are fixed. Keys of a shard lie in segments by linear hashing: growth from
n to n + 1 segments splits a single segment (Litwin, *Linear hashing*, 1980). Segments thus stay
small as the number of keys grows, and are merged again as it decreases.

The hash of a key has 64 bits: the value of a polynomial, with the UTF-8 bytes of the key from the
left as coefficients and an odd constant as the variable, then mixed. It is computed for whole
columns. A checkpoint depends on the hash, so it is the same in every version and on every machine.
The low bits choose the shard, the high bits the segment.

The mixing is the finalizer of MurmurHash3 (Austin Appleby, public domain).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flow.columns.arrays import Ints

DEFAULT_SHARDS = 16
"""The number of shards of a new checkpoint, unless it has more partitions."""

Hashes: TypeAlias = npt.NDArray[np.uint64]
Text: TypeAlias = npt.NDArray[np.uint8]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)


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
"""The greatest length, in bytes, of a key that `_sums_of_short` adds up."""


def _sums_of_short(text: Text, starts: Ints, lengths: Ints) -> Hashes:
    """Return the polynomials of keys, uint64, shape (keys,); a step adds one byte of all keys."""
    longest_first = np.argsort((_SHORT - lengths).astype(np.uint16), kind="stable")
    firsts = starts[longest_first]
    at_least = np.cumsum(np.bincount(lengths, minlength=_SHORT + 1)[::-1])[::-1]
    sums = np.zeros(len(starts), np.uint64)
    powers = _powers(_SHORT)
    for index in range(int(lengths.max(initial=0))):
        count = int(at_least[index + 1])  # the number of keys that have a byte at this index
        coefficients = text[firsts[:count] + index].astype(np.uint64) + np.uint64(1)
        sums[:count] += coefficients * powers[index]
    in_order = np.empty_like(sums)
    in_order[longest_first] = sums
    return in_order


def _sums_of_long(text: Text, starts: Ints, lengths: Ints) -> Hashes:
    """Return the polynomials of keys, uint64, shape (keys,); one step adds all bytes of all."""
    ends = np.cumsum(lengths)
    indices = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)
    terms = text[np.repeat(starts, lengths) + indices].astype(np.uint64) + np.uint64(1)
    terms *= _powers(int(lengths.max()))[indices]
    return np.add.reduceat(terms, ends - lengths)


def shard_of(hashes: Hashes, shards: int) -> Ints:
    """Return the shard of each hash, int64, shape (hashes,)."""
    return ((hashes & np.uint64(0xFFFFFFFF)) % np.uint64(shards)).astype(np.int64)


def segment_of(hashes: Hashes, segments: int) -> Ints:
    """Return the segment of each hash, by linear hashing over `segments` segments."""
    high = (hashes >> np.uint64(32)).astype(np.int64)
    power = 1 << max(0, (segments - 1).bit_length())
    wide = high & (power - 1)
    return np.where(wide < segments, wide, high & (power // 2 - 1) if power > 1 else 0)


TARGET_BYTES = 16_000
"""The target weight of a segment. Larger segments are faster if an epoch touches most keys of a
shard, smaller ones if it touches few."""


def segments_for(size: int, now: int) -> int:
    """Return the number of segments that state should have.

    The number gives each segment `TARGET_BYTES`. It decreases only once segments weigh less than a
    quarter of that, so that segments do not split and merge repeatedly.

    Args:
        size: weight of all keys, in bytes.
        now: number of segments now.

    >>> segments_for(15_000, 1), segments_for(17_000, 1), segments_for(17_000, 8)
    (1, 2, 8)
    """
    wanted = max(1, -(-size // TARGET_BYTES))
    return wanted if wanted > now or wanted < now // 4 else now


def parent_of(number: int, limit: int) -> int:
    """Return the segment below `limit` from which a new segment takes keys.

    A removed segment returns its keys to the same segment.
    """
    while number >= limit:
        number &= (1 << (number.bit_length() - 1)) - 1
    return number


def moved_segments(before: int, after: int) -> set[int]:
    """Return the segments that gain or lose keys if the number of segments changes.

    >>> sorted(moved_segments(2, 4)), sorted(moved_segments(4, 3))
    ([0, 1, 2, 3], [1, 3])
    """
    least = min(before, after)
    removed_or_new = range(least, max(before, after))
    return {*removed_or_new, *(parent_of(number, least) for number in removed_or_new)}


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
