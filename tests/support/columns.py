"""Steps of `aggregate_window`, and random rows, clocks and windowers for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta, timezone
from typing import Any, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

import flow_windowing as win
from flow import Dataflow
from flow.columns.record_batches import rows_as_dicts
from flow.testing import TestDriver
from tests.support.window_flow import START, results_by_key, window_flow

SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("whole", pa.int64()),
        ("real", pa.float64()),
        ("text", pa.string()),
    ]
)

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Epoch:
    """Rows that come in together, some time after those before."""

    rows: list[Row]
    later: int = 0


@dataclass(frozen=True)
class Step:
    """A windowing step: what to aggregate, and how."""

    clock: Any
    windower: Any
    aggregates: dict[str, Any] = field(default_factory=lambda: dict(NUMBERS))
    ordered: bool = False
    timestamp: Any = None
    emit: Any = "close"

    def flow(self) -> Dataflow:
        return window_flow(
            self.clock,
            self.windower,
            self.aggregates,
            ordered=self.ordered,
            timestamp=self.timestamp,
            emit=self.emit,
        )


NUMBERS: dict[str, Any] = {
    "n": win.Count(),
    "known": win.Count("real"),
    "whole_sum": win.Sum("whole"),
    "real_sum": win.Sum("real"),
    "whole_mean": win.Mean("whole"),
    "real_mean": win.Mean("real"),
    "least": win.Min("whole"),
    "most": win.Max("real"),
    "low": win.Min("real"),
}
EDGES: dict[str, Any] = {
    "first": win.First("whole"),
    "last": win.Last("real"),
    "earliest": win.Earliest("real"),
    "latest": win.Latest("whole"),
    "n": win.Count(),
}
OTHERS: dict[str, Any] = {
    "n": win.Count(),
    "total": win.Sum("whole"),
    "texts": win.Collect("text"),
    "last": win.Last("whole"),
    "texts_first": win.Earliest("text"),
    "top": win.Max("text"),
}
PICKED: dict[str, Any] = {
    "texts": win.CountDistinct("text"),
    "median": win.Quantile("real", 0.5),
    "often": win.TopK("text", 1),
    "most": win.MaxK("real", 2),
    "least": win.MinKUnique("whole", 2),
    "different": win.CollectUnique("whole"),
    "spread": win.StdDev("whole"),
}


def as_records(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def as_dicts(rows: list[Row]) -> list[Row]:
    return rows_as_dicts(as_records(rows))


def play(driver: TestDriver, epochs: list[Epoch], form: Any) -> None:
    for epoch in epochs:
        if epoch.later:
            driver.advance(timedelta(seconds=epoch.later))
        driver.send("in", form(epoch.rows))


Way: TypeAlias = tuple[bool, Callable[[list[Row]], Any]]
"""True if an epoch runs key by key, and the form of its rows."""

WAYS: list[Way] = [(True, as_dicts), (False, as_dicts), (False, as_records)]


def outcome(step: Step, epochs: list[Epoch], form: Any, shards: int = 2) -> dict[str, Any]:
    with TestDriver(step.flow(), now=START, shards=shards) as t:
        play(t, epochs, form)
        t.end()
        return results_by_key(t)


def equal_rows(count: int, **fields: Any) -> list[Row]:
    base = {"user": "a", "ts": START, "whole": 1, "real": 0.5, "text": "x"}
    return [{**base, **fields} for _ in range(count)]


def rows_at(moments: Iterable[tuple[str, int]], first: int = 0) -> list[Row]:
    """Return rows of users and seconds after `START`, numbered in order of arrival."""
    return [
        {"user": user, "ts": START + timedelta(seconds=second), "whole": number, "real": number / 4}
        for number, (user, second) in enumerate(moments, first)
    ]


# --- random rows, clocks and windowers -----------------------------------------------------------

seconds = st.one_of(st.integers(-90, 90), st.integers(-3, 3))
reals = st.one_of(
    st.none(),
    st.sampled_from([0.1, 0.2, -0.3, 0.0, 1e16, 1.5, 2.0**-40]),
    st.sampled_from([-0.0, math.nan, math.inf, -math.inf, 1e300, 1e-300]),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
)
rows = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["a", "b", "c", ""]),
        "ts": seconds.map(lambda s: START + timedelta(seconds=s)),
        "whole": st.one_of(st.none(), st.integers(-5, 5), st.just(2**62), st.just(-(2**62))),
        "real": reals,
        "text": st.sampled_from(["x", "y", None]),
    }
)
epochs_of_rows = st.lists(
    st.builds(Epoch, st.lists(rows, max_size=9), st.sampled_from([0, 0, 1, 30, 200])), max_size=5
)
waits = st.sampled_from(["0s", "5s", "1m", timedelta.max])
stream_clocks = st.builds(
    win.EventClock,
    st.just("ts"),
    waits,
    scope=st.just("stream"),
    on_idle=st.sampled_from(["advance", "hold"]),
    max_ahead=st.sampled_from([None, "30s"]),
)
clocks = st.one_of(
    st.just(win.SystemClock()),
    st.builds(
        win.EventClock,
        st.just("ts"),
        waits,
        on_idle=st.sampled_from(["advance", "hold"]),
        max_ahead=st.sampled_from([None, "30s"]),
        forget_after=st.sampled_from([None, "40s"]),
    ),
    stream_clocks,
)
graces = st.sampled_from([None, "0s", "20s"])
sides = st.sampled_from(["left", "right"])
# In this zone a day starts at 10:30 UTC, where the rows are.
NEW_DAY = timezone(timedelta(hours=13, minutes=30))
windowers = st.one_of(
    st.builds(win.TumblingWindower, st.sampled_from(["10s", "1m"]), closed=sides, grace=graces),
    st.builds(
        win.SlidingWindower,
        st.sampled_from(["10s", "20s"]),
        st.sampled_from(["5s", "7s", "30s"]),
        closed=sides,
        grace=graces,
    ),
    st.builds(
        win.CalendarWindower, st.sampled_from(["day", "week"]), st.just(NEW_DAY), grace=graces
    ),
    st.builds(
        win.CountWindower, st.integers(1, 4), st.sampled_from([None, 1, 2, 3, 6]), st.booleans()
    ),
    st.builds(
        win.SessionWindower, st.sampled_from(["2s", "15s", "1m"]), st.booleans(), grace=graces
    ),
)
steps = st.builds(
    Step,
    clocks,
    windowers,
    st.sampled_from([NUMBERS, OTHERS, EDGES, PICKED]),
    st.booleans(),
    st.sampled_from([None, "open", "close", "last"]),
    st.sampled_from(["close", "close", "epoch", "update"]),
)
