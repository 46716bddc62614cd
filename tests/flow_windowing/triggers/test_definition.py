"""Panes of windows with a trigger, compared with an oracle written from the definition."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import flow_windowing as win
from flow.instants import Moment
from tests.support.sampling import sampled
from tests.support.trigger_oracle import PaneOracle, SeenPane, Timed
from tests.support.windowed_flows import OneKey, collecting

SECOND = 1_000_000


def seconds(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[str]:
    return numbers.map(lambda number: f"{number}s")


graces = st.sampled_from([None, "0s", "3s", "12s"])
windowers = st.one_of(
    st.builds(win.TumblingWindower, st.just("10s"), grace=graces),
    st.builds(
        win.SlidingWindower, st.just("10s"), offset=st.sampled_from(["4s", "5s"]), grace=graces
    ),
    st.builds(win.SessionWindower, st.just("4s"), grace=graces),
)
everies = st.none() | seconds(st.integers(1, 6))
numbers = st.none() | st.integers(1, 4)


def rules(kind: Any) -> Any:
    some = st.tuples(everies, numbers).filter(any)
    return st.none() | some.map(lambda drawn: kind(every=drawn[0], count=drawn[1]))


triggers = st.builds(win.AfterWatermark, rules(win.Early), rules(win.Late), st.booleans())
# A timestamp on or beside a second lies on or beside the bounds of windows.
times = st.builds(
    lambda second, beside: second * SECOND + beside,
    st.integers(0, 30),
    st.sampled_from([0, 0, 0, -1, 1]),
)
epochs = st.lists(st.tuples(st.integers(0, 4), st.lists(times, max_size=4)), max_size=9)


def timed(drawn: list[tuple[int, list[int]]]) -> list[Timed]:
    """Return epochs with their system time, which moves by some seconds before each."""
    now, found = 0, list[Timed]()
    for moved, values in drawn:
        now += moved * SECOND
        found.append((now, values))
    return found


def clock(wait: int) -> win.EventClock[Any]:
    return win.EventClock(lambda value: value[1] / SECOND, f"{wait}s", on_idle="hold")


def played(
    windower: Any, trigger: win.AfterWatermark, wait: int, ordered: bool, epochs: list[Timed]
) -> tuple[list[SeenPane], list[int]]:
    """Return the panes and the closed windows of a driver that is restored for each epoch."""
    one = OneKey(collecting(clock(wait), windower, ordered, trigger), rebuilt=True)
    sent, now = 0, 0
    for now, values in epochs:
        numbered = list(enumerate(values, sent))
        sent += len(values)
        one.epoch(numbered, Moment(now))
    one.epoch((), Moment(now), end=True)
    return [pane_of(*item) for item in one.heard.down], [w.window_id for w in one.heard.closed]


def pane_of(window: Any, value: Any) -> SeenPane:
    plain = value.value if isinstance(value, win.Retracted) else value
    pane = window.pane
    shown = tuple(sorted(number for number, _ in plain))
    timing, is_retracted = pane.timing.value, isinstance(value, win.Retracted)
    return SeenPane(window.window_id, pane.index, timing, pane.is_last, shown, is_retracted)


@sampled(1500, by_default=100)
@given(windowers, triggers, st.integers(0, 5), st.booleans(), epochs)
def test_the_panes_are_those_of_the_definition(
    windower: Any, trigger: Any, wait: int, ordered: bool, epochs: Any
) -> None:
    oracle = PaneOracle(windower, trigger, wait * SECOND, ordered)
    oracle.run(timed(epochs))
    assert played(windower, trigger, wait, ordered, timed(epochs)) == (oracle.seen, oracle.closed)


@sampled(600, by_default=100)
@given(windowers, triggers, st.integers(0, 5), st.booleans(), st.lists(times), st.data())
def test_panes_do_not_depend_on_the_cut_of_epochs(
    windower: Any, trigger: Any, wait: int, ordered: bool, values: list[int], data: Any
) -> None:
    at = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=4)))
    bounds = list(zip([0, *at], [*at, len(values)], strict=True))
    cut: list[Timed] = [(0, values[first:last]) for first, last in bounds]
    whole = played(windower, trigger, wait, ordered, [(0, values)])
    assert played(windower, trigger, wait, ordered, cut) == whole
