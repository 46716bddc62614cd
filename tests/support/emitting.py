"""A flow of windows that emit before they close, and records for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import TestingSink, TestingSource
from flow_windowing import (
    Collect,
    Count,
    EventClock,
    Sum,
)

START = datetime(2023, 12, 14, 10, 30, tzinfo=UTC)
SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])
PATIENT = EventClock("ts", "1m")
AT_ONCE = EventClock("ts", "0s")
NUMBERS = {"n": Count(), "total": Sum("n")}
OTHERS = {"n": Count(), "numbers": Collect("n")}


def emitting(
    clock: Any,
    windower: Any,
    aggregates: dict[str, Any],
    ordered: bool = False,
    emit: Any = "epoch",
    timestamp: Any = None,
) -> Dataflow:
    made = Dataflow("emitting")
    stream = op.key_on("key", op.input("in", made, TestingSource([])), "user")
    out = win.aggregate_window(
        "w",
        stream,
        clock,
        windower,
        ordered=ordered,
        emit=emit,
        timestamp=timestamp,
        **aggregates,
    )
    for port in ("down", "late", "closed"):
        op.output(port, getattr(out, port), TestingSink([]))
    return made


def records(epoch: list[tuple[str, int]]) -> pa.RecordBatch:
    rows = [
        {"user": user, "ts": START + timedelta(seconds=second), "n": second}
        for user, second in epoch
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
