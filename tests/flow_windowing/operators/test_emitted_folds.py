"""Results of folds that were emitted, which later values do not change."""

from __future__ import annotations

from typing import Any

import pytest

import flow_windowing as win
from flow.testing import TestDriver
from flow_windowing import EventClock, TumblingWindower
from tests.support.windowed_flows import windowed_flow


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
            *(EventClock(int, "1000s"), TumblingWindower("10s"), lambda: [[]], nested),
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
