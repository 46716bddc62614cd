"""Interval joins, compared with an oracle written from the definition."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from flow.instants import datetime_us
from flow_windowing.time_joins.interval_join import IntervalJoin
from tests.support.interval_flows import (
    bounds,
    clock_of,
    clocks,
    duration,
    events_of,
    graces,
    hows,
    time_of_pair,
    timelines,
)
from tests.support.interval_oracle import Join, answer
from tests.support.sampling import sampled
from tests.support.windowed_flows import (
    ORIGIN_US,
    Epoch,
    heard,
)


@sampled(600, by_default=60)
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
