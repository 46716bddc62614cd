"""Round trip of plain values through columns, with their types."""

from __future__ import annotations

import pickle
from collections import namedtuple
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.columns.plain_columns import PlainColumns
from tests.support.sampling import sampled

times = st.datetimes(timezones=st.just(UTC)).map(lambda time: time.replace(fold=0))
fields: dict[type, st.SearchStrategy[Any]] = {
    datetime: times,
    float: st.floats(),
    int: st.integers(-(2**63), 2**63 - 1),
    bool: st.booleans(),
    str: st.text(st.characters(exclude_categories=[])),  # half of a pair of surrogates, too
}


@st.composite
def plain_values(draw: st.DrawFn) -> list[Any]:
    """Values of one plain shape."""
    kinds = draw(st.lists(st.sampled_from(list(fields)), min_size=1, max_size=4))
    chosen_fields = [
        st.none() | fields[kind] if draw(st.booleans()) else fields[kind] for kind in kinds
    ]
    rows = st.tuples(*chosen_fields)
    match draw(st.sampled_from(["alone", "tuple", "dict"])):
        case "alone":
            return draw(st.lists(chosen_fields[0], min_size=1, max_size=8))
        case "tuple":
            return draw(st.lists(rows, min_size=1, max_size=8))
        case _:
            names = draw(st.lists(st.text(), min_size=len(kinds), max_size=len(kinds), unique=True))
            made = rows.map(lambda row: dict(zip(names, row, strict=True)))
            return draw(st.lists(made, min_size=1, max_size=8))


def exact_texts(values: list[Any]) -> list[str]:
    """Return texts that tell equal values apart: 1 and True, 0.0 and -0.0, orders of keys."""
    return [repr(value) for value in values]


def column_of(values: list[Any]) -> PlainColumns:
    columns = PlainColumns.of(values)
    assert columns is not None
    return columns


@sampled(100, by_default=40)
@given(plain_values())
def test_values_survive_a_round_trip(values: list[Any]) -> None:
    columns = column_of(values)
    assert exact_texts(columns.values()) == exact_texts(values)
    assert exact_texts([columns.value(row) for row in range(len(values))]) == exact_texts(values)
    again = PlainColumns.decoded(pickle.loads(pickle.dumps(columns.encoded(), 5)))
    assert exact_texts(again.values()) == exact_texts(values)
    assert len(again) == len(values)


@sampled(100, by_default=40)
@given(plain_values(), st.data())
def test_columns_can_be_selected_and_concatenated(values: list[Any], data: st.DataObject) -> None:
    columns = column_of(values)
    rows = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=6))
    selected = columns.take(np.array(rows, np.int64))
    assert exact_texts(selected.values()) == exact_texts([values[row] for row in rows])
    joined = columns.concatenate([selected, columns])
    assert exact_texts(joined.values()) == exact_texts(
        [*values, *(values[row] for row in rows), *values]
    )


class Day(datetime):
    """A datetime of a user-written class."""


Pair = namedtuple("Pair", ["a", "b"])
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1, 1.0],
        [None, 1, 1.0],
        [None, b"bytes"],
        [True, 1],
        [(1,), (1, 2)],
        [()],
        [{}],
        [{"a": 1}, {"b": 1}],
        [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
        [{1: 2}],
        [(1, [2])],
        [((1, 2), 3)],
        [Pair(1, 2)],
        [2**63],
        [Day(2024, 5, 1, tzinfo=UTC)],
        [datetime(2024, 5, 1)],  # noqa: DTZ001  (a naive one is meant)
        [NOON, NOON.astimezone(timezone(timedelta(hours=2)))],
        [NOON.replace(tzinfo=timezone(timedelta(0), "GMT"))],
        [NOON.replace(fold=1)],
        [date(2024, 5, 1)],
        [b"bytes"],
        [tuple(range(17))],
    ],
    ids=repr,
)
def test_other_values_have_no_plain_columns(values: list[Any]) -> None:
    assert PlainColumns.of(values) is None


def test_missing_values_are_none() -> None:
    assert column_of([None, 1]).letters == "?i"
    assert column_of([None]).values() == [None]
    assert column_of([{"a": None, "b": NOON}, {"a": 1, "b": NOON}]).letters == "?im"


def test_only_columns_of_one_shape_have_the_same_layout() -> None:
    pairs = column_of([(1, 2.0)])
    assert pairs.has_layout_of(column_of([(3, 4.0)]))
    assert not pairs.has_layout_of(column_of([(3, 4)]))
    assert not column_of([1]).has_layout_of(column_of([(1,)]))
    assert not column_of([{"a": 1}]).has_layout_of(column_of([{"b": 1}]))
