"""Windows over all keys in columns, key by key, and with one key for all values."""

from __future__ import annotations

import math
from collections import Counter
from datetime import timedelta
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.engine.local import Part
from flow.keyed.step import KeyByKey, OverColumns
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key
from flow_windowing import EventClock, SlidingWindower, TumblingWindower
from tests.support.all_keys_flows import (
    PORTS,
    aggregated,
    aggregated_by_one_key,
    all_keys_flow,
    ranked,
)
from tests.support.sampling import sampled

START = "1970-01-01T00:00:00Z"
SCHEMA = pa.schema([("user", pa.string()), ("at", pa.float64()), ("n", pa.int64())])

rows = st.builds(
    lambda user, at, n: {"user": user, "at": at, "n": n},
    st.sampled_from("abcdefgh"),
    st.integers(0, 120).map(lambda half: half / 2),
    st.none() | st.integers(-3, 9),
)
Epoch: TypeAlias = tuple[int, list[list[Any]], list[int]]
"""The seconds since the epoch before, the rows of each partition, and the partitions behind."""

epochs_of_rows = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 5, 100]),
        st.lists(st.lists(rows, max_size=6), min_size=3, max_size=3),
        st.lists(st.integers(0, 2), max_size=2),
    ),
    max_size=5,
)
clocks = st.builds(
    EventClock,
    st.just("at"),
    st.sampled_from(["0s", "4s"]),
    on_idle=st.sampled_from(["advance", "hold"]),
    max_ahead=st.none() | st.just("50s"),
) | st.just(win.SystemClock())
windowers = st.sampled_from(
    [
        TumblingWindower("10s"),
        TumblingWindower("10s", closed="right", grace="3s"),
        SlidingWindower("10s", "4s"),
        SlidingWindower("4s", "10s"),
        win.CalendarWindower("day", "Europe/Paris"),
    ]
)


def as_records(some: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(some, schema=SCHEMA)


def play(flow: Dataflow, epochs: list[Epoch], form: Any, shards: int = 4) -> dict[str, list[Any]]:
    with TestDriver(flow, now=START, shards=shards) as t:
        for later, partitions, behind in epochs:
            if later:
                t.advance(timedelta(seconds=later))
            parts = [Part(form(some), number) for number, some in enumerate(partitions)]
            t.send_parts({"in": parts}, behind=[("in", number) for number in behind])
        t.end()
        return {port: [repr(item) for item in t.received(port)] for port in PORTS}


@sampled(200, by_default=4)
@given(clocks, windowers, epochs_of_rows)
def test_the_paths_agree_with_one_key_for_all_values(
    clock: Any, windower: Any, epochs: list[Epoch]
) -> None:
    of_stream = clock
    if isinstance(clock, EventClock):
        of_stream = EventClock(
            "at",
            clock.wait_for_system_duration,
            on_idle=clock.on_idle,
            max_ahead=clock.max_ahead,
            scope="stream",
        )
    expected = play(all_keys_flow(aggregated_by_one_key(of_stream, windower)), epochs, list)
    flow = all_keys_flow(aggregated(clock, windower))
    with key_by_key():
        alone = play(flow, epochs, list)
    for found in (alone, play(flow, epochs, as_records), play(flow, epochs, list, shards=1)):
        assert sorted(found["late"]) == sorted(expected["late"])
        assert found["closed"] == expected["closed"]
        # A standard deviation of parts may differ in the last digits.
        assert _rounded(found["down"]) == _rounded(expected["down"])


def _rounded(results: list[str]) -> list[Any]:
    rounded = []
    for result in results:
        text, _, spread = result.partition("'spread': ")
        number, _, rest = spread.partition(",")
        rounded.append((text, number if number == "None" else round(float(number), 9), rest))
    return rounded


@sampled(150, by_default=4)
@given(clocks, windowers, epochs_of_rows, st.sampled_from([None, win.Sum("n"), win.Mean("n")]))
def test_rankings_over_columns_agree_with_key_by_key(
    clock: Any, windower: Any, epochs: list[Epoch], by: Any
) -> None:
    flow = all_keys_flow(ranked(clock, windower, 2, by))
    with key_by_key():
        expected = play(flow, epochs, list)
    for found in (play(flow, epochs, as_records), play(flow, epochs, list, shards=1)):
        assert found["down"] == expected["down"]
        assert found["closed"] == expected["closed"]
        assert sorted(found["late"]) == sorted(expected["late"])


@sampled(200, by_default=4)
@given(st.data())
def test_nothing_on_time_is_late_while_partitions_are_read_at_unequal_pace(data: Any) -> None:
    """Each partition is out of order by at most the wait; any of them may be far behind."""
    wait = 6
    pending = []
    for _ in range(3):
        times = sorted(data.draw(st.lists(st.integers(0, 90), min_size=1, max_size=25)))
        delays = [data.draw(st.integers(0, wait)) for _ in times]
        order = sorted(range(len(times)), key=lambda at: times[at] + delays[at])
        pending.append([{"user": f"u{n % 5}", "at": float(times[n]), "n": 1} for n in order])
    everything = [row for partition in pending for row in partition]
    epochs: list[Epoch] = []
    while any(pending):
        counts = [data.draw(st.integers(0, 9)) for _ in pending]
        counts = counts if any(counts) else [25, 25, 25]
        read = [some[:count] for some, count in zip(pending, counts, strict=True)]
        pending = [some[count:] for some, count in zip(pending, counts, strict=True)]
        epochs.append((0, read, [n for n, some in enumerate(pending) if some]))
    clock, windower = EventClock("at", f"{wait}s"), TumblingWindower("10s")
    expected = Counter(int(row["at"] // 10) for row in everything)
    for add in (aggregated(clock, windower, n=win.Count()), ranked(clock, windower, 9)):
        flow = all_keys_flow(add)
        found = []
        with TestDriver(flow, now=START, shards=4) as t:
            for _, partitions, behind in epochs:
                parts = [Part(some, number) for number, some in enumerate(partitions)]
                t.send_parts({"in": parts}, behind=[("in", number) for number in behind])
            t.end()
            assert t.received("late") == []
            found = t.received("down")
        counted = {
            window.window_id: made["n"] if isinstance(made, dict) else sum(n for _, n in made)
            for _, (window, made) in found
        }
        assert counted == expected
        assert len(found) == len(expected)


def lowering(flow: Dataflow, step_id: str) -> Any:
    (step,) = (one for one in flow.steps if one.step_id == step_id)
    operator: Any = step.operator
    return operator.lower()


def test_the_first_level_runs_over_columns() -> None:
    clock, windower = EventClock("at", "5s"), TumblingWindower("10s")
    flow = all_keys_flow(aggregated(clock, windower, n=win.Count(), total=win.Sum("n")))
    assert isinstance(lowering(flow, "w.partial"), OverColumns)
    assert lowering(flow, "w") == KeyByKey("it merges a few accumulators a window")
    flow = all_keys_flow(ranked(clock, windower, 2))
    assert isinstance(lowering(flow, "w.by_key"), OverColumns)


class OwnWindower(TumblingWindower):
    """A windower without a columnar form."""


def test_a_custom_windower_whose_windows_follow_from_time_serves_all_keys() -> None:
    clock, rows = EventClock("at", "0s"), [{"user": user, "at": 1.0, "n": 2} for user in "abb"]
    found = []
    for add in (
        aggregated(clock, OwnWindower("10s"), total=win.Sum("n")),
        ranked(clock, OwnWindower("10s"), 1),
    ):
        with TestDriver(all_keys_flow(add), now=START) as t:
            t.send("in", as_records(rows))
            t.end()
            found += [result for _, (_, result) in t.take("down")]
    assert found == [{"total": 6}, [("b", 2)]]


@pytest.mark.parametrize("by_itself", [False, True])
def test_a_level_holds_one_accumulator_for_each_bucket_and_the_second_level_none(
    by_itself: bool,
) -> None:
    flow = all_keys_flow(aggregated(EventClock("at", "0s"), TumblingWindower("10s")))
    rows = [{"user": f"u{n}", "at": 1.0, "n": 1} for n in range(2_000)]
    with TestDriver(flow, now=START, shards=4) as t:
        t.send("in", as_records(rows) if by_itself else rows)
        assert t.stats.gauges["w.partial", "keys"] == 64
        assert t.stats.gauges["w", "keys"] == 0
        t.send("in", [{"user": "u", "at": 20.0, "n": 1}])
        ((_, (_, result)),) = t.take("down")
        assert result["n"] == result["users"] == 2_000
        assert t.stats.gauges["w.partial", "keys"] == 1


def test_nan_has_the_first_rank_and_equal_results_are_ranked_by_key() -> None:
    values = [("b", 1.0), ("a", 1.0), ("c", math.nan), ("d", 0.5)]
    schema = pa.schema([("user", pa.string()), ("at", pa.float64()), ("n", pa.float64())])
    rows = [{"user": user, "at": 1.0, "n": n} for user, n in values]
    flow = all_keys_flow(ranked(EventClock("at", "0s"), TumblingWindower("10s"), 3, win.Max("n")))
    for form in (list, lambda some: pa.RecordBatch.from_pylist(some, schema=schema)):
        with TestDriver(flow, now=START) as t:
            t.send("in", form(rows))
            t.end()
            ((_, (_, ranking)),) = t.take("down")
        assert [key for key, _ in ranking] == ["c", "a", "b"]


def test_the_last_timestamp_of_a_window_may_be_that_of_a_key_without_a_rank() -> None:
    times = [("a", 1.0), ("a", 2.0), ("b", 9.0), ("c", 5.0)]
    rows = [{"user": user, "at": at, "n": 1} for user, at in times]
    clock, windower = EventClock("at", "0s"), TumblingWindower("10s")
    for by in (win.Count(), win.Collect("n")):  # Only counts are columns.
        flow = all_keys_flow(
            lambda s, by=by: win.top_n("w", s, clock, windower, 1, by, timestamp="last")
        )
        with TestDriver(flow, now=START, shards=1) as t:
            t.send("in", as_records(rows))
            t.end()
            ((_, (window, ranking)),) = t.take("down")
        assert (window.timestamp.second, ranking[0][0]) == (9, "a")


def test_columns_are_reduced_before_rows_become_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    from flow_windowing.all_keys import RankChunk

    seen: list[int] = []
    rank = RankChunk.__call__

    def counting(self: RankChunk, keys: Any, values: Any) -> Any:
        seen.append(len(keys))
        return rank(self, keys, values)

    monkeypatch.setattr(RankChunk, "__call__", counting)
    rows = [{"user": f"u{n}", "at": 1.0, "n": n % 50} for n in range(1_000)]
    add = ranked(EventClock("at", "0s"), TumblingWindower("10s"), 3, win.Sum("n"))
    with TestDriver(all_keys_flow(add), now=START, shards=1) as t:
        t.send("in", as_records(rows))
        t.end()
        ((_, (_, ranking)),) = t.take("down")
    assert ranking == [("u149", 49), ("u199", 49), ("u249", 49)]
    assert seen == [3]


def test_a_stream_without_a_reader_is_counted_only() -> None:
    flow = Dataflow("f")
    stream = op.input("in", flow, TestingSource([]))
    out = win.aggregate_window_all(
        "w", stream, EventClock("at", "0s"), TumblingWindower("10s"), n=win.Count()
    )
    op.output("closed", out.closed, TestingSink([]))
    with TestDriver(flow) as t:
        t.send("in", [("k", {"at": 10}), ("k", {"at": 3})])
        t.end()
        assert len(t.received("closed")) == 1
        assert t.stats.counts["w.partial", "late"] == 1
