"""The cost of many keys in state: the time of an epoch that touches few of them, and memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

import flow.operators as op
import flow_windowing as win
from benchmarks.windows.data import START
from benchmarks.windows.epochs import EpochTimes
from benchmarks.windows.job import Figure, Job
from benchmarks.windows.memory import WorkerMemory
from benchmarks.windows.ours import session
from flow import Dataflow, run
from flow.connectors.files import ParquetSink
from flow.connectors.source import PartitionedSource
from flow.instants import instant_us
from recovery import RecoveryConfig

TOUCHED = 1_000
TOUCHES = 20
SKIPPED = 5
"""The number of epochs with few keys before the measured ones."""
MORE_LOADS = 5
"""The number of further epochs as large as those that load the keys, for the memory."""
PARTITIONS = 2


@dataclass(frozen=True)
class Touches(PartitionedSource[pa.RecordBatch]):
    """Source of every key once, in epochs of equal size, and then of epochs with random keys.

    Args:
        keys: the number of keys.
        per_epoch: the number of keys in each of the first epochs.
        touched: the number of keys in each later epoch.
        touches: the number of later epochs.
    """

    keys: int
    per_epoch: int
    touched: int
    touches: int

    @property
    def loads(self) -> int:
        """The number of epochs that load the keys."""
        return -(-self.keys // self.per_epoch)

    @override
    def partitions(self) -> Sequence[str]:
        return [str(number) for number in range(PARTITIONS)]

    @override
    def first_offset(self, partition: str) -> int:
        return 0

    @override
    def next_offset(self, partition: str, start: int) -> int | None:
        return None if start >= self.loads + self.touches else start + 1

    @override
    def read_partition(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        for epoch in range(start, end):
            yield _batch(self._ids(epoch)[int(partition) :: PARTITIONS], epoch)

    def _ids(self, epoch: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        first = epoch * self.per_epoch
        if epoch < self.loads:
            return np.arange(first, min(self.keys, first + self.per_epoch))
        return np.random.default_rng(epoch).choice(self.keys, self.touched, replace=False)


def _batch(ids: np.ndarray[tuple[int], np.dtype[np.int64]], epoch: int) -> pa.RecordBatch:
    names = pc.binary_join_element_wise("key-", pc.cast(pa.array(ids), pa.string()), "")
    times = np.full(len(ids), instant_us(START) + epoch * 1_000)
    columns = [names, pa.array(times, pa.timestamp("us", "UTC")), pa.array(np.ones(len(ids)))]
    return pa.record_batch(columns, ["key", "ts", "amount"])


def few_keys(job: Job) -> Figure:
    """Return the median milliseconds of an epoch that touches a thousand of all keys."""
    source = Touches(int(job.settings["keys"]), job.epoch_rows, TOUCHED, TOUCHES)
    times = EpochTimes(session(job))
    _run(job, source)
    return _median(times, source)


def held_values(job: Job) -> Figure:
    """Return the median milliseconds of an epoch of a thousand values of a key that holds many.

    The values wait for a watermark that does not reach them, and are in the list of an open window.
    """
    source = Touches(int(job.settings["keys"]), job.epoch_rows, TOUCHED, TOUCHES)
    times = EpochTimes(session(job))
    flow = Dataflow("held_values")
    keyed = op.key_on("by_key", op.input("events", flow, source), lambda _: "key")
    clock: win.EventClock[Any] = win.EventClock("ts", "1000d")
    out = win.collect_window("windows", keyed, clock, win.TumblingWindower("1d"))
    now = win.EventClock("ts", "0s")
    listed = win.collect_window("list", keyed, now, win.TumblingWindower("10000d"))
    op.output("out", op.merge("both", out.down, listed.down), ParquetSink(job.out))
    summary = run(flow, recovery=RecoveryConfig(job.scratch), drain=False, system_time=START)
    held = summary.gauges["windows", "buffered_values"]
    if held != source.keys + TOUCHES * TOUCHED:
        raise SystemExit(f"a key should hold {source.keys + TOUCHES * TOUCHED}, it holds {held}")
    return _median(times, source)


def _median(times: EpochTimes, source: Touches) -> Figure:
    """Return the median milliseconds of the epochs after those that load the state."""
    epochs = times.taken()[source.loads + SKIPPED : source.loads + TOUCHES]
    milliseconds = [1000 * one.seconds for one in epochs]
    return Figure(statistics.median(milliseconds), {"epochs": [one.progress for one in epochs]})


def memory(job: Job) -> Figure:
    """Return the peak megabytes of the largest Python worker."""
    per_epoch = int(job.settings["per_epoch"])
    source = Touches(int(job.settings["keys"]), per_epoch, per_epoch, MORE_LOADS)
    session(job)
    with WorkerMemory() as used:
        _run(job, source)
    return Figure(used.largest_megabytes, {"workers": used.megabytes})


def _run(job: Job, source: Touches) -> None:
    """Run a flow whose windows of a day stay open, so that all keys stay in state."""
    flow = Dataflow("large_state")
    keyed = op.key_on("by_key", op.input("events", flow, source), "key")
    clock: win.EventClock[Any] = win.EventClock("ts", "10s")
    days = win.TumblingWindower("1d")
    out = win.aggregate_window("windows", keyed, clock, days, total=win.Sum("amount"))
    op.output("out", out.down, ParquetSink(job.out))
    summary = run(flow, recovery=RecoveryConfig(job.scratch), drain=False, system_time=START)
    keys = summary.gauges["windows", "keys"]
    if keys != source.keys or summary.stopped:
        raise SystemExit(f"there should be {source.keys} keys in state, there are {keys}")
