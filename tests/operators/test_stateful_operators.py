"""Stateful operators: maps, final results and lists."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import flow.operators as op
from flow.testing import TestDriver, run_once
from tests.support.one_stream import Build, a_flow, driver, step

# --- maps with a state ------------------------------------------------------------------------


def test_stateful_flat_map_emits_any_number_of_values() -> None:
    def since_last(last: int | None, value: int) -> tuple[int, range]:
        return value, range(last or 0, value)

    items = [("k", 2), ("k", 2), ("k", 4)]
    assert run_once(items, lambda s: op.stateful_flat_map("gap", s, since_last)) == [
        ("k", 0),
        ("k", 1),
        ("k", 2),
        ("k", 3),
    ]


# --- final figures ----------------------------------------------------------------------------

SCORES = [("a", "bb"), ("a", "c"), ("b", "x"), ("a", "dd"), ("a", "e")]

FINALS: dict[str, tuple[Build, list[Any]]] = {
    "fold_final": (
        step(op.fold_final, list, lambda kept, v: [*kept, v]),
        [("a", ["bb", "c", "dd", "e"]), ("b", ["x"])],
    ),
    "reduce_final": (step(op.reduce_final, lambda a, b: a + b), [("a", "bbcdde"), ("b", "x")]),
    "count_final": (step(op.count_final, lambda pair: pair[0]), [("a", 4), ("b", 1)]),
    "max_final": (step(op.max_final), [("a", "e"), ("b", "x")]),
    "max_final by length": (step(op.max_final, by=len), [("a", "bb"), ("b", "x")]),
    "min_final": (step(op.min_final), [("a", "bb"), ("b", "x")]),
    "min_final by length": (step(op.min_final, by=len), [("a", "c"), ("b", "x")]),
}


@pytest.mark.parametrize(("build", "expected"), FINALS.values(), ids=FINALS)
def test_a_final_step_emits_each_key_once_at_the_end(build: Build, expected: list[Any]) -> None:
    """Of equals, ``max_final`` and ``min_final`` keep the first. Both keys are of one shard."""
    with TestDriver(a_flow(build), shards=1) as t:
        t.send("in", SCORES[:2])
        t.send("in", SCORES[2:])
        assert t.received("out") == []
        t.end()
        assert sorted(t.received("out")) == expected
        assert t.stats.gauges["step", "keys"] == 0


@pytest.mark.parametrize("final", [op.max_final, op.min_final])
def test_of_values_that_are_equal_the_first_is_kept(final: Any) -> None:
    ((_, kept),) = run_once([("k", 1), ("k", 1.0), ("k", True)], lambda s: final("step", s))
    assert type(kept) is int


def test_a_final_step_starts_without_state_after_the_end() -> None:
    with driver(lambda s: op.reduce_final("sum", s, lambda a, b: a + b)) as t:
        for value in (1, 5):
            t.send("in", [("a", value)])
            t.end()
        assert t.received("out") == [("a", 1), ("a", 5)]


def test_a_reduction_that_reaches_none_goes_on_from_none() -> None:
    def drop_equal(kept: int | None, value: int) -> int | None:
        return None if kept == value else value

    items = [("k", 1), ("k", 1), ("k", 2)]
    assert run_once(items[:2], lambda s: op.reduce_final("step", s, drop_equal)) == [("k", None)]
    assert run_once(items, lambda s: op.reduce_final("step", s, drop_equal)) == [("k", 2)]


def test_count_final_pairs_items_in_a_step_of_its_own() -> None:
    flow = a_flow(lambda s: op.count_final("n", s, lambda x: x))
    assert [step.step_id for step in flow.steps] == ["in", "n.key", "n", "out"]


# --- collect ----------------------------------------------------------------------------------


def collecting(timeout: Any) -> TestDriver:
    return driver(lambda s: op.collect("lists", s, timeout, 3))


def test_collect_with_no_timeout_to_speak_of_emits_at_the_end_of_the_epoch() -> None:
    with collecting(timeout="0s") as t:
        t.send("in", [("k", 1), ("k", 2)])
        assert t.received("out") == [("k", [1, 2])]


def test_collect_can_wait_for_ever() -> None:
    with collecting(timeout=timedelta.max) as t:
        t.send("in", [("k", 1)])
        t.advance("3650d")
        assert t.received("out") == []
        t.end()
        assert t.received("out") == [("k", [1])]
        assert t.stats.gauges["lists", "keys"] == 0
