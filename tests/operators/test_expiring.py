"""The time to live of the state of maps and joins, and what an epoch of it costs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.errors import FlowBuildError
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key
from tests.support.one_stream import TEN, Build, a_flow, driver
from tests.support.sampling import sampled
from tests.support.segments import count_segments


def running(total: int | None, value: int) -> tuple[int | None, int]:
    """Add up; zero forgets the key."""
    total = (total or 0) + value
    return (None, total) if value == 0 else (total, total)


def running_list(total: int | None, value: int) -> tuple[int | None, list[int]]:
    state, made = running(total, value)
    return state, [made]


MapBuild = Callable[[Any, dict[str, Any]], Any]
MAPS: dict[str, MapBuild] = {
    "stateful_map": lambda s, ttl: op.stateful_map("step", s, running, **ttl),
    "stateful_flat_map": lambda s, ttl: op.stateful_flat_map("step", s, running_list, **ttl),
}


def a_driver(build: Build, inputs: tuple[str, ...] = ("in",), **ttl: Any) -> TestDriver:
    flow = Dataflow("expiring")
    streams = [op.input(name, flow, TestingSource([])) for name in inputs]
    out = build(streams[0] if len(streams) == 1 else streams, ttl)
    op.output("down", out.down, TestingSink([]))
    op.output("expired", out.expired, TestingSink([]))
    return TestDriver(flow, now=TEN)


BOUNDS = [("9.999999s", 3), ("10s", 2), ("10.000001s", 2)]


@pytest.mark.parametrize("build", MAPS.values(), ids=MAPS)
@pytest.mark.parametrize(("after", "total"), BOUNDS)
def test_state_expires_at_exactly_its_time_to_live(build: Build, after: str, total: int) -> None:
    with a_driver(build, ttl="10s") as t:
        t.send("in", [("k", 1)])
        t.send("in", [("k", 2)], after=after)
        assert t.received("down") == [("k", 1), ("k", total)]
        assert t.received("expired") == ([("k", 1)] if total == 2 else [])


@pytest.mark.parametrize("build", MAPS.values(), ids=MAPS)
@pytest.mark.parametrize(("ttl_from", "totals"), [("write", [1, 3, 6]), ("first", [1, 3, 3])])
def test_ttl_counts_from_the_chosen_value(build: Build, ttl_from: str, totals: list[int]) -> None:
    #  0s: 1    6s: 2    12s: 3, 12 s after the first value and 6 s after the last
    with a_driver(build, ttl="10s", ttl_from=ttl_from) as t:
        t.send("in", [("k", 1)])
        t.send("in", [("k", 2)], after="6s")
        t.send("in", [("k", 3)], after="6s")
        assert [total for _, total in t.received("down")] == totals
        t.advance("10s")
        assert t.stats.gauges["step", "keys"] == 0
        assert t.stats.gauges["step", "state_bytes"] == 0
        assert [key for key, _ in t.received("expired")] == ["k"] * (2 - (ttl_from == "write"))


def test_the_state_that_expires_is_emitted_before_the_values_of_the_epoch() -> None:
    with a_driver(MAPS["stateful_map"], ttl="10s") as t:
        t.send("in", [("a", 1), ("b", 2), ("a", 4)])
        t.advance("10s")
        assert sorted(t.take("expired")) == [("a", 5), ("b", 2)]
        t.send("in", [("a", 7)])
        t.end()
        assert t.take("expired") == [], "the end of input expires nothing"


@pytest.mark.parametrize(
    ("before", "after", "expired"), [("10s", "5s", [("k", 1)]), ("5s", "10s", [])]
)
def test_a_changed_ttl_holds_for_restored_state(
    before: str, after: str, expired: list[Any]
) -> None:
    first, second = (a_driver(MAPS["stateful_map"], ttl=ttl) for ttl in (before, after))
    first.send("in", [("k", 1)])
    second._engine._stores = first._engine._stores
    second.advance("5s")
    assert second.received("expired") == expired


def test_a_join_emits_the_sides_of_a_key_that_expires() -> None:
    def joined(sides: Any, ttl: Any) -> Any:
        return op.join("step", *sides, insert_mode="product", **ttl)

    with a_driver(joined, ("left", "right"), ttl="10s") as t:
        t.send_all({"left": [("a", 1), ("b", 2)], "right": [("a", -1)]})
        t.send("left", [("b", 3)])
        assert t.received("down") == [("a", (1, -1))]
        t.send("right", [("b", -2)], after="10s")
        assert t.received("expired") == [("b", (2, None)), ("b", (3, None))]
        assert t.received("down") == [("a", (1, -1))]
        t.advance("10s")
        assert t.received("expired")[2:] == [("b", (None, -2))]
        assert t.stats.gauges["step", "keys"] == 0


def test_without_a_time_to_live_nothing_changes() -> None:
    with driver(lambda s: op.stateful_map("step", s, running)) as t:
        t.send("in", [("k", 1)])
        t.send("in", [("k", 1)], after="1000h")
        assert t.received("out") == [("k", 1), ("k", 2)]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no time": ({"ttl": "0s"}, "ttl must be positive, got '0s'"),
    "another start": ({"ttl": "1s", "ttl_from": "last"}, "ttl_from must be 'write' or 'first'"),
    "a start alone": ({"ttl_from": "first"}, "ttl_from='first' needs a ttl="),
}


@pytest.mark.parametrize("build", MAPS.values(), ids=MAPS)
@pytest.mark.parametrize(("ttl", "problem"), WRONG.values(), ids=WRONG)
def test_wrong_arguments(build: Build, ttl: dict[str, Any], problem: str) -> None:
    with pytest.raises(FlowBuildError, match=f"step 'step': {problem}"):
        a_driver(build, **ttl)


EPOCHS = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=4),
    ),
    max_size=10,
)
"""Each epoch: the seconds that pass before it, and its items."""


@sampled(100, by_default=15)
@given(EPOCHS, st.sampled_from([-1, 0, 1]), st.sampled_from(["write", "first"]))
def test_state_expires_as_defined(epochs: Any, micros: int, ttl_from: str) -> None:
    """State expires `ttl` after the value that it counts from, before the values of that epoch."""
    ttl = timedelta(seconds=10, microseconds=micros)
    now, states, down, expired = timedelta(0), dict[str, Any](), list[Any](), list[Any]()
    with a_driver(MAPS["stateful_map"], ttl=ttl, ttl_from=ttl_from) as t:
        for seconds, items in epochs:
            now += timedelta(seconds=seconds)
            for key in sorted(states):
                if now - states[key][1] >= ttl:
                    expired.append((key, states.pop(key)[0]))
            for key, value in items:
                total, since = states.get(key, (None, now))
                state, made = running(total, value)
                down.append((key, made))
                states[key] = (state, now if ttl_from == "write" else since)
                if state is None:
                    del states[key]
            t.send("in", items, after=timedelta(seconds=seconds))
        assert t.stats.gauges["step", "keys"] == len(states)
        assert sorted(t.received("expired")) == sorted(expired)
        assert sorted(t.received("down")) == sorted(down)


KEYS = 5_000
CLOCK = win.EventClock[Any](lambda value: value, "0s")


def latest(_: Any, value: int) -> tuple[int, int]:
    return value, value


STEPS: dict[str, Build] = {
    "by system time": lambda s: win.dedup("step", s, win.SystemClock(), ttl="1h").down,
    "by event time": lambda s: win.dedup("step", s, CLOCK, ttl="1h").down,
    "a map": lambda s: op.stateful_map("step", s, latest, ttl="1h").down,
}


@pytest.mark.parametrize("alone", [False, True], ids=["over columns", "key by key"])
@pytest.mark.parametrize("build", STEPS.values(), ids=STEPS)
def test_an_epoch_reads_and_writes_the_keys_that_it_touches_or_that_expire(
    build: Build, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        key_by_key() if alone else nullcontext(),
        TestDriver(a_flow(build), now=0, shards=1) as t,
    ):
        t.send("in", [("early", 1)])
        t.advance("10m")
        t.send("in", [(f"key {number}", 601) for number in range(KEYS)])
        counted = count_segments(monkeypatch)
        t.advance("1s")
        assert counted == {}
        t.send("in", [("key 7", 602)])
        assert counted == {"read": 1, "written": 1}
        counted.clear()
        t.advance("50m")
        assert counted == {"read": 1, "written": 1}, "the key that expires"
        assert t.stats.gauges["step", "keys"] == KEYS
