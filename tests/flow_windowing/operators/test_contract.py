"""Windows of random timelines, compared with a model of the contract."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.instants import MIN_US, from_us
from flow_windowing import LateValue
from tests.support.sampling import sampled
from tests.support.window_oracle import Event, Missed, answer
from tests.support.windowed_flows import (
    KINDS,
    Epoch,
    OneKey,
    clocks,
    collecting,
    moments,
    timelines,
)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "calendar"])
@sampled(250, by_default=25)
@given(st.data(), clocks, timelines, st.booleans())
def test_windows_are_what_the_contract_says(
    kind: str,
    data: st.DataObject,
    clock: Any,
    epochs: list[Epoch],
    ordered: bool,
) -> None:
    windower = data.draw(KINDS[kind])
    events, ends_of_epochs = happening(epochs)
    expected = answer(clock, windower, ordered, events)
    one = OneKey(collecting(clock, windower, ordered))
    *before, last = moments(epochs)
    for epoch, moment, event in zip(epochs, before, ends_of_epochs, strict=True):
        one.epoch(epoch.values, moment)
        assert len(one.heard.closed) == expected.closed_by[event]
    one.epoch((), last, end=True)
    assert shown(one.heard.down) == [
        (held.window_id, from_us(held.first), from_us(held.last), held.merged, held.values)
        for held in expected.windows
    ]
    assert [said_of(late) for late in one.heard.late] == [
        expected_of(missed) for missed in expected.missed
    ]


def said_of(late: LateValue[Any]) -> tuple[Any, ...]:
    window_ids = tuple(window.window_id for window in late.windows)
    return late.value, late.timestamp, late.watermark, late.late_by, window_ids, late.reason


def expected_of(missed: Missed) -> tuple[Any, ...]:
    watermark, late_us = None, 0
    if missed.watermark >= MIN_US:
        watermark, late_us = from_us(int(missed.watermark)), int(missed.watermark) - missed.time
    late_by = timedelta(microseconds=max(0, late_us))
    timestamp = from_us(missed.time)
    return missed.value, timestamp, watermark, late_by, missed.window_ids, missed.reason


def happening(epochs: list[Epoch]) -> tuple[list[Event], list[int]]:
    """The events of a timeline, and the number of the last of each epoch."""
    events, ends = list[Event](), list[int]()
    for epoch, moment in zip(epochs, moments(epochs), strict=False):
        events.append(Event(moment))
        events += [Event(moment, value) for value in epoch.values]
        ends.append(len(events) - 1)
    return events, ends


def shown(down: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (one.window_id, one.open_time, one.close_time, one.merged_ids, held) for one, held in down
    ]
