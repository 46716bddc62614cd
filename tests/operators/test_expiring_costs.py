"""The cost of an epoch of a step whose state expires: the keys touched and the keys that expire."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow.testing import TestDriver, key_by_key
from tests.support.one_stream import Build, a_flow
from tests.support.segments import count_segments

KEYS = 5_000
CLOCK = win.EventClock[Any](lambda value: value, "0s")


def latest(_: Any, value: int) -> tuple[int, int]:
    return value, value


STEPS: dict[str, Build] = {
    "by system time": lambda s: op.dedup("step", s, ttl="1h"),
    "by event time": lambda s: win.dedup("step", s, CLOCK, ttl="1h").down,
    "a map": lambda s: op.stateful_map("step", s, latest, ttl="1h").down,
}


@pytest.mark.parametrize("alone", [False, True], ids=["over columns", "key by key"])
@pytest.mark.parametrize("build", STEPS.values(), ids=STEPS)
def test_an_epoch_reads_and_writes_the_keys_that_it_touches_or_that_expire(
    build: Build, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        key_by_key() if alone else nullcontext(),
        TestDriver(a_flow(build), now=0, shards=1) as t,
    ):
        t.send("in", [("early", 1)])
        t.advance("10m")
        t.send("in", [(f"key {number}", 601) for number in range(KEYS)])
        counted = count_segments(monkeypatch)
        t.advance("1s")
        assert counted == {}
        t.send("in", [("key 7", 602)])
        assert counted == {"read": 1, "written": 1}
        counted.clear()
        t.advance("50m")
        assert counted == {"read": 1, "written": 1}, "the key that expires"
        assert t.stats.gauges["step", "keys"] == KEYS
