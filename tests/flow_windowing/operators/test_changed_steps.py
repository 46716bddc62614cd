"""Windowing steps whose settings change between runs, over columns and key by key."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

import flow_windowing as win
from flow.engine.state.store import MemoryStore
from flow.testing import TestDriver, key_by_key
from tests.support.columns import (
    Epoch,
    Row,
    Step,
    as_dicts,
    as_records,
    play,
)
from tests.support.window_flow import START, results_by_key


def row(seconds: int) -> Row:
    at = START + timedelta(seconds=seconds)
    return {"user": "a", "ts": at, "whole": 1, "real": 1.0, "text": "x"}


def gone_on(
    before: Step,
    after: Step,
    epochs: tuple[list[Epoch], list[Epoch]],
    alone: bool,
    drain: bool = False,
) -> TestDriver:
    """A flow that was stopped, or drained, set otherwise, and started again."""
    form: Any = as_dicts if alone else as_records
    with key_by_key() if alone else nullcontext():
        first = TestDriver(before.flow(), now=START, shards=1)
        play(first, epochs[0], form)
        if drain:
            first.end()
        second = TestDriver(after.flow(), now=START, shards=1)
        second._engine._stores = first._engine._stores
        second._now_us, second._downtime_us = first._now_us, first._downtime_us
        play(second, epochs[1], form)
        return second


def outcome(
    before: Step,
    after: Step,
    epochs: tuple[list[Epoch], list[Epoch]],
    alone: bool,
    drain: bool = False,
) -> Any:
    """Run the changed step to the end of its input, and return the results by key."""
    second = gone_on(before, after, epochs, alone, drain)
    with key_by_key() if alone else nullcontext():
        second.end()
    return results_by_key(second)


def step(forget_after: str | None) -> Step:
    clock = win.EventClock("ts", "0s", forget_after=forget_after)
    return Step(clock, win.TumblingWindower("10s"), {"n": win.Count()})


#   100 · (20 s pass) · forget_after="30d" · (5 s pass) · 3, which is late still
@pytest.mark.parametrize("alone", [True, False])
def test_keys_are_not_forgotten_at_once_when_they_begin_to_be(alone: bool) -> None:
    epochs = [Epoch([row(100)]), Epoch([], 20)], [Epoch([], 5), Epoch([row(3)])]
    found = outcome(step(None), step("30d"), epochs, alone)
    assert found["counted"] == {"in": 1, "late": 1}
    assert found["down"] == {}


def numbered(*numbers: int) -> list[Row]:
    return [{**row(number), "whole": number} for number in numbers]


#                  1 2 3 4 5 | 6 7 8 9 10 11     four values each, every second
#   closed         0-------
#   unfilled           1---- |
#                          2 |
#   begins anew               3--------
#                                 4-----
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("epochs", [[[6, 7, 8, 9, 10, 11]], [[6], [7], [8, 9], [10], [11]]])
def test_windows_that_closed_unfilled_do_not_open_again(
    alone: bool, epochs: list[list[int]]
) -> None:
    counting = Step(
        win.EventClock("ts", "0s"),
        win.CountWindower(4, 2, partial=True),
        {"n": win.Count(), "numbers": win.Collect("whole")},
    )
    later = [Epoch(numbered(*numbers)) for numbers in epochs]
    ran = [Epoch(numbered(1, 2, 3, 4, 5))], later
    found = outcome(counting, counting, ran, alone, drain=True)["down"]["a"]
    ids = [text.partition("WindowMetadata(")[2].partition(",")[0] for text in found]
    numbers = [text.partition("'numbers': ")[2].removesuffix("})") for text in found]
    assert list(zip(ids, numbers, strict=True)) == [
        ("3", "[6, 7, 8, 9]"),
        ("4", "[8, 9, 10, 11]"),
        ("5", "[10, 11]"),
    ]


#   windows of 10 s every 30 s       0--|              30--|
#   waiting, in order                     15 · 16              both in a gap
#   not in order any more                            200       in a gap as well
@pytest.mark.parametrize("new", [[], [200]])
@pytest.mark.parametrize("waiting", [[15], [15, 16]])
def test_what_waited_and_falls_into_a_gap_is_late_itself(
    waiting: list[int], new: list[int]
) -> None:
    def gaps(ordered: bool) -> Step:
        clock, windower = win.EventClock("ts", "1m"), win.SlidingWindower("10s", "30s")
        return Step(clock, windower, {"n": win.Count()}, ordered=ordered)

    epochs = [Epoch(numbered(*waiting))], [Epoch(numbered(*new), 300)]
    found = {alone: outcome(gaps(True), gaps(False), epochs, alone) for alone in (True, False)}
    assert found[False] == found[True]
    late = [text.partition("'whole': ")[2].partition(",")[0] for text in found[True]["late"]["a"]]
    assert late == [str(number) for number in (*waiting, *new)]


def held(**settings: Any) -> Step:
    """A step whose first window, with the defaults, is still open after `OPEN`."""
    windower = win.TumblingWindower("10s", grace=settings.pop("grace", timedelta.max))
    return Step(win.EventClock("ts", "0s", **settings), windower, {"n": win.Count()})


OPEN = [Epoch([row(5)]), Epoch([], 3600)]
QUIET = [Epoch([], 600)] * 3


#   5 · (an hour passes, and the window of 0 s to 10 s stays open) · set otherwise · nothing comes
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (held(), held(grace="0s")),
        (held(grace="0s", on_idle="hold"), held(grace="0s")),
        (held(scope="stream"), held(scope="stream", grace="0s")),
    ],
)
def test_windows_close_when_the_new_settings_say_so(alone: bool, before: Step, after: Step) -> None:
    second = gone_on(before, after, (OPEN, QUIET), alone)
    assert [len(second.received(stream)) for stream in ("down", "closed")] == [1, 1]


@pytest.mark.parametrize("alone", [True, False])
def test_keys_are_forgotten_when_the_new_settings_say_so(alone: bool) -> None:
    done = [Epoch([row(5)]), Epoch([], 3600)]
    for forget_after, keys in ((None, 1), ("5m", 0)):
        second = gone_on(step(None), step(forget_after), (done, QUIET), alone)
        assert second.stats.gauges["w", "keys"] == keys


#   5 · 15, in two windows that are open · emit="update" from here on · 17 in the second alone
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("windower", [win.TumblingWindower("10s"), win.SessionWindower("5s")])
@pytest.mark.parametrize(
    ("before", "shown"), [("close", [1, 1, 2]), ("epoch", [2]), ("update", [2])]
)
def test_windows_that_were_to_emit_as_they_close_emit_when_they_are_not_any_more(
    alone: bool, windower: Any, before: Any, shown: list[int]
) -> None:
    def emitting(emit: Any) -> Step:
        clock = win.EventClock("ts", "1m")
        return Step(clock, windower, {"n": win.Count()}, ordered=False, emit=emit)

    epochs = [Epoch([row(5), row(15)])], [Epoch([row(17)])]
    found = outcome(emitting(before), emitting("update"), epochs, alone)["down"]["a"]
    assert [int(text.partition("{'n': ")[2].partition("}")[0]) for text in found] == shown


def triggered(emit: Any, windower: Any = None) -> Step:
    windower = windower or win.TumblingWindower("10s", grace="5s")
    return Step(win.EventClock("ts", "1m"), windower, {"n": win.Count()}, ordered=False, emit=emit)


def panes_and_counts(texts: list[str]) -> list[tuple[str, int]]:
    """Return the pane of each result, as text, and its count; a result without a pane has ""."""
    return [
        (
            text.partition("pane=Pane(")[2].partition(")")[0].replace("PaneTiming.", ""),
            int(text.partition("{'n': ")[2].partition("}")[0]),
        )
        for text in texts
    ]


#   1 2 3 · set otherwise · 4 5 · end; the first window is [0, 10)
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        # Three values without a pane count as one.
        ("close", win.Early(count=2), [("0, EARLY", 4), ("1, ON_TIME, is_last=True", 5)]),
        ("close", win.Early(every="3s"), [("0, EARLY", 5), ("1, ON_TIME, is_last=True", 5)]),
        (
            "update",
            win.Early(count=9),
            [("", 1), ("", 2), ("", 3), ("0, ON_TIME, is_last=True", 5)],
        ),
        (win.Early(count=2), "close", [("0, EARLY", 2), ("", 5)]),
        (win.Early(count=2), "update", [("0, EARLY", 2), ("", 3), ("", 4), ("", 5)]),
        (
            win.Early(count=9),
            win.Early(count=4),
            [("0, EARLY", 4), ("1, ON_TIME, is_last=True", 5)],
        ),
        (
            win.Early(count=2),
            win.Early(every="3s"),
            [("0, EARLY", 2), ("1, EARLY", 5), ("2, ON_TIME, is_last=True", 5)],
        ),
        (
            win.Early(every="1h"),
            win.Early(count=9),
            [("0, ON_TIME, is_last=True", 5)],
        ),
    ],
)
def test_windows_go_on_with_another_trigger(
    alone: bool, before: Any, after: Any, shown: list[tuple[str, int]]
) -> None:
    epochs = [Epoch([row(1), row(2), row(3)])], [Epoch([row(4), row(5)]), Epoch([], 3)]
    found = outcome(triggered(before), triggered(after), epochs, alone)["down"]["a"]
    played = TestDriver(triggered(before).flow(), now=START, shards=1)
    play(played, epochs[0], as_dicts)
    earlier = results_by_key(played)["down"].get("a", [])
    assert panes_and_counts([*earlier, *found]) == shown


#   5, in [0, 10), which the watermark passes · a trigger from here on
@pytest.mark.parametrize("alone", [True, False])
def test_a_window_in_its_grace_has_its_on_time_pane_as_it_gets_a_trigger(alone: bool) -> None:
    epochs = [Epoch([row(5)]), Epoch([], 66)], [Epoch([]), Epoch([row(6)])]
    second = gone_on(triggered("close"), triggered(win.Late(count=1)), epochs, alone)
    assert panes_and_counts(results_by_key(second)["down"]["a"]) == [
        ("0, ON_TIME", 1),
        ("1, LATE", 2),
    ]


class CountingStore(MemoryStore):
    """Counts the segments that are read of what another store has kept."""

    def __init__(self, kept: MemoryStore) -> None:
        super().__init__()
        self._headers, self._segments = kept._headers, kept._segments
        self.read = 0

    def copy(self) -> CountingStore:
        return self

    def read_segments(self, step_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        self.read += len(numbers)
        return super().read_segments(step_id, numbers)


@pytest.mark.parametrize("alone", [True, False])
def test_state_is_looked_at_once_where_settings_have_changed_and_not_at_all_elsewhere(
    alone: bool,
) -> None:
    with key_by_key() if alone else nullcontext():
        driver = TestDriver(step(None).flow(), now=START, shards=1)
        driver.send("in", as_dicts([{**row(5), "user": f"user {n}"} for n in range(2000)]))
        for forget_after, looks in ((None, [0, 0]), ("30d", [1, 0]), ("30d", [0, 0])):
            stores = driver._engine._stores
            driver = TestDriver(step(forget_after).flow(), now=START, shards=1)
            counting = {place: CountingStore(store) for place, store in stores.items()}
            driver._engine._stores = dict(counting)
            (store,) = counting.values()
            segments = len(store._segments)
            assert segments > 5
            for look in looks:
                driver.send("in", [])
                assert store.read == look * segments
                store.read = 0
