"""Times in columns that no Python object holds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
import flow_windowing as win
from flow.errors import StepError
from flow.testing import run_once

SHOWN = "10000-01-01 04:59:59.000000Z"
TIMES = pa.array([0, 253_402_318_799_000_000], pa.timestamp("us", "UTC"))
ROWS = pa.record_batch({"k": ["a"] * 2, "at": TIMES, "n": [1, 2]})


def test_a_time_that_no_object_holds_fails_only_a_step_that_reads_it() -> None:
    assert run_once(ROWS, lambda s: op.map("m", s, lambda row: row["n"])) == [1, 2]
    first, second = run_once(ROWS, lambda s: op.map("m", s, lambda row: row["at"]))
    assert (first, second.text) == (datetime(1970, 1, 1, tzinfo=UTC), SHOWN)
    with pytest.raises(StepError, match="step 'm': the mapper raised") as caught:
        run_once(ROWS, lambda s: op.map("m", s, lambda row: row["at"].year))
    assert caught.value.item == f"{{'at': OutOfRange('{SHOWN}'), 'k': 'a', 'n': 2}}"


@pytest.mark.parametrize("getter", ["at", lambda row: row["at"]])
@pytest.mark.parametrize("before", [lambda s: s, lambda s: op.map("m", s, dict)])
def test_a_clock_drops_or_refuses_a_time_that_no_object_holds(getter: Any, before: Any) -> None:

    def counts(on_invalid: Any) -> Any:
        clock = win.EventClock(getter, "0s", on_invalid=on_invalid)
        minutes = win.TumblingWindower("1m")
        return run_once(ROWS, lambda s: win.count_window("w", before(s), clock, minutes, "k").down)

    assert [count for _, (_, count) in counts("drop")] == [1]
    with pytest.raises(StepError, match=f"{SHOWN} lies outside the years 1 to 9999\n  key:  'a'"):
        counts("fail")
