"""A step goes on with what it kept when it was set otherwise, over columns as key by key."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

from flow.testing import TestDriver
from flow_windowing import Count, EventClock, TumblingWindower
from tests.windowing.test_columns import (
    START,
    Epoch,
    Row,
    Step,
    as_dicts,
    as_records,
    heard,
    key_by_key,
    play,
)


def row(seconds: int) -> Row:
    at = START + timedelta(seconds=seconds)
    return {"user": "a", "ts": at, "whole": 1, "real": 1.0, "text": "x"}


def outcome(before: Step, after: Step, epochs: tuple[list[Epoch], list[Epoch]], alone: bool) -> Any:
    """What comes of a flow that is stopped, set otherwise and started again."""
    form: Any = as_dicts if alone else as_records
    with key_by_key() if alone else nullcontext():
        first = TestDriver(before.flow(), now=START, shards=1)
        play(first, epochs[0], form)
        second = TestDriver(after.flow(), now=START, shards=1)
        second._engine._stores = first._engine._stores
        second._now_us, second._downtime_us = first._now_us, first._downtime_us
        play(second, epochs[1], form)
        second.end()
        return heard(second)


def step(forget_after: str | None) -> Step:
    clock = EventClock("ts", "0s", forget_after=forget_after)
    return Step(clock, TumblingWindower("10s"), {"n": Count()})


#   100 · (20 s pass) · forget_after="30d" · (5 s pass) · 3, which is late still
@pytest.mark.parametrize("alone", [True, False])
def test_keys_are_not_forgotten_at_once_when_they_begin_to_be(alone: bool) -> None:
    epochs = [Epoch([row(100)]), Epoch([], 20)], [Epoch([], 5), Epoch([row(3)])]
    found = outcome(step(None), step("30d"), epochs, alone)
    assert found["counted"] == {"in": 1, "late": 1}
    assert found["down"] == {}
