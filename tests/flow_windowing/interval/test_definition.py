"""Interval joins, compared with an oracle written from the definition."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.instants import datetime_us
from flow.testing import TestDriver, TestingSink, TestingSource
from flow_windowing import EventClock
from flow_windowing.interval.builder import IntervalJoin
from tests.support.interval_flows import (
    SidedValue,
    bounds,
    clock_of,
    clocks,
    duration,
    events_of,
    graces,
    heard,
    hows,
    interval_flow,
    time_of,
    time_of_pair,
    timelines,
    values,
)
from tests.support.interval_oracle import Join, answer
from tests.support.sampling import sampled
from tests.support.windowed_flows import (
    ORIGIN,
    ORIGIN_US,
    SECOND,
    Epoch,
    Received,
    bytes_up_to,
    in_epochs,
    received,
)


@sampled(600, by_default=250)
@given(clocks, bounds(), hows, graces, timelines, st.booleans())
@example((0, "hold", None), (0, 0), "outer", None, [], False)
def test_the_output_is_that_of_the_definition(
    clock: Any,
    interval: tuple[int, int],
    how: Any,
    grace: int | None,
    epochs: list[Epoch],
    rebuilt: bool,
) -> None:
    before, after = interval
    expected = answer(
        clock_of(*clock, getter=time_of_pair),
        Join(before, after, how, grace or 0),
        events_of(epochs),
    )
    config = IntervalJoin(
        clock_of(*clock),
        duration(before),
        duration(after),
        how,
        None if grace is None else duration(grace),
    )
    found = heard(config, epochs, rebuilt)
    assert [
        (window.window_id - ORIGIN_US, datetime_us(window.timestamp) - ORIGIN_US, left, right)
        for window, (left, right) in found.down
    ] == [(id_us - ORIGIN_US, last - ORIGIN_US, *pair) for id_us, last, *pair in expected.down]
    assert [(late.side, late.value) for late in found.late] == [
        (side, value) for side, value, _ in expected.late
    ]
    assert [window.window_id for window in found.closed] == expected.closed


keyed = values.map(lambda some: [("aab"[value[1] % 3], (side, value)) for side, value in some])
cuts = bytes_up_to(8).map(lambda drawn: [byte % 5 for byte in drawn])


def in_one_stream(clock: Any, before: int, after: int, how: Any, grace: int | None) -> Any:
    """Return an interval join whose sides come from one input, so that any cut is possible."""
    flow = Dataflow("interval")
    sided = op.input("in", flow, TestingSource([]))
    sides = [
        op.map_value(
            f"side {side}",
            op.filter_value(f"of {side}", sided, lambda pair, side=side: pair[0] == side),
            lambda pair: pair[1],
        )
        for side in (0, 1)
    ]
    grace_of = None if grace is None else duration(grace)
    out = win.join_interval("w", *sides, clock, duration(before), duration(after), how, grace_of)
    for name in out._fields:
        op.output(name, getattr(out, name), TestingSink([]))
    return flow


@sampled(150, by_default=50)
@given(clocks, bounds(), hows, graces, keyed, cuts)
def test_cutting_the_input_into_epochs_differently_changes_nothing(
    clock: Any,
    interval: tuple[int, int],
    how: Any,
    grace: int | None,
    sent: list[tuple[str, SidedValue]],
    sizes: list[int],
) -> None:
    flow = in_one_stream(clock_of(*clock), *interval, how, grace)

    def outcome(epochs: list[list[Any]]) -> Received:
        with TestDriver(flow, now=ORIGIN, shards=2) as t:
            for epoch in epochs:
                t.send("in", epoch)
            t.end()
            return received(t)

    assert outcome(in_epochs(sent, sizes)) == outcome([sent])
    assert outcome([[one] for one in sent]) == outcome([sent])


@pytest.mark.parametrize("beside", [-1, 0, 1])
@pytest.mark.parametrize("second", ["left", "right"])
@pytest.mark.parametrize("bound", ["before", "after"])
def test_a_bound_is_exact_to_the_microsecond_in_either_order(
    bound: str, second: str, beside: int
) -> None:
    left = 100 * SECOND
    right = left - 5 * SECOND - beside if bound == "before" else left + 2 * SECOND + beside
    sent = {"left": (left, 0), "right": (right, 1)}
    first = "left" if second == "right" else "right"
    with TestDriver(interval_flow(EventClock(time_of, "1h"), "5s", "2s"), now=ORIGIN) as t:
        t.send(first, [("k", sent[first])])
        t.send(second, [("k", sent[second])])
        found = t.received("down")
        t.end()
        assert t.received("down") == found
    assert len(found) == (0 if beside == 1 else 1)
