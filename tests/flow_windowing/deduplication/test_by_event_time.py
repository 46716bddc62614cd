"""Deduplication by event time: bounds, late values, state, and a clock of a user's own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.engine.epoch.summary import WatermarkLag, watermark_lags
from flow.errors import FlowTypeError, StepError
from flow.testing import TestDriver, TestingSink, TestingSource, run_once
from flow_windowing import Clock, EventClock, LateReason
from tests.support.own_clock import own
from tests.support.sampling import sampled

CLOCK: EventClock[Any] = EventClock("at", "5s")
Item = tuple[str, dict[str, Any]]


def a_flow(clock: Clock[Any, Any] = CLOCK, ttl: str = "10s") -> Dataflow:
    """Return a flow with an output for each stream of the step."""
    flow = Dataflow("dedup")
    inputs = [op.input(name, flow, TestingSource([])) for name in ("in", "other")]
    out = win.dedup("once", op.merge("both", *inputs), clock, "id", ttl=ttl)
    for name, stream in out._asdict().items():
        op.output(name, stream, TestingSink([]))
    return flow


def a_driver(clock: Clock[Any, Any] = CLOCK, ttl: str = "10s") -> TestDriver:
    return TestDriver(a_flow(clock, ttl), now=0)


def click(at: float, found: Any = 1, key: str = "k") -> Item:
    return key, {"at": at, "id": found}


def times(items: Sequence[Any]) -> list[float]:
    return [value["at"] for _, value in items]


def test_the_watermark_of_a_silent_key_empties_the_state() -> None:
    #  at 0 s: value at 20, watermark 15    at 14.999999 s: 29.999999    at 15 s: 30, forgotten
    with a_driver() as t:
        t.send("in", [click(20)])
        t.advance("14.999999s")
        assert t.stats.gauges["once", "keys"] == 1
        t.advance("0.000001s")
        assert t.stats.gauges["once", "keys"] == 0
        assert t.stats.gauges["once", "state_bytes"] == 0


def test_the_lag_of_watermarks_is_reported() -> None:
    #  now 40 s; watermarks: k 20 - 5 = 15, j 30 - 5 = 25
    driver = TestDriver(a_flow(), now=40)
    driver.send("in", [click(20), click(30, key="j")])
    assert watermark_lags(driver.stats.lags) == {"once": WatermarkLag(15.0, 15.0, 25.0, 2)}


def test_values_that_are_too_far_ahead_or_have_no_timestamp() -> None:
    clock: EventClock[Any] = EventClock("at", "5s", max_ahead="1m", on_invalid="drop")
    with a_driver(clock) as t:
        t.send("in", [("k", {"id": 1}), click(1000), click(1)])
        assert times(t.received("down")) == [1]
        ((_, late),) = t.received("late")
        assert (late.reason, late.windows) == (LateReason.TOO_FAR_AHEAD, ())
        assert t.stats.counts["once", "too_far_ahead"] == 1
        assert t.stats.counts["once", "dropped"] == 1
    with a_driver(clock) as t:
        t.send("in", [click(1000)])
        assert t.stats.gauges["once", "keys"] == 0


def test_a_value_without_a_timestamp_or_an_id_stops_the_flow() -> None:
    with a_driver() as t, pytest.raises(StepError, match="gave no timestamp"):
        t.send("in", [("k", {"id": 1})])
    with a_driver() as t, pytest.raises(StepError, match="gave no id"):
        t.send("in", [click(1), ("k", {"at": 1})])


def test_the_clock_must_be_a_clock() -> None:
    with pytest.raises(FlowTypeError, match="step 'd': clock must be a Clock"):
        run_once([], lambda s: win.dedup("d", s, "at", ttl="1s").down)  # type: ignore[arg-type]


# --- against the definition -------------------------------------------------------------------

TTL, WAIT = 10, 4
ITEMS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 60), st.sampled_from([1, 2, "x"])), max_size=25
)
CUTS = st.lists(st.integers(1, 5), min_size=1, max_size=10)


def defined(items: Sequence[Item], scope: str) -> dict[str, list[Item]]:
    """Return what each stream carries, from the definition, while system time stands still."""
    streams: dict[str, list[Item]] = {"down": [], "late": [], "duplicates": []}
    greatest: dict[str, float] = defaultdict(lambda: -1e9)
    for key, value in items:
        watch = key if scope == "key" else "all"
        greatest[watch] = max(greatest[watch], value["at"])
        if value["at"] < greatest[watch] - WAIT:
            streams["late"].append((key, value))
        elif any(
            (name, other["id"]) == (key, value["id"]) and abs(other["at"] - value["at"]) < TTL
            for name, other in streams["down"]
        ):
            streams["duplicates"].append((key, value))
        else:
            streams["down"].append((key, value))
    return streams


def by_key(items: Sequence[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for key, value in items:
        found[key].append(getattr(value, "value", value))
    return found


@pytest.mark.parametrize("scope", ["key", "stream"])
@sampled(100, by_default=5)
@given(items=ITEMS, cuts=CUTS, is_own=st.booleans())
def test_streams_are_as_defined_in_any_epochs(
    scope: Any, items: Any, cuts: list[int], is_own: bool
) -> None:
    sent = [click(at, found, key) for key, at, found in items]
    received: dict[str, Any] = {}
    clock: EventClock[Any] = EventClock("at", f"{WAIT}s", scope=scope)
    with a_driver(own(clock) if is_own else clock, f"{TTL}s") as t:
        rest, number = list(sent), 0
        while rest:
            size = cuts[number % len(cuts)]
            t.send("in", rest[:size])
            rest, number = rest[size:], number + 1
        received = {name: t.received(name) for name in ("down", "late", "duplicates")}
        t.end()
        assert t.stats.gauges["once", "keys"] == 0
    for name, expected in defined(sent, scope).items():
        assert by_key(received[name]) == by_key(expected), name


@sampled(200, by_default=5)
@given(
    epochs=st.lists(
        st.tuples(
            st.integers(0, 20),
            ITEMS.map(lambda one: one[:4]),
            ITEMS.map(lambda one: one[:4]),
            st.sampled_from([(), ("in",), ("other",)]),
        ),
        max_size=8,
    ),
    scope=st.sampled_from(["key", "stream"]),
    waited=st.booleans(),
)
def test_a_clock_of_ones_own_gives_the_same_as_time_passes_and_partitions_fall_behind(
    epochs: Any, scope: Any, waited: bool
) -> None:
    def play(clock: EventClock[Any]) -> Any:
        seen: list[Any] = []
        with a_driver(clock, f"{TTL}s") as t:
            for seconds, first, second, behind in epochs:
                sent = {
                    name: [click(at, found, key) for key, at, found in items]
                    for name, items in (("in", first), ("other", second))
                }
                if not waited:
                    t.advance(f"{seconds}s")
                t.send_all(sent, after=f"{seconds}s" if waited else "0s", behind=behind)
                streams = {one: by_key(t.take(one)) for one in ("down", "late", "duplicates")}
                seen.append((streams, t.stats.gauges["once", "keys"], dict(t.stats.counts)))
        return seen

    clock: EventClock[Any] = EventClock("at", f"{WAIT}s", scope=scope, max_ahead="30s")
    assert play(own(clock)) == play(clock)
