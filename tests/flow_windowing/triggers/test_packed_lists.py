"""Lists of windows that run key by key, of which a snapshot packs the earlier entries."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import pytest

import flow_windowing as win
from flow.testing import TestDriver, key_by_key
from flow_windowing import AfterWatermark, Early, EventClock, Late
from flow_windowing.rules import key_state
from tests.support.windowed_flows import received, windowed_flow

CLOCK = EventClock(lambda value: value[0], "20s")
ENDLESS = win.TumblingWindower("100000000s")
TENS = win.TumblingWindower("10s", grace="10s")
TRIGGER = AfterWatermark(early=Early(count=3), late=Late(count=2))

STEPS: dict[str, Any] = {
    "panes": lambda up: win.collect_window("w", up, CLOCK, TENS, emit=TRIGGER),
    "panes of new values": lambda up: win.collect_window(
        "w", up, CLOCK, TENS, emit=AfterWatermark(early=Early(count=5), accumulate=False)
    ),
    "panes of sessions": lambda up: win.collect_window(
        "w", up, CLOCK, win.SessionWindower("3s"), ordered=False, emit=Early(count=4)
    ),
    "several aggregates": lambda up: win.aggregate_window(
        "w", up, CLOCK, TENS, all=win.Collect(), n=win.Count(), emit=TRIGGER
    ),
    "overlapping windows": lambda up: win.collect_window(
        "w", up, CLOCK, win.EventSlidingWindower("5s", grace="10s")
    ),
    "a grace": lambda up: win.aggregate_window(
        "w", up, CLOCK, TENS, all=win.Collect(), ordered=True
    ),
}


def scattered(seed: int) -> list[list[tuple[str, tuple[int, int]]]]:
    """Epochs of values of two keys, up to half a minute out of order."""
    chance = random.Random(seed)
    return [
        [(chance.choice("ab"), (at * 3 + chance.randint(-30, 3), n)) for n in range(8)]
        for at in range(12)
    ]


def run(step: Any, epochs: list[list[Any]], entries: int) -> Any:
    """Return the output of a step that packs lists of so many entries."""
    with (
        mock.patch.object(key_state, "PACKED_ENTRIES", entries),
        TestDriver(windowed_flow(step), shards=1) as t,
    ):
        for epoch in epochs:
            t.send("in", epoch)
            t.advance("1s")
        t.end()
        return received(t)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", STEPS)
def test_packing_changes_no_result(name: str, seed: int) -> None:
    whole, packed = (run(STEPS[name], scattered(seed), entries) for entries in (1_000, 2))
    assert packed == whole
    assert whole["down"]


def test_a_step_that_runs_over_columns_reads_packed_lists() -> None:
    """The step runs key by key for two epochs, then over columns, then key by key."""

    def collecting(up: Any) -> Any:
        at_once = EventClock(lambda value: value[0], "0s")
        return win.aggregate_window("w", up, at_once, ENDLESS, all=win.Collect(), n=win.Count())

    with (
        mock.patch.object(key_state, "PACKED_ENTRIES", 2),
        TestDriver(windowed_flow(collecting), shards=1) as t,
    ):
        with key_by_key():
            t.send("in", [("k", (number, 0)) for number in range(3)])
            t.send("in", [("k", (number, 0)) for number in range(3, 6)])
        t.send("in", [("k", (6, 0))])
        with key_by_key():
            t.send("in", [("k", (7, 0))])
            t.end()
        ((_, (_, found)),) = t.received("down")
    assert found == {"all": [(number, 0) for number in range(8)], "n": 8}


class Weighed:
    """A value that counts how often any such value is pickled."""

    pickled = 0

    def __reduce__(self) -> Any:
        Weighed.pickled += 1
        return Weighed, ()


def pickled_in_epochs(held: int) -> int:
    """Return how many entries are pickled in five epochs of ten values, with so many held."""
    step = windowed_flow(
        lambda up: win.collect_window(
            "w", up, win.SystemClock(), ENDLESS, emit=Early(count=1_000_000)
        )
    )
    with TestDriver(step, shards=1) as t:
        t.send("in", [("k", Weighed()) for _ in range(held)])
        Weighed.pickled = 0
        for _ in range(5):
            t.send("in", [("k", Weighed()) for _ in range(10)])
    return Weighed.pickled


def test_the_earlier_entries_of_a_list_are_not_pickled_again() -> None:
    assert pickled_in_epochs(3_000) == pickled_in_epochs(2_000) < 1_000


def test_a_window_shows_the_entries_that_are_packed() -> None:
    step = windowed_flow(
        lambda up: win.collect_window("w", up, win.SystemClock(), ENDLESS, emit=Early(count=9))
    )
    with mock.patch.object(key_state, "PACKED_ENTRIES", 2), TestDriver(step, shards=1) as t:
        t.send("in", [("k", 1), ("k", 2), ("k", 3)])
        t.send("in", [("k", 4)])
        ((window, found),) = t.state("w", "k")["windows"].items()
    assert found == [1, 2, 3, 4], window
