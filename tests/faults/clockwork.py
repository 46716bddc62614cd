"""A flow of many small and equal epochs: each is a minute of event time, with a value of each key.

Windows close all the time, so that state stays as large as it is.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.connectors.files import JsonLinesSink
from flow.testing import TestingSource
from tests.faults.shop import Size
from tests.faults.striking import Fault

START = datetime(2024, 5, 1, tzinfo=UTC)
KEYS = 20


def make_flow(home: Path, size: Size, fault: Fault) -> Dataflow:
    """The flow: counts of windows, and a total of each key, which is written now and then."""
    flow = Dataflow("clockwork")
    minutes = op.input("minutes", flow, TestingSource(list(range(size.epochs)), batch_size=1))
    keyed = op.key_on("by_key", op.flat_map("values", minutes, values_of), "key")
    windows = win.aggregate_window(
        "windows", keyed, win.EventClock("at", "1m"), win.TumblingWindower("5m"), n=win.Count()
    )
    op.output("write", op.map("row", windows.down, row_of), JsonLinesSink(home / "windows"))
    totals = op.filter("some", op.stateful_map("totals", keyed, add_one), is_round)
    op.output("write_totals", totals, JsonLinesSink(home / "totals"))
    return flow


def values_of(minute: int) -> list[dict[str, Any]]:
    """A value of each key."""
    at = (START + timedelta(minutes=minute)).isoformat()
    return [{"key": f"key-{number}", "at": at} for number in range(KEYS)]


def row_of(item: Any) -> dict[str, Any]:
    """A window as a row."""
    key, (window, counts) = item
    return {"key": key, "open": window.open_time.isoformat(), **counts}


def add_one(total: int | None, _value: Any) -> tuple[int, int]:
    """Count a value."""
    return (total or 0) + 1, (total or 0) + 1


def is_round(item: Any) -> bool:
    """Return True if a total is to be written."""
    return bool(item[1] % 100 == 0)
