"""Values of windows as segments hold them, plain or not, read or not yet."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow_windowing.columnar.values.written import (
    Pickled,
    Stored,
    cut,
    held,
    in_columns,
    known,
    read,
    written,
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
def test_values_of_any_history_come_back_as_they_were(parts: list[list[Any]], random: Any) -> None:
    """Some are fresh, some have been written in columns or as pickles, and all are mixed."""
    values = [value for part in parts for value in part]
    mixed = list(
        zip(values, [one for part in parts for one in as_written(part, random)], strict=True)
    )
    random.shuffle(mixed)
    expected, found = [one for one, _ in mixed], [one for _, one in mixed]
    assert known(found) == expected
    single = [one.value() if isinstance(one, (Pickled, Stored)) else one for one in found]
    assert single == expected
    assert read(written(found)) == expected
    assert known(held(written(found))) == expected


def as_written(part: list[Any], random: Any) -> list[Any]:
    """Values as they are, or as they were written."""
    return held(written(part)) if random.random() < 0.6 else part


def test_plain_values_are_written_in_columns_and_others_as_pickles() -> None:
    assert isinstance(written(PAIRS), tuple)
    assert written(SETS) == [pickle.dumps(one, 5) for one in SETS]
    assert [type(one) for one in (*held(written(PAIRS[:1])), *held(written(SETS[:1])))] == [
        Stored,
        Pickled,
    ]


def test_what_has_not_been_read_is_written_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, sets = held(written(PAIRS)), held(written(SETS))
    monkeypatch.setattr("flow_windowing.columnar.values.written.pickle.loads", None)
    monkeypatch.setattr("flow_windowing.columnar.values.written.pickle.dumps", None)
    monkeypatch.setattr("flow.columns.plain_columns.PlainColumns.values", None)
    monkeypatch.setattr("flow.columns.plain_columns.PlainColumns.value", None)
    assert written([pairs[3], pairs[1]]) == written([PAIRS[3], PAIRS[1]])
    assert written(sets[1:3]) == [sets[1].content, sets[2].content]


def test_they_stay_in_order_among_new_ones() -> None:
    old = held(written(PAIRS))
    columns = in_columns([(7, 7.0), old[2], (8, 8.0), old[0]])
    assert columns is not None
    assert columns.values() == [(7, 7.0), (2, 2.0), (8, 8.0), (0, 0.0)]


def test_values_some_of_which_are_not_there_join_others() -> None:
    old = held(written([(1, None), (2, 2.0)]))
    columns = in_columns([old[0], (3, 3.0)])
    assert columns is not None
    assert columns.values() == [(1, None), (3, 3.0)]
    assert in_columns([old[0], "another shape"]) is None


@pytest.mark.parametrize("values", [PAIRS, SETS], ids=["columns", "pickles"])
def test_some_are_cut_out(values: list[Any]) -> None:
    assert read(cut(written(values), slice(1, 3))) == values[1:3]
    assert read(cut(written(values), slice(2, 2))) == []


def test_a_reader_of_ones_own_reads_the_pickles() -> None:
    assert read(written(SETS), len) == [len(pickle.dumps(one, 5)) for one in SETS]
