"""The flows that are timed on our side, made of public operators alone."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from typing_extensions import override

import flow.operators as op
import flow_windowing as win
from benchmarks.windows.data import HANDS, WAIT_SECONDS, dealt
from flow import Dataflow
from flow.connectors.files import ParquetSink, ParquetSource
from flow.connectors.sink import Sink, WriteContext, Written
from flow.connectors.source import PartitionedSource, Source
from flow.instants import instant_us

WAIT = f"{WAIT_SECONDS}s"
WINDOWERS: dict[str, Any] = {
    "tumbling": win.TumblingWindower("1m"),
    "sliding": win.SlidingWindower("1m", "15s"),
    # Spark's sessions end where the gap does; ours would also take in a value right at its end.
    "session": win.SessionWindower("30s", inclusive=False),
}
FIGURES: dict[str, dict[str, Any]] = {
    "tumbling": {"total": win.Sum("amount")},
    "sliding": {"total": win.Sum("amount"), "mean": win.Mean("amount")},
    "session": {"n": win.Count()},
}


def columns_flow(windows: str, source: Source[Any], sink: Sink[Any]) -> Dataflow:
    """Windows of records, by a key and a time that are columns."""
    flow = Dataflow("windows")
    keyed = op.key_on("by_key", op.input("events", flow, source), "key")
    clock: win.EventClock[Any] = win.EventClock("ts", wait_for_system_duration=WAIT)
    made = win.aggregate_window("windows", keyed, clock, WINDOWERS[windows], **FIGURES[windows])
    op.output("out", made.down, sink)
    return flow


def parquet_flow(windows: str, data: str, out: str, epoch_rows: int) -> Dataflow:
    """Windows from Parquet files to Parquet files."""
    source = ParquetSource(data, rows_per_epoch=epoch_rows)
    return columns_flow(windows, source, ParquetSink(out))


def folding_flow(source: Source[Any], sink: Sink[Any]) -> Dataflow:
    """Windows of Python objects, folded by Python functions."""
    flow = Dataflow("folding")
    events = op.input("events", flow, source)
    clock: win.EventClock[Any] = win.EventClock(itemgetter(0), wait_for_system_duration=WAIT)
    made = win.fold_window(
        "windows", events, clock, WINDOWERS["tumbling"], float, add, float.__add__
    )
    op.output("out", made.down, sink)
    return flow


def add(total: float, value: tuple[datetime, float]) -> float:
    """The folder."""
    return total + value[1]


@dataclass(frozen=True)
class PickledSource(PartitionedSource[Any]):
    """Reads files that hold a pickled list each, one after another, in as many partitions as hands.

    Args:
        folder: where they are.
        items: how many there are in all.
        per_epoch: how many an epoch reads, about.
    """

    folder: str
    items: int
    per_epoch: int

    @override
    def partitions(self) -> Sequence[str]:
        return [str(hand) for hand in range(HANDS)]

    @override
    def first_offset(self, partition: str) -> int:
        return 0

    @override
    def next_offset(self, partition: str, start: int) -> int | None:
        files = len(self._files())
        step = max(1, self.per_epoch * files // max(1, self.items))
        return None if start >= files else min(files, start + step)

    @override
    def read_partition(self, partition: str, start: int, end: int) -> Iterator[list[Any]]:
        for path in self._files()[start:end]:
            yield pickle.loads(dealt(path, int(partition)).read_bytes())

    def _files(self) -> list[Path]:
        return sorted(Path(self.folder).glob("*.objects"))


@dataclass(frozen=True)
class PickledSink(Sink[Any]):
    """Writes windows as pickled lists of ``(key, open_us, close_us, value)``."""

    folder: str

    @override
    def write(self, context: WriteContext, batches: Iterator[Written]) -> None:
        rows = [plain(item) for batch in batches for item in batch]
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        path = Path(self.folder) / f"{context.epoch:06d}-{uuid.uuid4().hex}.pickle"
        path.write_bytes(pickle.dumps(rows, pickle.HIGHEST_PROTOCOL))


def plain(item: Any) -> tuple[str, int, int, Any]:
    """A window that a flow emitted, as plain values."""
    key, (window, value) = item
    return key, instant_us(window.open_time), instant_us(window.close_time), value
