"""Folds of values: their order where sessions merge, and results that do not change later."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

import flow_windowing as win
from flow.testing import TestDriver, key_by_key, run_once
from flow_windowing import EventClock, SessionWindower, TumblingWindower
from tests.support.windowed_flows import windowed_flow

SECONDS = EventClock(int, "10s")
GAP = SessionWindower("5s")
PATIENT, TENS = EventClock(int, "1000s"), TumblingWindower("10s")
ARRIVING = ["10", "20", "11", "21", "15"]


def appended(fold: list[str], value: str) -> list[str]:
    return [*fold, value]


def folded(stream: Any, ordered: bool) -> Any:
    made = win.fold_window("w", stream, SECONDS, GAP, list, appended, list.__add__, ordered)
    return made.down


def reduced(stream: Any, ordered: bool) -> Any:
    return win.reduce_window("w", stream, SECONDS, GAP, lambda a, b: f"{a} {b}", ordered).down


def collected(stream: Any, ordered: bool) -> Any:
    return win.collect_window("w", stream, SECONDS, GAP, list, ordered).down


#   10 11 ······ 15 ······ 20 21        15 joins both sessions
@pytest.mark.parametrize("alone", [True, False], ids=["key by key", "over columns"])
@pytest.mark.parametrize(
    ("operator", "by_arrival"),
    [
        (folded, ["10", "11", "20", "21", "15"]),
        (reduced, "10 11 20 21 15"),
        (collected, ARRIVING),
    ],
)
def test_a_merge_combines_the_folds_of_two_sessions_before_the_value_that_joins_them(
    operator: Callable[..., Any], by_arrival: Any, alone: bool
) -> None:
    items = [("k", value) for value in ARRIVING]
    with key_by_key() if alone else nullcontext():
        [(_, (_, value))] = run_once(items, lambda s: operator(s, ordered=False))
    assert value == by_arrival


@pytest.mark.parametrize("alone", [True, False], ids=["key by key", "over columns"])
@pytest.mark.parametrize("operator", [folded, collected])
def test_in_order_of_time_sessions_do_not_merge_within_the_wait(
    operator: Callable[..., Any], alone: bool
) -> None:
    items = [("k", value) for value in ARRIVING]
    with key_by_key() if alone else nullcontext():
        [(_, (_, value))] = run_once(items, lambda s: operator(s, ordered=True))
    assert value == sorted(ARRIVING)


def nested(total: list[list[int]], value: int) -> list[list[int]]:
    total[0].append(value)
    return total


@pytest.mark.parametrize("emit", ["update", "epoch"])
def test_what_was_emitted_does_not_change_as_a_fold_goes_on(emit: Any) -> None:
    # in one process the state lives on within an epoch, so only a deep copy is safe
    flow = windowed_flow(
        lambda up: win.fold_window(
            "w",
            up,
            EventClock(int, "1000s"),
            TumblingWindower("10s"),
            lambda: [[]],
            nested,
            ordered=False,
            emit=emit,
        )
    )
    with TestDriver(flow) as t:
        t.send("in", [("k", 1), ("k", 2)])
        t.send("in", [("k", 3)])
        made = [value for _, (_, value) in t.received("down")]
    expected = [[[1]], [[1, 2]], [[1, 2, 3]]]
    assert made == (expected if emit == "update" else expected[1:])
