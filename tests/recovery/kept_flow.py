"""A flow that keeps state of every kind in a checkpoint, for tests of the recovery tools.

System time stands at ten o'clock. Six values come, two an epoch::

    epoch     0            1            2            3
    key a     10:05  n=1   10:30  n=2   11:00  n=3
    key b     10:00  n=10  10:20  n=20  10:40  n=30   (nothing: the list of values ends)

The clocks wait for ten minutes. So in the end the watermark of a is at 10:50, that of b at 10:30,
and that of the whole stream at 10:50, where 10:40 was late.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.connectors.files import JsonLinesSource
from flow.testing import EOF, TestingSink, TestingSource
from flow_windowing import Count, EventClock, SessionWindower, Sum, TumblingWindower
from tests.recovery.checkpoints import run_flow

NOW = datetime(2023, 12, 14, 10, tzinfo=UTC)


@dataclass
class Basket:
    """State of a user-written class."""

    owner: str
    sizes: list[int]


TIMES = ("a 10:05 1", "b 10:00 10", "a 10:30 2", "b 10:20 20", "a 11:00 3", "b 10:40 30")
VALUES = [
    (key, {"at": f"2023-12-14T{clock_time}:00Z", "n": int(n)})
    for key, clock_time, n in map(str.split, TIMES)
]


def counted(count: int | None, value: Any) -> tuple[int, int]:
    return (count or 0) + 1, (count or 0) + 1


def filled(basket: Basket | None, value: Any) -> tuple[Basket, int]:
    sizes = [*basket.sizes, value["n"]] if basket else [value["n"]]
    return Basket("me", sizes), len(sizes)


def make_flow(directory: Path, values: list[Any]) -> Dataflow:
    flow = Dataflow("visits")
    stream = op.input("clicks", flow, TestingSource(values, batch_size=2))
    hold = EventClock("at", "10m", on_idle="hold")
    hour = TumblingWindower("1h")
    whole = EventClock("at", "10m", on_idle="hold", scope="stream")
    session = SessionWindower("30m")
    numbers = op.map_value("numbers", stream, lambda one: one["n"])
    hourly = win.aggregate_window(
        "hourly", stream, hold, hour, ordered=True, n=Count(), total=Sum(itemgetter("n"))
    )
    outputs = {
        "hourly": hourly.down,
        "sessions": win.collect_window("sessions", stream, EventClock("at", "10m"), session).down,
        "whole": win.collect_window("whole", stream, whole, hour).down,
        "baskets": op.stateful_map("baskets", stream, filled),
        "counts": op.stateful_map("counts", numbers, counted),
    }
    (directory / "names.jsonl").write_text('{"id": "a"}\n')
    names = op.input("names", flow, JsonLinesSource(directory / "names.jsonl"))
    outputs["named"] = op.stateful_map("named", op.key_on("by_id", names, "id"), counted)
    for name, out in outputs.items():
        op.output(f"{name}_out", out, TestingSink([]))
    return flow


def run_on(directory: Path, values: list[Any] | None = None) -> Path:
    """Run the flow and leave its windows open; returns its checkpoint."""
    checkpoint = directory / "checkpoint"
    flow = make_flow(directory, [*VALUES, EOF()] if values is None else values)
    run_flow(checkpoint, flow, system_time=NOW, partitions=2)
    return checkpoint
