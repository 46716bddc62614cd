"""Maps with a state that expires by event time: bounds, order, an oracle, and refused arguments."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.errors import FlowBuildError, FlowError, StepError
from flow.testing import TestDriver, TestingSink, TestingSource
from tests.support.sampling import sampled

TTL = 4
WAIT = 2

Values = list[tuple[str, int, int]]
"""Values as key, amount and seconds; an amount of zero forgets the key."""


def add_up(total: int | None, value: tuple[int, float]) -> tuple[int | None, int]:
    amount = value[0]
    return (None if amount == 0 else (total or 0) + amount), (total or 0) + amount


def a_driver(
    mapper: Callable[[Any, Any], Any] = add_up, wait: str = "0s", **options: Any
) -> TestDriver:
    graph = Dataflow("by_time")
    clock: win.EventClock[Any] = win.EventClock(lambda value: value[1], wait)
    stream = op.input("in", graph, TestingSource([]))
    out = win.stateful_map("step", stream, clock, mapper, **{"ttl": "10s", **options})
    for name, port in out._asdict().items():
        op.output(name, port, TestingSink([]))
    return TestDriver(graph, now=0)


@pytest.mark.parametrize(("at", "total"), [(9.999999, 3), (10, 2), (10.000001, 2)])
def test_state_expires_at_exactly_its_time_to_live(at: float, total: int) -> None:
    t = a_driver()
    t.send("in", [("k", (1, 0)), ("k", (2, at))])
    assert t.received("down") == [("k", 1), ("k", total)]
    assert t.received("expired") == ([("k", 1)] if total == 2 else [])


def test_a_new_state_after_none_counts_from_the_value_that_made_it() -> None:
    #  0 s: 1   6 s: forgotten   8 s: 2   17 s: within 10 s of the value that made the state
    t = a_driver(ttl_from="first")
    t.send("in", [("k", (1, 0)), ("k", (0, 6)), ("k", (2, 8)), ("k", (4, 17)), ("k", (8, 18))])
    assert [total for _, total in t.received("down")] == [1, 1, 2, 6, 8]
    assert t.received("expired") == [("k", 6)]


def test_an_emitted_state_does_not_change_with_later_values() -> None:
    def append(seen: list[Any] | None, value: Any) -> tuple[list[Any], list[Any]]:
        seen = seen or []
        seen.append(value[0])
        return seen, seen

    t = a_driver(append)
    t.send("in", [("k", (1, 0)), ("k", (2, 1))])
    assert t.received("down") == [("k", [1]), ("k", [1, 2])]


def test_an_error_names_the_value_that_entered_later() -> None:
    def divide(_: Any, value: Any) -> Any:
        return None, 1 / value[0]

    t = a_driver(divide, wait="5s")
    t.send("in", [("k", (0, 3))])
    with pytest.raises(StepError, match="ZeroDivisionError") as caught:
        t.send("in", [("k", (1, 9))])
    assert (caught.value.step_id, caught.value.key, caught.value.item) == ("step", "k", "(0, 3)")


def test_a_key_that_has_expired_leaves_nothing_behind() -> None:
    t = a_driver()
    t.send("in", [("k", (1, 0))])
    assert t.stats.gauges["step", "keys"] == 1
    t.advance("10s")
    assert t.received("expired") == [("k", 1)]
    assert t.stats.gauges["step", "keys"] == 0
    assert t.stats.gauges["step", "state_bytes"] == 0


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no time": ({"ttl": "0s"}, "ttl must be positive, got '0s'"),
    "another start": ({"ttl_from": "last"}, "ttl_from must be 'write' or 'first'"),
}


@pytest.mark.parametrize(("options", "problem"), WRONG.values(), ids=WRONG)
def test_wrong_options(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(FlowBuildError, match=f"step 'step': {problem}"):
        a_driver(**options)


@pytest.mark.parametrize("operator", [win.stateful_map, win.stateful_flat_map])
def test_wrong_clock_and_mapper(operator: Any) -> None:
    stream = op.input("in", Dataflow("wrong"), TestingSource([]))
    with pytest.raises(FlowError, match="step 'step': clock must be a Clock"):
        operator("step", stream, "at", add_up, ttl="1s")
    with pytest.raises(FlowError, match="step 'step': mapper must be"):
        operator("step", stream, win.SystemClock(), 5, ttl="1s")


def by_definition(values: Values, ttl_from: str) -> dict[str, tuple[list[int], list[int], int]]:
    """Return totals, expired totals and the number of late values of each key."""
    found: dict[str, tuple[list[int], list[int], int]] = {}
    for key in {key for key, _, _ in values}:
        greatest, on_time, late = float("-inf"), list[tuple[int, int]](), 0
        for _, amount, at in (one for one in values if one[0] == key):
            greatest = max(greatest, at - WAIT)
            if at < greatest:
                late += 1
            else:
                on_time.append((at, amount))
        found[key] = (*totals(sorted(on_time, key=lambda one: one[0]), ttl_from), late)
    return found


def totals(values: list[tuple[int, int]], ttl_from: str) -> tuple[list[int], list[int]]:
    """Return totals and expired totals of values in order of time."""
    state: int | None = None
    since = 0
    down, expired = list[int](), list[int]()
    for at, amount in values:
        if state is not None and at >= since + TTL:
            expired.append(state)
            state = None
        if state is None or ttl_from == "write":
            since = at
        state, total = add_up(state, (amount, at))
        down.append(total)
    return down, expired + ([] if state is None else [state])


VALUES = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 20)), max_size=12
)


@sampled(400, by_default=15)
@given(VALUES, st.lists(st.integers(0, 12), max_size=4), st.sampled_from(["write", "first"]))
def test_totals_are_those_of_the_definition_for_any_cut(
    values: Values, cuts: list[int], ttl_from: str
) -> None:
    t = a_driver(wait=f"{WAIT}s", ttl=f"{TTL}s", ttl_from=ttl_from)
    # Time that stands still, at the start of the clock, moves no watermark.
    bounds = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    for first, last in pairwise(bounds):
        t.send("in", [(key, (amount, at)) for key, amount, at in values[first:last]])
    t.end()
    expected = by_definition(values, ttl_from)
    for key in expected:
        received = tuple(
            [value for found, value in t.received(name) if found == key]
            for name in ("down", "expired", "late")
        )
        assert (*received[:2], len(received[2])) == expected[key]
