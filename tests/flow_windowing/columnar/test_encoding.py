"""Encoding of window values in segments: columns, pickles, and values not read yet."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow_windowing.columnar.values.encoding import (
    ColumnValue,
    PickledValue,
    decode_lazy,
    decode_values,
    encode_values,
    lazy_values,
    slice_values,
    to_plain_columns,
)

PAIRS = [(number, float(number)) for number in range(5)]
SETS = [{number} for number in range(5)]

lots = st.lists(
    st.one_of(
        st.lists(st.tuples(st.integers(0, 9), st.floats(0, 1)), max_size=4),
        st.lists(st.integers(0, 9), max_size=4),
        st.lists(st.sets(st.integers(0, 9)), max_size=4),
    ),
    max_size=4,
)


@given(lots, st.randoms())
def test_values_survive_a_round_trip_in_any_form(parts: list[list[Any]], random: Any) -> None:
    """Some are fresh, some have been written in columns or as pickles, and all are mixed."""
    values = [value for part in parts for value in part]
    mixed = list(
        zip(values, [one for part in parts for one in in_any_form(part, random)], strict=True)
    )
    random.shuffle(mixed)
    expected, found = [one for one, _ in mixed], [one for _, one in mixed]
    assert decode_lazy(found) == expected
    single = [one.value() if isinstance(one, (PickledValue, ColumnValue)) else one for one in found]
    assert single == expected
    assert decode_values(encode_values(found)) == expected
    assert decode_lazy(lazy_values(encode_values(found))) == expected


def in_any_form(part: list[Any], random: Any) -> list[Any]:
    """Values as they are, or as they were written."""
    return lazy_values(encode_values(part)) if random.random() < 0.6 else part


def test_plain_values_are_written_in_columns_and_others_as_pickles() -> None:
    assert isinstance(encode_values(PAIRS), tuple)
    assert encode_values(SETS) == [pickle.dumps(one, 5) for one in SETS]
    (pair,), (one_set,) = (lazy_values(encode_values(values[:1])) for values in (PAIRS, SETS))
    assert (type(pair), type(one_set)) == (ColumnValue, PickledValue)


def test_unread_values_are_written_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, sets = lazy_values(encode_values(PAIRS)), lazy_values(encode_values(SETS))
    monkeypatch.setattr("flow_windowing.columnar.values.encoding.pickle.loads", None)
    monkeypatch.setattr("flow_windowing.columnar.values.encoding.pickle.dumps", None)
    monkeypatch.setattr("flow.columns.plain_columns.PlainColumns.values", None)
    monkeypatch.setattr("flow.columns.plain_columns.PlainColumns.value", None)
    assert encode_values([pairs[3], pairs[1]]) == encode_values([PAIRS[3], PAIRS[1]])
    assert encode_values(sets[1:3]) == [sets[1].content, sets[2].content]


def test_old_values_keep_their_order_among_new_ones() -> None:
    old = lazy_values(encode_values(PAIRS))
    columns = to_plain_columns([(7, 7.0), old[2], (8, 8.0), old[0]])
    assert columns is not None
    assert columns.values() == [(7, 7.0), (2, 2.0), (8, 8.0), (0, 0.0)]


def test_values_with_missing_fields_join_columns() -> None:
    old = lazy_values(encode_values([(1, None), (2, 2.0)]))
    columns = to_plain_columns([old[0], (3, 3.0)])
    assert columns is not None
    assert columns.values() == [(1, None), (3, 3.0)]
    assert to_plain_columns([old[0], "another shape"]) is None


@pytest.mark.parametrize("values", [PAIRS, SETS], ids=["columns", "pickles"])
def test_encoded_values_can_be_sliced(values: list[Any]) -> None:
    assert decode_values(slice_values(encode_values(values), slice(1, 3))) == values[1:3]
    assert decode_values(slice_values(encode_values(values), slice(2, 2))) == []


def test_a_given_reader_reads_the_pickles() -> None:
    assert decode_values(encode_values(SETS), len) == [len(pickle.dumps(one, 5)) for one in SETS]
