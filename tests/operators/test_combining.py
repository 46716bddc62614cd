"""Stateless operators that windows over all keys are made of."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flow.columns.chunks import Chunk, KeyedRecords, Pairs
from flow.errors import StepError
from flow.keyed.logic import RejectedValue
from flow.operators.stateless import Bucket, Combine
from tests.support.one_stream import made

KEYS = [f"user-{number}" for number in range(2_000)]


def one_of(kind: Any, chunk: Chunk) -> Any:
    return made(kind, chunk)[0]


def pairs(keys: list[str]) -> Pairs:
    return Pairs(keys, list(range(len(keys))), np.arange(len(keys)))


def keyed_records(keys: pa.Array) -> KeyedRecords:
    batch = pa.RecordBatch.from_pydict({"n": list(range(len(keys)))})
    return KeyedRecords(keys, batch, np.arange(len(keys)))


def test_a_key_has_the_same_bucket_in_every_layout_and_version() -> None:
    plain, coded = pa.array(KEYS), pa.array(KEYS).dictionary_encode()
    buckets = one_of(Bucket(64), pairs(KEYS)).keys
    assert buckets[:4] == ["45", "48", "4", "11"]
    assert one_of(Bucket(64), keyed_records(plain)).keys.to_pylist() == buckets
    assert one_of(Bucket(64), keyed_records(coded)).keys.to_pylist() == buckets


def test_buckets_are_of_about_the_same_size() -> None:
    sizes = Counter(one_of(Bucket(16), pairs(KEYS)).keys)
    assert len(sizes) == 16
    assert max(sizes.values()) < 2 * min(sizes.values())


def test_records_stay_in_columns() -> None:
    bucketed = one_of(Bucket(4), keyed_records(pa.array(["a", "b"])))
    assert isinstance(bucketed, KeyedRecords)
    assert bucketed.batch.to_pylist() == [{"n": 0}, {"n": 1}]


def total(keys: Any, values: list[int]) -> tuple[list[str], list[int]]:
    return ["all"], [sum(values)]


def test_combined_items_have_the_position_of_the_last_item() -> None:
    combined = one_of(Combine(total), pairs(["a", "b", "c"]))
    assert (combined.keys, combined.values, combined.pos.tolist()) == (["all"], [3], [2])
    assert len(one_of(Combine(total), pairs([]))) == 0


def test_rows_are_filtered_while_they_are_columns() -> None:
    combine = Combine(
        lambda keys, values: (list(keys), values), lambda keys, batch: pa.array([2, 0])
    )
    combined = one_of(combine, keyed_records(pa.array(["a", "b", "c"])))
    assert (combined.keys, combined.values) == (["c", "a"], [{"n": 2}, {"n": 0}])
    assert combined.pos.tolist() == [2, 2]


def test_a_value_that_the_combiner_rejects_is_in_the_error() -> None:
    def reject(keys: Any, values: list[int]) -> Any:
        raise RejectedValue(values[1], "cannot be combined")

    with pytest.raises(StepError, match="step 'step': cannot be combined") as caught:
        one_of(Combine(reject), pairs(["a", "b"]))
    assert "item: 1" in str(caught.value)
