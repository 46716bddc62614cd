"""A flow of many small and equal epochs, run in a process of its own.

``python -m tests.faults.clockwork HOME --epochs N``: each epoch is a minute of event time, with a
value of each of a few keys. Windows close all the time, so that state stays as large as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from typing_extensions import override

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSink
from flow.connectors.source import PartitionedSource
from recovery import RecoveryConfig

START = datetime(2024, 5, 1, tzinfo=UTC)
KEYS = 20
CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class Minutes(PartitionedSource[Any]):
    """A minute an epoch, until there have been so many."""

    count: int

    @override
    def partitions(self) -> Sequence[str]:
        return ["all"]

    @override
    def first_offset(self, partition: str) -> int:
        return 0

    @override
    def next_offset(self, partition: str, start: int) -> int | None:
        return start + 1 if start < self.count else None

    @override
    def read_partition(self, partition: str, start: int, end: int) -> Iterable[Sequence[Any]]:
        for minute in range(start, end):
            at = (START + timedelta(minutes=minute)).isoformat()
            yield [{"key": f"key-{number}", "at": at} for number in range(KEYS)]


def make_flow(home: Path, epochs: int) -> Dataflow:
    """The flow: counts of windows, and a total of each key, which is written now and then."""
    flow = Dataflow("clockwork")
    keyed = op.key_on("by_key", op.input("minutes", flow, Minutes(epochs)), "key")
    windows = win.aggregate_window(
        "windows",
        keyed,
        clock=win.EventClock("at", "1m"),
        windower=win.TumblingWindower("5m"),
        n=win.Count(),
    )
    op.output("write", op.map("row", windows.down, row_of), JsonLinesSink(home / "windows"))
    totals = op.filter("some", op.stateful_map("totals", keyed, add_one), is_round)
    op.output("write_totals", totals, JsonLinesSink(home / "totals"))
    return flow


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


def main() -> None:
    """Run the flow until it has done its epochs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--keep-epochs", type=int, required=True)
    parser.add_argument("--trigger")
    parser.add_argument("--conf", action="append", default=[])
    options = parser.parse_args()
    summary = run(
        make_flow(options.home, options.epochs),
        recovery=RecoveryConfig(options.home / CHECKPOINT, keep_epochs=options.keep_epochs),
        drain=False,
        trigger=options.trigger,
        master="local[2]",
        conf=dict(pair.split("=", 1) for pair in options.conf),
        partitions=2,
        on_epoch=lambda report: print(f"epoch {report.epoch}", flush=True),  # noqa: T201
    )
    print(f"done after {summary.epochs} epochs")  # noqa: T201


if __name__ == "__main__":
    main()
