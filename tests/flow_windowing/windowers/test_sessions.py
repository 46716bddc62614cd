"""Sessions: membership, merges, and the state that remains."""

from __future__ import annotations

from typing import Any

import pytest

import flow_windowing as win
from flow.instants import Moment
from flow.testing import TestDriver
from flow_windowing import EventClock, SessionWindower, SystemClock
from tests.support.windowed_flows import OneKey, Received, collecting, received, windowed_flow

SECOND = 1_000_000
MINUTES = EventClock(lambda minute: minute * 60, "1000h")
NOW = Moment(0)


def sessions(
    values: list[Any], gap: str, inclusive: bool = True, ordered: bool = True, clock: Any = MINUTES
) -> Received:
    windower = SessionWindower(gap, inclusive)
    flow = windowed_flow(lambda up: win.collect_window("w", up, clock, windower, list, ordered))
    with TestDriver(flow) as t:
        t.send("in", [("k", value) for value in values])
        t.end()
        return received(t)


def window_values(out: Received) -> list[Any]:
    return [values for _, values in out["down"]["k"]]


@pytest.mark.parametrize("ordered", [True, False])
def test_values_exactly_a_gap_apart_share_a_session_if_inclusive(ordered: bool) -> None:
    # minutes: 0  10 15 . . . 50 60 . . 90      gap 30m
    #          |------|       |---------|       inclusive
    #          |------|       |--|      |       not
    minutes = [0, 10, 15, 50, 60, 90]
    together = sessions(minutes, "30m", True, ordered)
    separate = sessions(minutes, "30m", False, ordered)
    assert window_values(together) == [[0, 10, 15], [50, 60, 90]]
    assert window_values(separate) == [[0, 10, 15], [50, 60], [90]]
    bounds = [(one.open_time.minute, one.close_time.minute) for one, _ in separate["down"]["k"]]
    assert bounds == [(0, 15), (50, 0), (30, 30)]


def test_a_value_between_two_sessions_merges_them() -> None:
    # gap 5:  10 12 . . . 20        then 16
    #         |--|        |
    #         |-----------|
    out = sessions([10, 12, 20, 16], "5m", ordered=False)
    (metadata, values) = out["down"]["k"][0]
    assert values == [10, 12, 20, 16]
    assert metadata.window_id == 10 * 60 * SECOND
    assert metadata.merged_ids == {20 * 60 * SECOND}
    assert len(out["closed"]["k"]) == 1


def test_merged_ids_name_all_absorbed_sessions() -> None:
    # gap 5:  0     8     16    24     four sessions; 20 joins the last two, 4 the first two, 12 all
    #         |     |     |-----|
    #         |-----|     |-----|
    #         |-----------------|
    out = sessions([24, 16, 8, 0, 20, 4, 12], "5m", ordered=False)
    (metadata,) = out["closed"]["k"]
    assert metadata.window_id == 0
    assert metadata.merged_ids == {minute * 60 * SECOND for minute in (8, 16, 24)}


def test_the_id_stays_that_of_the_first_value_if_the_open_time_moves_back() -> None:
    # gap 5:  12, then 10 before it; id stays 12's
    (metadata,) = sessions([12, 10], "5m", ordered=False)["closed"]["k"]
    assert metadata.window_id == 12 * 60 * SECOND
    assert metadata.open_time.minute == 10


SECONDS = EventClock(lambda second: second, "0s")


@pytest.mark.parametrize(
    ("inclusive", "open_at", "closed_at"),
    [(True, 15.0, 15.000001), (False, 14.999999, 15.0)],
)
def test_a_session_closes_once_the_watermark_is_more_than_the_gap_past_it(
    inclusive: bool, open_at: float, closed_at: float
) -> None:
    # gap 5:  10 . . . . 15: a value there would still be together, if inclusive
    for now, closed in ((open_at, 0), (closed_at, 1)):
        one = OneKey(collecting(SECONDS, SessionWindower("5s", inclusive), ordered=False))
        one.epoch([10], NOW)
        one.epoch([], Moment(round((now - 10) * SECOND)))
        assert len(one.heard.closed) == closed


def test_grace_keeps_a_session_open_without_a_larger_gap() -> None:
    # gap 5, grace 10:  10 . . . . 15 . . . . . 25 -> closes after that
    windower = SessionWindower("5s", grace="10s")
    one = OneKey(collecting(SECONDS, windower, ordered=False))
    one.epoch([10, 25, 14, 8], NOW)
    assert one.heard.closed == []
    one.epoch([28], NOW)
    assert one.heard.closed == []
    one.epoch([29.000001], NOW)
    assert [values for _, values in one.heard.down] == [[10, 14, 8]]
    one.epoch([13], NOW)
    assert [late.value for late in one.heard.late] == [13]


def test_closed_sessions_of_system_time_leave_no_state() -> None:
    flow = windowed_flow(
        lambda up: win.collect_window("w", up, SystemClock(), SessionWindower("10s"))
    )
    with TestDriver(flow) as t:
        t.send("in", [(key, 1) for key in "abc"])
        assert t.stats.gauges["w", "keys"] == 3
        t.advance("10s")
        assert t.stats.gauges["w", "keys"] == 3
        t.advance("1us")
        assert t.stats.gauges["w", "keys"] == 0
        assert len(t.received("down")) == 3


@pytest.mark.parametrize("ordered", [True, False])
def test_closed_sessions_of_event_time_leave_two_integers(ordered: bool) -> None:
    one = OneKey(collecting(SECONDS, SessionWindower("5s"), ordered))
    one.epoch([10, 12, 3, 20, 22], NOW)
    one.epoch([], Moment(100 * SECOND))
    assert len(one.heard.closed) == 2
    state = one.state()
    assert state.clock == (22 * SECOND, 0)
    assert not any(state._replace(clock=None))
    assert one.due_us > 10**18
