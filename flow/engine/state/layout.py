"""The layout of a shard's state of a step: keys in segments, by linear hashing.

Growth from n to n + 1 segments splits a single segment (Litwin, *Linear hashing*, 1980). Segments
thus stay small as the number of keys grows, and are merged again as it decreases.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flow.columns.chunks import key_array
from flow.engine.packets.shards import hash_keys, segment_of
from flow.engine.state.header import Header
from flow.engine.state.segment import Segment, weight

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
    segments = [Segment() for _ in range(max(1, -(-size // TARGET_BYTES)))]
    keys = list(kept)
    numbers = segment_of(hash_keys(key_array(keys, step_id)), len(segments)).tolist()
    for number, key in zip(numbers, keys, strict=True):
        segments[number].kept[key] = kept[key]
        if counts is not None:
            segments[number].counts[key] = counts[key]
    dues = np.array([segment.due_us for segment in segments], np.int64)
    held = np.array([segment.held_us for segment in segments], np.int64)
    header = Header(dues, len(keys), size, settings, held)
    header.is_counted = counts is not None
    header.counts[:] = np.array([segment.total for segment in segments], np.int32).T
    return header, segments
