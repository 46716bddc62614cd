"""Stateful operators: maps, final results and lists."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import flow.operators as op
from flow.testing import TestDriver, run_once
from tests.support.one_stream import Build, a_flow, driver, step

# --- maps with a state ------------------------------------------------------------------------


def running_total(total: int | None, value: int) -> tuple[int | None, int]:
    total = (total or 0) + value
    return (None if total >= 10 else total), total


def test_stateful_map_forgets_a_key_whose_state_becomes_none() -> None:
    with driver(lambda s: op.stateful_map("sum", s, running_total)) as t:
        t.send("in", [("a", 4), ("a", 6), ("a", 1)])
        t.send("in", [("a", 2), ("a", 9)])
        assert t.received("out") == [("a", 4), ("a", 10), ("a", 1), ("a", 3), ("a", 12)]
        assert t.stats.gauges["sum", "keys"] == 0


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


def test_a_final_step_starts_afresh_after_the_end() -> None:
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


def collecting(timeout: Any = "10m", max_size: int = 3) -> TestDriver:
    return driver(lambda s: op.collect("lists", s, timeout, max_size))


def test_collect_emits_a_list_as_soon_as_it_is_full_also_over_several_epochs() -> None:
    with collecting() as t:
        t.send("in", [("k", n) for n in range(7)])
        assert t.received("out") == [("k", [0, 1, 2]), ("k", [3, 4, 5])]
        t.send("in", [("k", 7), ("l", 9)])
        t.send("in", [("k", 8)])
        assert t.received("out")[2:] == [("k", [6, 7, 8])]


#  now     10:00   10:05   10:10   10:15
#  value   1       2
#  due     ├─────────────→ [1, 2]  nothing
def test_collect_emits_a_list_when_its_first_value_has_waited_long_enough() -> None:
    with collecting() as t:
        t.send("in", [("k", 1)])
        t.advance("5m")
        t.send("in", [("k", 2)])
        t.advance("5m")
        assert t.received("out") == [("k", [1, 2])]
        t.advance("5m")
        assert t.received("out") == [("k", [1, 2])]


#  now     10:00   10:10 (late epoch)
#  value   1       2
#  due     ├─────→ [1], before 2
def test_collect_emits_what_is_due_before_it_takes_what_comes_later() -> None:
    with collecting() as t:
        t.send("in", [("k", 1)])
        t.restart(after="10m")
        t.send("in", [("k", 2)])
        assert t.received("out") == [("k", [1])]
        t.advance("10m")
        assert t.received("out") == [("k", [1]), ("k", [2])]


def test_collect_waits_anew_from_the_first_value_after_a_full_list() -> None:
    with collecting(max_size=2) as t:
        t.send("in", [("k", 1)])
        t.advance("6m")
        t.send("in", [("k", 2), ("k", 3)])
        t.advance("4m")
        assert t.received("out") == [("k", [1, 2])]
        t.advance("6m")
        assert t.received("out") == [("k", [1, 2]), ("k", [3])]


def test_collect_emits_what_is_left_when_the_input_ends() -> None:
    with collecting() as t:
        t.send("in", [("k", 1), ("l", 2)])
        t.end()
        assert sorted(t.received("out")) == [("k", [1]), ("l", [2])]
        assert t.stats.gauges["lists", "keys"] == 0


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
