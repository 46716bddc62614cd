"""The flows of this library's contestants, made of public operators alone."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

import flow.operators as op
import flow_windowing as win
from benchmarks.windows.data import HANDS, LEAST_TRADE, WAIT_SECONDS, dealt
from flow import Dataflow
from flow.connectors.files import ParquetSink, ParquetSource
from flow.connectors.sink import Sink, SinkBatch, WriteContext
from flow.connectors.source import PartitionedSource, Source
from flow.instants import instant_us

WAIT = f"{WAIT_SECONDS}s"
WINDOWERS: dict[str, Any] = {
    "tumbling": win.TumblingWindower("1m"),
    "global": win.TumblingWindower("1m"),
    "sliding": win.SlidingWindower("1m", "15s"),
    # Values exactly a gap apart are in two sessions of Spark, so sessions here exclude the gap too.
    "session": win.SessionWindower("30s", inclusive=False),
}
FIGURES: dict[str, dict[str, Any]] = {
    "tumbling": {"total": win.Sum("amount")},
    "global": {"total": win.Sum("amount"), "mean": win.Mean("amount")},
    "sliding": {"total": win.Sum("amount"), "mean": win.Mean("amount")},
    "session": {"n": win.Count()},
}


def columns_flow(windows: str, source: Source[Any], sink: Sink[Any]) -> Dataflow:
    """Return a flow with windows of records, whose key and time are columns.

    The windows are those of each key, or "global" ones over all keys.
    """
    flow = Dataflow("windows")
    keyed = op.key_on("by_key", op.input("events", flow, source), "key")
    clock: win.EventClock[Any] = win.EventClock("ts", wait_for_system_duration=WAIT)
    add = win.aggregate_window_all if windows == "global" else win.aggregate_window
    out = add("windows", keyed, clock, WINDOWERS[windows], **FIGURES[windows])
    op.output("out", out.down, sink)
    return flow


def parquet_flow(
    windows: str, data: str, out: str, epoch_rows: int, upstream: Any = "hold"
) -> Dataflow:
    """Return a flow with windows, a join or a deduplication, from and to Parquet files."""
    source = ParquetSource(data, rows_per_epoch=epoch_rows)
    if windows == "join":
        return joined_flow(source, ParquetSink(out))
    if windows == "asof":
        return quoted_flow(source, ParquetSink(out))
    if windows == "dedup":
        return deduplicated_flow(source, ParquetSink(out))
    if windows == "levels":
        return two_level_flow(source, ParquetSink(out), upstream)
    return columns_flow(windows, source, ParquetSink(out))


def joined_flow(source: Source[Any], sink: Sink[Any]) -> Dataflow:
    """Return a flow that joins each event with those of its key up to a minute later."""
    flow = Dataflow("joined")
    keyed = op.key_on("by_key", op.input("events", flow, source), "key")
    clock: win.EventClock[Any] = win.EventClock("ts", wait_for_system_duration=WAIT)
    out = win.join_interval("join", keyed, keyed, clock, before="0s", after="1m")
    rows = partial(pair_rows, opened_by="left", closed_by="right")
    op.output("out", op.map_batches("rows", op.records("pairs", out.down), rows), sink)
    return flow


def deduplicated_flow(source: Source[Any], sink: Sink[Any]) -> Dataflow:
    """Return a flow that passes an event if none of its key has passed for a minute."""
    flow = Dataflow("deduplicated")
    keyed = op.key_on("by_key", op.input("events", flow, source), "key")
    clock: win.EventClock[Any] = win.EventClock("ts", wait_for_system_duration=WAIT)
    once = win.dedup("once", keyed, clock, "key", ttl="1m")
    op.output("out", op.map_batches("rows", op.records("events_once", once.down), event_rows), sink)
    return flow


def two_level_flow(source: Source[Any], sink: Sink[Any], upstream: Any) -> Dataflow:
    """Return a flow with a sum of each key and minute, and of these a sum of each hour.

    With `upstream` "ignore" a wait of three hours loses no minute: the minutes of a key leave
    together, for an epoch of up to two hours and a pause of the key.
    """
    flow = Dataflow("levels")
    keyed = op.key_on("by_key", op.input("events", flow, source), "key")
    clock: win.EventClock[Any] = win.EventClock("ts", wait_for_system_duration=WAIT)
    minutes = win.aggregate_window(
        "minutes", keyed, clock, WINDOWERS["tumbling"], total=win.Sum("amount")
    )
    rows = op.key_on("again", op.records("rows", minutes.down), "key")
    wait = "0s" if upstream == "hold" else "3h"
    opened: win.EventClock[Any] = win.EventClock("open_time", wait, upstream=upstream)
    hours = win.TumblingWindower("1h")
    out = win.aggregate_window_all("windows", rows, opened, hours, total=win.Sum("total"))
    op.output("out", out.down, sink)
    return flow


def event_rows(events: pa.RecordBatch) -> pa.RecordBatch:
    """Return events as rows, with the time of each as both of its bounds."""
    columns = [events["key"], events["ts"], events["ts"], events["amount"]]
    return pa.RecordBatch.from_arrays(columns, ["key", "open_time", "close_time", "amount"])


def pair_rows(pairs: pa.RecordBatch, opened_by: str, closed_by: str) -> pa.RecordBatch:
    """Return pairs of events as rows, whose times are those of the two events."""
    columns = {
        "key": pairs["key"],
        "open_time": pc.struct_field(pairs[opened_by], "ts"),
        "close_time": pc.struct_field(pairs[closed_by], "ts"),
        "left_amount": pc.struct_field(pairs["left"], "amount"),
        "right_amount": pc.struct_field(pairs["right"], "amount"),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def quoted_flow(source: Source[Any], sink: Sink[Any]) -> Dataflow:
    """Return a flow that joins each trade with the quote of its key up to a minute before it.

    Events of at least `LEAST_TRADE` are trades, the others are quotes.
    """
    flow = Dataflow("quoted")
    events = op.input("events", flow, source)
    trades, quotes = op.branch("is_trade", events, pc.field("amount") >= LEAST_TRADE)
    trades, quotes = op.key_on("trades", trades, "key"), op.key_on("quotes", quotes, "key")
    clock: win.EventClock[Any] = win.EventClock("ts", wait_for_system_duration=WAIT)
    out = win.join_asof("join", trades, quotes, clock, tolerance="1m", how="inner")
    rows = partial(pair_rows, opened_by="right", closed_by="left")
    op.output("out", op.map_batches("rows", op.records("pairs", out.down), rows), sink)
    return flow


def folding_flow(source: Source[Any], sink: Sink[Any]) -> Dataflow:
    """Return a flow with windows of Python objects, folded by Python functions."""
    flow = Dataflow("folding")
    events = op.input("events", flow, source)
    clock: win.EventClock[Any] = win.EventClock(itemgetter(0), wait_for_system_duration=WAIT)
    out = win.fold_window(
        "windows", events, clock, WINDOWERS["tumbling"], float, add, float.__add__
    )
    op.output("out", out.down, sink)
    return flow


def add(total: float, value: tuple[datetime, float]) -> float:
    """Return the fold of a total and a value."""
    return total + value[1]


@dataclass(frozen=True)
class PickledSource(PartitionedSource[Any]):
    """Source of files of pickled lists, one after another, in `HANDS` partitions.

    Args:
        folder: the folder of the files.
        items: the number of items in all files.
        per_epoch: the approximate number of items in an epoch.
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
    """Sink of windows, as pickled lists of ``(key, open_us, close_us, value)``."""

    folder: str

    @override
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> None:
        rows = [plain(item) for batch in batches for item in batch]
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        path = Path(self.folder) / f"{context.epoch:06d}-{uuid.uuid4().hex}.pickle"
        path.write_bytes(pickle.dumps(rows, pickle.HIGHEST_PROTOCOL))


def plain(item: Any) -> tuple[str, int, int, Any]:
    """Return an emitted window as plain values: ``(key, open_us, close_us, value)``."""
    key, (window, value) = item
    return key, instant_us(window.open_time), instant_us(window.close_time), value
