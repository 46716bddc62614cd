"""Retained records in segments: columns, slices of them, and records again."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.columns.record_batches import SidedRecords
from flow_windowing.columnar.values.buffered_values import encoder_of, restored_records
from flow_windowing.columnar.values.encoding import (
    decode_lazy,
    decode_values,
    encode_values,
    lazy_values,
    slice_values,
)
from flow_windowing.columnar.values.records import plain_records

TYPES = {
    "whole": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "real": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=3)),
    "yes": (pa.bool_(), st.booleans()),
    "at": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
}
NAMES = list(TYPES)
rows = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in TYPES.items()})
sides = st.lists(st.tuples(st.sampled_from([0, 1]), rows), min_size=1, max_size=8)


def records_of(drawn: list[tuple[int, dict[str, Any]]], columns: tuple[list[str], ...]) -> Any:
    """Return values of two sides, each with columns of its own."""
    chunks = []
    for side, row in drawn:
        schema = pa.schema([(name, TYPES[name][0]) for name in columns[side]])
        chunks.append((side, pa.RecordBatch.from_pylist([row], schema=schema)))
    return SidedRecords.of(2, chunks)


@given(sides, st.sampled_from([(NAMES, NAMES), (NAMES[:3], NAMES[2:])]), st.data())
def test_slices_are_decoded_to_the_values_and_restored_as_records(
    drawn: list[tuple[int, dict[str, Any]]], columns: tuple[list[str], ...], data: Any
) -> None:
    values = records_of(drawn, columns)
    expected = values.records()
    cut = data.draw(st.integers(0, len(values)))
    encode = encoder_of(values)
    contents = [encode(0, cut), encode(cut, len(values))]
    assert [one for content in contents for one in decode_values(content)] == expected
    lazy = [one for content in contents for one in lazy_values(content)]
    assert decode_lazy(lazy) == expected
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(values) - cut)] * 2)))
    part = slice_values(contents[1], slice(begin, end))
    assert decode_values(part) == expected[cut:][begin:end]
    restored = restored_records(contents, values.sides)
    if restored is not None:  # A column of nulls alone may have another type in one segment.
        assert list(restored) == list(zip(values.sides.tolist(), expected, strict=True))


def test_records_without_nulls_are_restored_as_records() -> None:
    drawn = [(side, {"whole": side, "real": 0.5, "text": "a"}) for side in (0, 1, 1, 0)]
    for columns in (["whole", "text"], ["whole", "text"]), (["whole", "text"], ["real"]):
        values = records_of(drawn, columns)
        encode = encoder_of(values)
        restored = restored_records([encode(0, 3), encode(3, 4), encode(4, 4)], values.sides)
        assert restored is not None
        assert list(restored) == list(values)
        assert not isinstance(encode(0, 4), list)


def test_slices_without_values_of_a_side_are_restored_as_records() -> None:
    columns = ["whole"], ["text"]
    whole, text = {"whole": 1}, {"text": "a"}
    # A null adds a mask, so the texts of the two segments differ in layout.
    segments = [
        encoder_of(records_of([(0, whole), (1, right)], columns))(0, 2)
        for right in (text, {"text": None})
    ]
    contents = [slice_values(one, slice(0, 1)) for one in segments]
    restored = restored_records(contents, np.array([0, 0]))
    assert restored is not None
    assert list(restored) == [(0, whole), (0, whole)]


def test_objects_are_not_restored_as_records() -> None:
    some = np.array([0, 1])
    for values in ([{1, 2}, {3}], [(1, "a"), (2, "b")], [{"a": "\ud800"}, {"a": "b"}]):
        assert restored_records([encode_values(values)], some) is None


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None], pa.int8()), [1, None]),
        (pa.array([0.1], pa.float32()), [float(np.float32(0.1))]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.array(["a"], pa.large_string()), ["a"]),
        (pa.array([0], pa.timestamp("us", "UTC")), [datetime(1970, 1, 1, tzinfo=UTC)]),
    ],
)
def test_columns_become_plain_without_changing_their_values(
    column: pa.Array, expected: list[Any]
) -> None:
    values = SidedRecords.of(2, [(1, pa.RecordBatch.from_arrays([column], names=["a"]))])
    plain = plain_records(values)
    assert plain is not None
    assert plain.records() == [{"a": value} for value in expected]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1 << 63], pa.uint64()),
        pa.array([1], pa.timestamp("us")),
        pa.array([1], pa.timestamp("ns", "UTC")),
        pa.array([1 << 62], pa.timestamp("us", "UTC")),
        pa.array([[1]]),
        pa.array([{"b": 1}]),
        pa.nulls(1),
    ],
)
def test_other_columns_are_not_plain(column: pa.Array) -> None:
    batch = pa.RecordBatch.from_arrays([column], names=["a"])
    assert plain_records(SidedRecords.of(2, [(0, batch)])) is None


def test_a_number_that_is_not_one_stays() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([math.nan])], names=["a"])
    values = SidedRecords.of(2, [(0, batch)])
    (restored,) = decode_values(encoder_of(values)(0, 1))
    assert math.isnan(restored["a"])
