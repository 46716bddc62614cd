"""What it costs to have many keys in state: the time of an epoch that touches few, and memory."""

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
"""Of the epochs that touch few keys, how many are not timed."""
MORE_LOADS = 5
"""Epochs of the size of those that brought the keys, while memory is watched."""
PARTITIONS = 2


@dataclass(frozen=True)
class Touches(PartitionedSource[pa.RecordBatch]):
    """Every key once, in epochs of equal size, then epochs that touch a few at random.

    Args:
        keys: how many keys there are.
        per_epoch: how many an epoch brings at first.
        touched: how many a later epoch touches.
        touches: how many such epochs there are.
    """

    keys: int
    per_epoch: int
    touched: int
    touches: int

    @property
    def loads(self) -> int:
        """How many epochs bring the keys."""
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
    """Milliseconds of an epoch that touches a thousand of all keys, the median of several."""
    source = Touches(int(job.settings["keys"]), job.epoch_rows, TOUCHED, TOUCHES)
    spark = session(job)
    times = EpochTimes(spark)
    _run(job, source)
    epochs = times.taken()[source.loads + SKIPPED : source.loads + TOUCHES]
    milliseconds = [1000 * one.seconds for one in epochs]
    return Figure(statistics.median(milliseconds), {"epochs": [one.progress for one in epochs]})


def memory(job: Job) -> Figure:
    """Megabytes of the largest Python worker at its peak."""
    per_epoch = int(job.settings["per_epoch"])
    source = Touches(int(job.settings["keys"]), per_epoch, per_epoch, MORE_LOADS)
    session(job)
    with WorkerMemory() as used:
        _run(job, source)
    return Figure(used.largest_megabytes, {"workers": used.megabytes})


def _run(job: Job, source: Touches) -> None:
    """A window of a day, which does not close: all keys stay in state."""
    flow = Dataflow("large_state")
    keyed = op.key_on("by_key", op.input("events", flow, source), "key")
    clock: win.EventClock[Any] = win.EventClock("ts", "10s")
    days = win.TumblingWindower("1d")
    made = win.aggregate_window("windows", keyed, clock, days, total=win.Sum("amount"))
    op.output("out", made.down, ParquetSink(job.out))
    summary = run(flow, recovery=RecoveryConfig(job.scratch), drain=False, system_time=START)
    kept = summary.gauges["windows", "keys"]
    if kept != source.keys or summary.stopped:
        raise SystemExit(f"there should be {source.keys} keys in state, there are {kept}")
