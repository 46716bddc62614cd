"""Times at which windows emit, retractions, and timestamps in metadata."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

import flow_windowing as win
from flow.instants import EPOCH
from flow.testing import TestDriver
from flow_windowing import EventClock, Retracted, SessionWindower, TumblingWindower
from tests.support.windowed_flows import windowed_flow

AT_ONCE = EventClock(lambda second: second, "0s")
PATIENT = EventClock(lambda second: second, "1000s")
TENS = TumblingWindower("10s")
SESSIONS = SessionWindower("5s")


def driver(windower: Any, emit: Any, clock: Any = PATIENT, ordered: bool = False) -> TestDriver:
    return TestDriver(
        windowed_flow(
            lambda up: win.collect_window("w", up, clock, windower, list, ordered, emit=emit)
        )
    )


def emitted(t: TestDriver) -> list[Any]:
    """Take the windows emitted since the last call, as open time in seconds and result."""
    down = t.take("down")
    return [((one.open_time - EPOCH) // timedelta(seconds=1), value) for _, (one, value) in down]


def send(t: TestDriver, *seconds: float) -> list[Any]:
    t.send("in", [("k", second) for second in seconds])
    return emitted(t)


def end(t: TestDriver) -> list[Any]:
    t.end()
    return emitted(t)


def test_at_the_close_and_only_then() -> None:
    # epochs:  1 5  |  2 12  |  end
    with driver(TENS, "close") as t:
        assert send(t, 1, 5) == []
        assert send(t, 2, 12) == []
        assert end(t) == [(0, [1, 5, 2]), (10, [12])]


def test_after_every_value_and_not_at_the_close() -> None:
    # epochs:  1 5  |  2 12  |  end
    with driver(TENS, "update") as t:
        assert send(t, 1, 5) == [(0, [1]), (0, [1, 5])]
        assert send(t, 2, 12) == [(0, [1, 5, 2]), (10, [12])]
        assert end(t) == []
        assert [one.window_id for _, one in t.received("closed")] == [0, 1]


def test_after_every_value_that_enters_in_order_of_time() -> None:
    # nothing enters before the watermark is there
    with driver(TENS, "update", EventClock(lambda second: second, "5s"), ordered=True) as t:
        assert send(t, 5, 3) == []
        assert send(t, 9) == [(0, [3])]
        assert end(t) == [(0, [3, 5]), (0, [3, 5, 9])]


def test_once_an_epoch_for_what_has_changed_and_at_the_close() -> None:
    # epochs:  1 5 12  |  2  |  (nothing)  |  end
    with driver(TENS, "epoch") as t:
        assert send(t, 1, 5, 12) == [(0, [1, 5]), (10, [12])]
        assert send(t, 2) == [(0, [1, 5, 2])]
        assert send(t) == []
        assert end(t) == [(0, [1, 5, 2]), (10, [12])]


def test_a_window_that_closes_in_the_epoch_that_changed_it_emits_once() -> None:
    with driver(TENS, "epoch", AT_ONCE) as t:
        assert send(t, 1, 12) == [(0, [1]), (10, [12])]
        assert send(t, 15, 25) == [(10, [12, 15]), (20, [25])]


def test_an_epoch_in_which_only_time_passes_emits_only_what_closes() -> None:
    with driver(TENS, "epoch", AT_ONCE) as t:
        assert send(t, 1) == [(0, [1])]
        t.advance("5s")
        assert emitted(t) == []
        t.advance("4s")
        assert emitted(t) == [(0, [1])]


def test_a_session_that_had_emitted_is_taken_back_once_it_is_part_of_another() -> None:
    # gap 5:  10 . . . . . 20      then 15
    with driver(SESSIONS, "update") as t:
        assert send(t, 10, 20) == [(10, [10]), (20, [20])]
        assert send(t, 15) == [(20, Retracted([20])), (10, [10, 20, 15])]
        assert send(t, 16) == [(10, [10, 20, 15, 16])]
        assert end(t) == []


def test_what_is_taken_back_is_the_last_that_was_said() -> None:
    with driver(SESSIONS, "update") as t:
        send(t, 10, 20, 22)
        assert send(t, 15) == [(20, Retracted([20, 22])), (10, [10, 20, 22, 15])]


def test_within_an_epoch_only_what_had_left_before_is_taken_back() -> None:
    # epochs:  10  |  20 15: the second session never said anything
    with driver(SESSIONS, "epoch") as t:
        assert send(t, 10) == [(10, [10])]
        assert send(t, 20, 15) == [(10, [10, 20, 15])]
    # epochs:  10 20  |  15
    with driver(SESSIONS, "epoch") as t:
        assert send(t, 10, 20) == [(10, [10]), (20, [20])]
        assert send(t, 15) == [(20, Retracted([20])), (10, [10, 20, 15])]
        assert end(t) == [(10, [10, 20, 15])]


def test_a_session_taken_in_twice_over_is_taken_back_once() -> None:
    # gap 5:  0  8  16    then 12 joins the last two, 4 both with the first
    with driver(SESSIONS, "update") as t:
        send(t, 0, 8, 16)
        assert send(t, 12) == [(16, Retracted([16])), (8, [8, 16, 12])]
        assert send(t, 4) == [(8, Retracted([8, 16, 12])), (0, [0, 8, 16, 12, 4])]


@pytest.mark.parametrize("windower", [TENS, SESSIONS, win.EventSlidingWindower("5s", True)])
def test_at_the_close_nothing_is_ever_taken_back(windower: Any) -> None:
    with driver(windower, "close") as t:
        send(t, 10, 20)
        send(t, 15)
        assert not any(isinstance(value, Retracted) for _, value in end(t))


def test_windows_that_do_not_merge_take_nothing_back() -> None:
    with driver(win.SlidingWindower("10s", "5s"), "update") as t:
        made = [*send(t, 10, 20), *send(t, 15), *end(t)]
        assert not any(isinstance(value, Retracted) for _, value in made)


def test_the_metadata_of_an_update_is_that_of_the_window_then() -> None:
    with driver(SESSIONS, "update") as t:
        t.send("in", [("k", second) for second in (10, 20, 15)])
        seen = [
            (one.close_time.second, len(one.merged_ids), type(value) is Retracted)
            for _, (one, value) in t.received("down")
        ]
    assert seen == [(10, 0, False), (20, 0, False), (20, 0, True), (20, 1, False)]


def test_an_event_sliding_window_that_opens_over_values_says_so_once() -> None:
    # length 10:  23, 20, 27     [13,23] [10,20] [17,27]
    with driver(win.EventSlidingWindower("10s"), "update") as t:
        assert send(t, 23) == [(13, [23])]
        assert sorted(send(t, 20)) == [(10, [20]), (13, [23, 20])]
        assert send(t, 27) == [(17, [23, 20, 27])]


def nested(total: list[list[int]], value: int) -> list[list[int]]:
    total[0].append(value)
    return total


@pytest.mark.parametrize("emit", ["update", "epoch"])
def test_what_was_emitted_does_not_change_as_a_fold_goes_on(emit: Any) -> None:
    # in one process the state lives on within an epoch, so only a deep copy is safe
    flow = windowed_flow(
        lambda up: win.fold_window(
            "w", up, PATIENT, TENS, lambda: [[]], nested, ordered=False, emit=emit
        )
    )
    with TestDriver(flow) as t:
        t.send("in", [("k", 1), ("k", 2)])
        t.send("in", [("k", 3)])
        made = [value for _, (_, value) in t.received("down")]
    expected = [[[1]], [[1, 2]], [[1, 2, 3]]]
    assert made == (expected if emit == "update" else expected[1:])


class Cart(win.WindowLogic[Any, Any, list[Any]]):
    """Emits at its values, merges and close."""

    def __init__(self, state: list[Any] | None) -> None:
        self.held = list(state or ())

    def on_value(self, value: Any) -> Iterable[Any]:
        self.held.append(value)
        return [f"has {len(self.held)}"]

    def on_merge(self, original: Cart) -> Iterable[Any]:
        self.held += original.held
        return [f"takes in {len(original.held)}"]

    def on_close(self) -> Iterable[Any]:
        return [f"closes with {len(self.held)}"]

    def snapshot(self) -> list[Any]:
        return list(self.held)


def test_a_logic_of_ones_own_says_what_it_likes_when_it_likes() -> None:
    flow = windowed_flow(lambda up: win.window("w", up, PATIENT, SESSIONS, Cart, ordered=False))
    with TestDriver(flow) as t:
        t.send("in", [("k", second) for second in (10, 20, 15)])
        t.end()
        assert [value for _, (_, value) in t.received("down")] == [
            "has 1",
            "has 1",
            "takes in 1",
            "has 3",
            "closes with 3",
        ]


class Rigid(Cart):
    on_merge = win.WindowLogic.on_merge


def test_a_logic_that_cannot_merge_says_what_to_write() -> None:
    flow = windowed_flow(lambda up: win.window("w", up, PATIENT, SESSIONS, Rigid, ordered=False))
    with TestDriver(flow) as t, pytest.raises(Exception, match="write on_merge") as caught:
        t.send("in", [("k", second) for second in (10, 20, 15)])
    assert "step 'w'" in str(caught.value)


@pytest.mark.parametrize(
    ("which", "expected"), [("open", [0, 10]), ("close", [10, 20]), ("last", [5, 17])]
)
@pytest.mark.parametrize("emit", ["close", "update", "epoch"])
@pytest.mark.parametrize("ordered", [True, False])
def test_the_timestamp_of_what_a_window_emits(
    which: Any, expected: list[int], emit: Any, ordered: bool
) -> None:
    # |  1 5 3  |  12 17 14  |   in one epoch each
    flow = windowed_flow(
        lambda up: win.collect_window(
            "w", up, PATIENT, TENS, list, ordered, emit=emit, timestamp=which
        )
    )
    with TestDriver(flow) as t:
        for seconds in ((1, 5, 3), (12, 17), (14,)):
            t.send("in", [("k", second) for second in seconds])
        t.end()
        last = {one.window_id: one.timestamp for _, (one, _) in t.received("down")}
        assert [last[number].second for number in (0, 1)] == expected
        assert [one.timestamp.second for _, one in t.received("closed")] == expected


def test_without_being_asked_for_there_is_no_timestamp() -> None:
    with driver(TENS, "close") as t:
        t.send("in", [("k", 1)])
        t.end()
        assert [one.timestamp for _, (one, _) in t.received("down")] == [None]


def test_the_last_timestamp_of_sessions_that_become_one_is_the_greatest() -> None:
    flow = windowed_flow(
        lambda up: win.collect_window(
            "w", up, PATIENT, SESSIONS, list, False, emit="update", timestamp="last"
        )
    )
    with TestDriver(flow) as t:
        for second in (10, 20, 15):
            t.send("in", [("k", second)])
        t.end()
        seen = [one.timestamp.second for _, (one, _) in t.received("down")]
        assert seen == [10, 20, 20, 20]
