"""Joins of keyed streams outside of windows: kept values, and times of emission."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
from flow import Stream
from flow.testing import TestDriver
from tests.support.one_stream import driver

Event = tuple[str, Any]


def joining(sides: int = 2, **modes: Any) -> TestDriver:
    """A join of inputs called ``A``, ``B``, … ."""
    return driver(lambda *inputs: op.join("join", *inputs, **modes), *"ABC"[:sides])


def joined(events: list[Event], sides: int = 2, **modes: Any) -> list[list[Any]]:
    """Return the rows that each value of one key emits, and then those of the end of input."""
    made = []
    with joining(sides, **modes) as t:
        for side, value in events:
            before = len(t.received("out"))
            t.send(side, [("k", value)])
            made.append([row for _, row in t.received("out")[before:]])
        before = len(t.received("out"))
        t.end()
        made.append([row for _, row in t.received("out")[before:]])
    return made


#  A   1       2               3
#  B       x       y
A1_Bx_A2_By_A3: list[Event] = [("A", 1), ("B", "x"), ("A", 2), ("B", "y"), ("A", 3)]


#  A   1   2       3
#  B           x
A1_A2_Bx_A3: list[Event] = [("A", 1), ("A", 2), ("B", "x"), ("A", 3)]


def rows_of(*made: str) -> list[list[Any]]:
    """Return the rows that each event makes, from texts such as "1x 1-": a dash is no value."""
    values: dict[str, Any] = {"-": None, "1": 1, "2": 2}
    return [[tuple(values.get(one, one) for one in row) for row in rows.split()] for rows in made]


TWO_SIDES: list[tuple[str, list[Event], list[list[Any]]]] = [
    ("first", A1_Bx_A2_By_A3, rows_of("", "1x", "", "2y", "", "")),
    ("last", A1_Bx_A2_By_A3, rows_of("", "1x", "", "2y", "", "")),
    ("product", A1_Bx_A2_By_A3, rows_of("", "1x", "", "2y", "", "")),
    ("first", A1_A2_Bx_A3, rows_of("", "", "1x", "", "")),
    ("last", A1_A2_Bx_A3, rows_of("", "", "2x", "", "")),
    ("product", A1_A2_Bx_A3, rows_of("", "", "1x 2x", "", "")),
]


@pytest.mark.parametrize(("mode", "events", "expected"), TWO_SIDES)
def test_two_sides(mode: str, events: list[Event], expected: list[list[Any]]) -> None:
    assert joined(events, insert_mode=mode, emit_mode="complete") == expected


#  A   1               2
#  B       x
#  C           p   q
A1_Bx_Cp_Cq_A2: list[Event] = [("A", 1), ("B", "x"), ("C", "p"), ("C", "q"), ("A", 2)]

THREE_SIDES: list[tuple[str, str, list[list[Any]]]] = [
    ("last", "complete", rows_of("", "", "1xp", "", "", "")),
    ("first", "final", rows_of("", "", "", "", "", "1xp")),
    ("last", "final", rows_of("", "", "", "", "", "2xq")),
    ("product", "final", rows_of("", "", "", "", "", "1xp 1xq 2xp 2xq")),
    ("first", "running", rows_of("1--", "1x-", "1xp", "1xp", "1xp", "")),
    ("last", "running", rows_of("1--", "1x-", "1xp", "1xq", "2xq", "")),
    ("product", "running", rows_of("1--", "1x-", "1xp", "1xp 1xq", "1xp 1xq 2xp 2xq", "")),
]


@pytest.mark.parametrize(("insert_mode", "emit_mode", "expected"), THREE_SIDES)
def test_three_sides(insert_mode: str, emit_mode: str, expected: list[list[Any]]) -> None:
    assert joined(A1_Bx_Cp_Cq_A2, sides=3, insert_mode=insert_mode, emit_mode=emit_mode) == expected


def test_unless_told_otherwise_a_join_keeps_the_last_and_emits_when_complete() -> None:
    assert joined(A1_A2_Bx_A3) == [[], [], [(2, "x")], [], []]


def test_at_the_end_a_side_without_a_value_is_none() -> None:
    assert joined([("B", "x")], emit_mode="final") == [[], [(None, "x")]]


def test_none_is_a_value_like_any_other() -> None:
    assert joined([("A", None), ("B", "x")], emit_mode="complete") == [[], [(None, "x")], []]
    assert joined([("A", None), ("A", 1)], insert_mode="first", emit_mode="final") == [
        [],
        [],
        [(None, None)],
    ]


def test_a_complete_join_forgets_the_key_and_a_running_one_keeps_it() -> None:
    for emit_mode, kept in (("complete", 0), ("running", 1)):
        with joining(emit_mode=emit_mode) as t:
            t.send_all({"A": [("k", 1)], "B": [("k", "x")]})
            assert t.stats.gauges["join", "keys"] == kept


def test_a_final_join_emits_once_and_starts_without_state() -> None:
    with joining(emit_mode="final") as t:
        t.send("A", [("k", 1)])
        t.end()
        t.send("B", [("k", "x")])
        t.end()
        assert t.received("out") == [("k", (1, None)), ("k", (None, "x"))]


def test_within_an_epoch_sides_interleave_first_of_each_then_second_of_each() -> None:
    with joining(emit_mode="running") as t:
        t.send_all({"A": [("k", 1), ("k", 2)], "B": [("k", "x"), ("k", "y")]})
        assert [row for _, row in t.received("out")] == [(1, None), (1, "x"), (2, "x"), (2, "y")]


def test_what_a_side_has_is_kept_over_a_restart() -> None:
    with joining(insert_mode="product") as t:
        t.send("A", [("k", 1), ("k", 2)])
        t.restart(after="1d")
        t.send("B", [("k", "x")])
        assert t.received("out") == [("k", (1, "x")), ("k", (2, "x"))]


def test_records_are_joined_as_dicts() -> None:
    def by_id(a: Stream[Any], b: Stream[Any]) -> Stream[Any]:
        return op.join("join", op.key_on("a by id", a, "id"), op.key_on("b by id", b, "id"))

    with driver(by_id, "A", "B") as t:
        t.send_all(
            {
                "A": pa.RecordBatch.from_pylist([{"id": "k", "n": 1}]),
                "B": pa.RecordBatch.from_pylist([{"id": "k", "name": "x"}]),
            }
        )
        assert t.received("out") == [("k", ({"id": "k", "n": 1}, {"id": "k", "name": "x"}))]
