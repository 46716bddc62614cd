"""Joins of records and of objects, by a clock over columns and by one key by key, agree."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.errors import StepError
from flow.testing import TestDriver, TestingSink, TestingSource
from flow_windowing import EventClock
from tests.support import asof_flows, interval_flows
from tests.support.asof_flows import asof_flow
from tests.support.columns import WAYS, Way, clocks, windowers
from tests.support.interval_flows import SidedValue, clock_of, duration, hows, interval_flow
from tests.support.own_clock import own
from tests.support.sampling import sampled
from tests.support.two_sides import Counting, Epoch, epochs_of_sides, play, sided
from tests.support.window_flow import START, add_outputs, on_path, results_by_key
from tests.support.windowed_flows import ORIGIN, SECOND, Received, bytes_up_to, in_epochs, received

JOINS: dict[str, tuple[Callable[..., Any], dict[str, st.SearchStrategy[Any]]]] = {
    "in windows": (
        lambda left, right, clock, windower, **options: win.join_window(
            "w", left, right, clock=clock, windower=windower, **options
        ),
        {
            "windower": windowers,
            "insert_mode": st.sampled_from(["first", "last"]),
            "ordered": st.booleans(),
            "timestamp": st.sampled_from([None, "last"]),
        },
    ),
    "within an interval": (
        lambda left, right, **options: win.join_interval("w", left, right, **options),
        {
            "before": st.sampled_from(["0s", "5s", "1m", "-2s"]),
            "after": st.sampled_from(["2s", "20s"]),
            "how": hows,
            "grace": st.sampled_from([None, "0s", "10s"]),
        },
    ),
    "as of a time": (
        lambda left, right, **options: win.join_asof("w", left, right, **options),
        {
            "tolerance": st.sampled_from([None, "0s", "5s", "1m"]),
            "direction": asof_flows.directions,
            "how": asof_flows.hows,
        },
    ),
}
"""Joins of two streams by the names of their options, and values of these options."""


@pytest.mark.parametrize("join", JOINS)
@sampled(200, by_default=5)
@given(
    data=st.data(),
    clock=clocks,
    epochs=epochs_of_sides,
    own=st.booleans(),
    ways=st.lists(st.sampled_from(WAYS), min_size=4, max_size=4),
)
def test_records_and_objects_and_each_path_with_the_state_of_the_other_agree(
    join: str, data: st.DataObject, clock: Any, epochs: list[Epoch], own: bool, ways: list[Way]
) -> None:
    """The sides have columns of their own if `own`."""
    add, options = JOINS[join]
    flow = Dataflow("join")
    sides = [
        op.key_on(f"key-{name}", op.input(name, flow, TestingSource([])), "user")
        for name in ("left", "right")
    ]
    add_outputs(add(*sides, clock=clock, **data.draw(st.fixed_dictionaries(options))))

    def outcome(ways: list[Way]) -> Any:
        with TestDriver(flow, now=START, shards=2) as t:
            for epoch, (alone, form) in zip(epochs, ways, strict=False):
                with on_path(alone):
                    play(t, epoch, form, has_own_columns=own)
            t.end()
            return results_by_key(t)

    alone, objects, records = WAYS
    expected = outcome([alone] * 4)
    for tried in ([records] * 4, [objects] * 4, ways):
        assert outcome(tried) == expected


Add = Callable[[Any, Any, Any], Any]
"""A function that adds a join of two streams, with a clock."""


@st.composite
def interval_joins(draw: st.DrawFn) -> Add:
    before, after = map(duration, draw(interval_flows.bounds()))
    grace = draw(interval_flows.graces)
    options = {"how": draw(hows), "grace": None if grace is None else duration(grace)}
    return lambda left, right, clock: win.join_interval(
        "w", left, right, clock, before, after, **options
    )


@st.composite
def asof_joins(draw: st.DrawFn, emits: st.SearchStrategy[str]) -> Add:
    tolerance = asof_flows.tolerance_of(draw(asof_flows.tolerances))
    options = {
        "direction": draw(asof_flows.directions),
        "how": draw(asof_flows.hows),
        "emit": draw(emits),
    }
    return as_of(tolerance, **options)


def as_of(tolerance: Any, **options: Any) -> Add:
    return lambda left, right, clock: win.join_asof(
        "w", left, right, clock, tolerance, right_value=asof_flows.quote, **options
    )


# Another input's bound holds the watermark below the values of the epoch before the late one.
@example(as_of(None), (0, "hold", None), "key", sided(b"\x00\x03\x1a\x00"), [])
@sampled(900, by_default=20)
@given(
    interval_joins() | asof_joins(asof_flows.emits),
    interval_flows.clocks,
    st.sampled_from(["key", "key", "stream"]),
    bytes_up_to(40).map(sided),
    st.lists(st.sampled_from([(), ("left",), ("right",)]), max_size=6),
)
def test_clocks_over_columns_and_key_by_key_agree_also_while_an_input_is_behind(
    add: Add, clock: Any, scope: Any, epochs: list[Epoch], behind: list[tuple[str, ...]]
) -> None:
    def found(clock: Any) -> Any:
        flow = Dataflow("join")
        sides = [op.input(name, flow, TestingSource([])) for name in ("left", "right")]
        add_outputs(add(*sides, replace(clock, scope=scope)))
        with TestDriver(flow, now=ORIGIN, shards=2) as t:
            for epoch, names in zip_longest(epochs, behind[: len(epochs)], fillvalue=()):
                play(t, epoch, list, names)
            t.end()
            return results_by_key(t)

    assert found(clock_of(*clock)) == found(own(clock_of(*clock)))


# Branches of one input are one partition: the value at 109 is late also in the epoch of 116.
@example(
    lambda left, right, clock: win.join_interval("w", left, right, clock, "5s", "5s"),
    (0, "advance", None),
    "stream",
    [(1, (116 * SECOND, 0)), (0, (109 * SECOND, 3))],
    [],
)
@sampled(300, by_default=10)
@given(
    interval_joins() | asof_joins(asof_flows.emits),
    interval_flows.clocks,
    st.sampled_from(["key", "stream"]),
    interval_flows.values,
    bytes_up_to(8).map(lambda drawn: [byte % 5 for byte in drawn]),
)
def test_cutting_the_input_into_epochs_differently_changes_nothing(
    add: Add, clock: Any, scope: Any, values: list[SidedValue], sizes: list[int]
) -> None:
    flow = Dataflow("join")
    stream = op.input("in", flow, TestingSource([]))
    sides = [
        op.map_value(
            f"side {side}",
            op.filter_value(f"of {side}", stream, lambda pair, side=side: pair[0] == side),
            lambda pair: pair[1],
        )
        for side in (0, 1)
    ]
    add_outputs(add(*sides, replace(clock_of(*clock), scope=scope)))
    sent = [("aab"[value[1] % 3], (side, value)) for side, value in values]

    def outcome(epochs: list[list[Any]]) -> Received:
        with TestDriver(flow, now=ORIGIN, shards=2) as t:
            for epoch in epochs:
                t.send("in", epoch)
            t.end()
            return received(t)

    whole = outcome([sent])
    assert outcome(in_epochs(sent, sizes)) == whole
    assert outcome([[one] for one in sent]) == whole


def test_a_right_value_without_the_part_to_pair_is_named() -> None:
    flow = asof_flow(EventClock("at", "0s"), "5s", right_value="bid")
    with (
        TestDriver(flow) as t,
        pytest.raises(StepError, match=r"(?s)'w': right_value 'bid' gave nothing.*'k'"),
    ):
        t.send("right", [("j", {"at": 1, "bid": 2}), ("k", {"at": 1})])


@pytest.mark.parametrize(
    "flow",
    [
        interval_flow(EventClock(lambda value: value.at, "0s", on_idle="hold"), "1h", "1h"),
        asof_flow(EventClock(lambda value: value.at, "0s", on_idle="hold"), "1h"),
    ],
    ids=["within an interval", "as of a time"],
)
def test_a_value_in_state_is_read_only_once_it_leaves(flow: Dataflow) -> None:
    assert pickle.loads(pickle.dumps(Counting(1))).at == 1
    with TestDriver(flow, shards=1) as t:
        t.send("left", [(f"key {n}", Counting(100)) for n in range(50)])
        Counting.read = 0
        t.send("right", [("key 7", Counting(101))])
        assert len(t.received("down")) == 1
    # The value that arrived, and the emitted pair.
    assert Counting.read <= 5


@pytest.mark.parametrize("alone", [True, False])
def test_windows_close_with_the_values_after_which_no_partition_holds(alone: bool) -> None:
    # Each input holds the watermark until its last value; then left has brought it to 15.
    made = Dataflow("join")
    sides = [op.input(name, made, TestingSource([])) for name in ("left", "right")]
    clock = EventClock(lambda value: value, "0s")
    out = win.join_window("w", *sides, clock=clock, windower=win.TumblingWindower("1s"))
    op.output("down", out.down, TestingSink([]))
    with on_path(alone), TestDriver(made, now=START) as t:
        t.send_all({"left": [("k", 15)], "right": [("k", 10)]})
        assert [pair for _, (_, pair) in t.received("down")] == [(None, 10)]
