"""Placement of keys: the hash, shards, segments, and Spark's partitions.

A checkpoint depends on every number here: one that changes makes state unreachable.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from flow.engine.packets.shards import hash_keys, segment_of, shard_of
from flow.engine.spark.shipping import Layout, group_ids, spark_hash


def hashes(keys: list[str]) -> list[int]:
    return hash_keys(pa.array(keys, pa.string())).tolist()


# --- the hash ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "pinned"),
    [
        ("", 0x9CA066F1A4AB2EEA),
        ("a", 0xB1AA52ABB4E20925),
        ("b", 0x6763A26E2D0586B4),
        ("user-1", 0xCB17A3664F1BD730),
        ("日本", 0x319092417355D8BE),
        ("x" * 1000, 0xA82CB71F03B05417),
    ],
)
def test_the_hash_of_a_key_is_unchanged(key: str, pinned: int) -> None:
    assert hashes([key]) == [pinned]


def reference(key: str) -> int:
    """The hash by its definition, in plain integers."""
    factor, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1
    data = key.encode()
    value = (len(data) + 1) * factor
    for place, byte in enumerate(data):
        value += (byte + 1) * pow(factor, place, 1 << 64)
    value &= mask
    for mix in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value = ((value ^ (value >> 33)) * mix) & mask
    return value ^ (value >> 33)


@given(st.lists(st.text()))
def test_the_hash_of_a_column_is_the_hash_of_each_key(keys: list[str]) -> None:
    assert hashes(keys) == [reference(key) for key in keys]


@given(st.lists(st.text(), min_size=1), st.data())
def test_a_slice_hashes_as_a_column_of_its_own(keys: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(keys)))
    end = data.draw(st.integers(start, len(keys)))
    whole = pa.array(keys, pa.string())
    assert hash_keys(whole.slice(start, end - start)).tolist() == hashes(keys[start:end])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_hashes_do_not_depend_on_the_arrow_type_of_text(kind: pa.DataType) -> None:
    assert hash_keys(pa.array(["a", "user-1"], kind)).tolist() == hashes(["a", "user-1"])


def test_keys_that_differ_in_one_place_fall_into_all_shards_evenly() -> None:
    keys = pa.array([f"user-{number}" for number in range(100_000)])
    counts = np.bincount(shard_of(hash_keys(keys), 32), minlength=32)
    assert counts.min() > 0.95 * 100_000 / 32
    assert counts.max() < 1.05 * 100_000 / 32


def test_keys_of_one_shard_fall_into_all_segments_evenly() -> None:
    hashed = hash_keys(pa.array([f"user-{number}" for number in range(320_000)]))
    of_one_shard = hashed[shard_of(hashed, 32) == 7]
    counts = np.bincount(segment_of(of_one_shard, 8), minlength=8)
    assert counts.min() > 0.9 * len(of_one_shard) / 8
    assert counts.max() < 1.1 * len(of_one_shard) / 8


# --- segments ---------------------------------------------------------------------------------

SOME_HASHES = hash_keys(pa.array([f"key {number}" for number in range(2_000)]))


def test_with_one_segment_every_key_is_in_it() -> None:
    assert set(segment_of(SOME_HASHES, 1).tolist()) == {0}


@pytest.mark.parametrize("segments", range(1, 40))
def test_a_new_segment_takes_keys_from_one_segment_only(segments: int) -> None:
    before, after = segment_of(SOME_HASHES, segments), segment_of(SOME_HASHES, segments + 1)
    moved = before != after
    assert set(after.tolist()) == set(range(segments + 1))
    assert set(after[moved].tolist()) == {segments}
    assert len(set(before[moved].tolist())) == 1


@pytest.mark.parametrize(
    ("segments", "expected"),
    # The high bits of the hash are 0, 1, … 7: with 5 segments only 4 has been split off 0.
    [
        (1, [0, 0, 0, 0, 0, 0, 0, 0]),
        (2, [0, 1, 0, 1, 0, 1, 0, 1]),
        (3, [0, 1, 2, 1, 0, 1, 2, 1]),
        (4, [0, 1, 2, 3, 0, 1, 2, 3]),
        (5, [0, 1, 2, 3, 4, 1, 2, 3]),
        (8, [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_segments_are_linear_hashing_of_the_high_bits(segments: int, expected: list[int]) -> None:
    hashed = np.arange(8, dtype=np.uint64) << np.uint64(32)
    assert segment_of(hashed, segments).tolist() == expected


# --- Spark's partitions -----------------------------------------------------------------------


@pytest.mark.parametrize(("value", "pinned"), [(0, 933211791), (1, -559580957), (42, 29417773)])
def test_sparks_hash_of_an_integer_is_unchanged(value: int, pinned: int) -> None:
    assert spark_hash(value) == pinned


@pytest.mark.parametrize(("shards", "partitions"), [(32, 1), (32, 2), (32, 5), (7, 3), (4, 9)])
def test_every_partition_gets_its_share_of_the_shards(shards: int, partitions: int) -> None:
    ids = group_ids(shards, partitions)
    assert len(set(ids)) == shards
    held = Counter(spark_hash(group) % partitions for group in ids)
    most, least = -(-shards // partitions), shards // partitions
    assert set(held.values()) <= {most, least} - {0}
    assert len(held) == min(shards, partitions)


def test_the_grouping_keys_of_a_checkpoint_are_unchanged() -> None:
    assert group_ids(4, 2) == (2, 0, 4, 1)


def test_a_layout_translates_shards_to_grouping_keys_and_back() -> None:
    layout = Layout(shards=32, partitions=5, levels=1)
    assert [layout.shard_of(layout.group_of(shard)) for shard in range(32)] == list(range(32))


@pytest.mark.spark
def test_spark_places_each_shard_by_its_grouping_key(spark: SparkSession) -> None:
    ids = group_ids(32, 5)
    frame = spark.createDataFrame([(group,) for group in ids], "shard int")
    rows = (
        frame.select("shard", F.hash("shard").alias("hash"))
        .repartition(5, "shard")
        .select("shard", "hash", F.spark_partition_id().alias("partition"))
        .collect()
    )
    assert {row.shard: row.hash for row in rows} == {group: spark_hash(group) for group in ids}
    assert {row.shard: row.partition for row in rows} == {
        group: shard % 5 for shard, group in enumerate(ids)
    }
