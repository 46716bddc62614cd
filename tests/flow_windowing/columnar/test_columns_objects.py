"""Python objects in windows over columns, with state in many segments."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, StepError
from flow.testing import TestDriver, TestingSink, TestingSource

START = datetime(2024, 5, 1, tzinfo=UTC)
KEYS, EPOCHS, SECONDS = 30, 4, 20

Form = Callable[[datetime, int], Any]
FORMS: dict[str, Form] = {
    "plain": lambda at, number: (at, number),
    "some nothing": lambda at, number: (at, number if number % 3 else None),
    "not plain": lambda at, number: (at, [number]),
    "of all kinds": lambda at, number: (at, number, number) if number % 4 else (at, {number}),
}


def events(form: Form) -> list[list[tuple[str, Any]]]:
    """Epochs of values of many keys; each reaches back into the one before, never too late."""
    rng = random.Random(7)
    made, number = [], 0
    for epoch in range(EPOCHS):
        items = []
        for _ in range(150):
            at = START + timedelta(seconds=SECONDS * epoch + rng.randrange(SECONDS))
            number += 1
            items.append((f"k{rng.randrange(KEYS)}", form(at, number)))
        made.append(items)
    return made


def flow_of(step: Callable[[Any], Any]) -> Dataflow:
    flow = Dataflow("objects")
    items = op.input("in", flow, TestingSource([]))
    op.output("out", step(items).down, TestingSink([]))
    return flow


CLOCK: win.EventClock[Any] = win.EventClock(itemgetter(0), "30s")
MINUTE_PARTS = win.TumblingWindower("10s")


def collected(items: Any) -> Any:
    return win.collect_window("windows", items, CLOCK, MINUTE_PARTS)


def counted(items: Any) -> Any:
    """A figure of two numbers: how many, and the last one's place."""
    return win.fold_window(
        "windows", items, CLOCK, MINUTE_PARTS, lambda: (0, 0.0), one_more, ordered=False
    )


def one_more(state: tuple[int, float], value: Any) -> tuple[int, float]:
    return state[0] + 1, state[1] + value[0].second


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
@pytest.mark.parametrize("step", [collected, counted])
def test_windows_have_their_own_values_for_any_number_of_segments(
    step: Callable[[Any], Any], form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = events(form)
    windows: dict[tuple[str, datetime], list[Any]] = {}
    for key, value in sorted((item for epoch in made for item in epoch), key=lambda one: one[1][0]):
        opens = value[0] - timedelta(seconds=value[0].second % 10)
        windows.setdefault((key, opens), []).append(value)
    if step is counted:
        expected: dict[Any, Any] = {
            of: (len(values), float(sum(one[0].second for one in values)))
            for of, values in windows.items()
        }
    else:
        expected = windows
    monkeypatch.setattr("flow.engine.packets.shards.TARGET_BYTES", 300)
    with TestDriver(flow_of(step), shards=2) as driver:
        for epoch in made:
            driver.send("in", epoch)
        driver.end()
        found = driver.received("out")
    assert {(key, window.open_time): value for key, (window, value) in found} == expected


def test_a_failing_initial_state_names_the_value_it_is_for() -> None:
    made: list[float] = []

    def start() -> float:
        if len(made) == 2:
            raise ValueError("no more")
        made.append(0.0)
        return 0.0

    def folded(items: Any) -> Any:
        return win.fold_window(
            "windows", items, CLOCK, MINUTE_PARTS, start, lambda state, _: state, ordered=False
        )

    items = [(key, (START + timedelta(seconds=place), key)) for place, key in enumerate("aabbcc")]
    with TestDriver(flow_of(folded), shards=1) as driver, pytest.raises(StepError) as caught:
        driver.send("in", items)
    assert "no more" in str(caught.value)
    assert "'c')" in str(caught.value)
