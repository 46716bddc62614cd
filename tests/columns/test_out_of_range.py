"""Times in columns that no Python object holds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
import flow_windowing as win
from flow.connectors.files import JsonLinesSink, ParquetSink
from flow.connectors.sink import WriteContext
from flow.connectors.stdio import StdOutSink
from flow.errors import SinkError, StepError
from flow.testing import run_once
from tests.support.writing import opened, write

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


def test_a_time_that_an_object_holds_in_utc_alone_is_one_in_utc() -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    times = pa.array([0, 253_402_300_799, None], pa.timestamp("s", "Europe/Berlin"))
    found = run_once(
        pa.record_batch({"at": times}), lambda s: op.map("m", s, lambda row: row["at"])
    )
    assert found == [datetime(1970, 1, 1, tzinfo=UTC), last, None]
    assert str(found[0]) == "1970-01-01 01:00:00+01:00"


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


def test_equal_times_that_no_object_holds_are_one_id_and_one_distinct_value() -> None:
    far = pa.array([2**60, 2**60, 2**61], pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = pa.record_batch({"k": ["a"] * 3, "at": far, "n": [1, 2, 3]})
    three = win.CountWindower(3)

    def passed(stream: Any) -> Any:
        return win.dedup("d", op.key_on("by", stream, "k"), win.SystemClock(), "at", ttl="1h").down

    def counted(stream: Any) -> Any:
        keyed, different = op.key_on("by", stream, "k"), win.CountDistinct("at")
        return win.aggregate_window("w", keyed, win.SystemClock(), three, n=different).down

    assert [row["n"] for _, row in run_once(rows, passed)] == [1, 3]
    assert [result for _, (_, result) in run_once(rows, counted)] == [{"n": 2}]


@pytest.mark.parametrize(
    "sink", [JsonLinesSink, partial(ParquetSink, schema={"at": pa.timestamp("ns", "UTC")})]
)
def test_a_sink_that_cannot_write_a_time_names_the_field_and_the_value(
    tmp_path: Path, sink: Any
) -> None:
    with pytest.raises(SinkError, match=rf"step 'out': field 'at' .*OutOfRange\('{SHOWN}'\)"):
        write(opened(sink(tmp_path)), 0, 0, ROWS)


def test_standard_output_shows_a_time_that_no_object_holds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sink: StdOutSink[Any] = StdOutSink(format=lambda row: row["at"])
    sink.commit(0, [sink.write(WriteContext("out", 0, 0, "run"), iter([ROWS]))])
    assert capsys.readouterr().out == f"1970-01-01 00:00:00+00:00\nOutOfRange('{SHOWN}')\n"
