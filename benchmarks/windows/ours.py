"""The contestants of this library: streaming with recovery, batch, and in process.

In streaming runs system time stands still, so that no value is late, however slow the machine is.
"""

from __future__ import annotations

import gc
import pickle
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.windows.data import START
from benchmarks.windows.epochs import EpochTimes, span
from benchmarks.windows.flows import PickledSink, PickledSource, folding_flow, parquet_flow, plain
from benchmarks.windows.job import Figure, Job
from flow import Dataflow, EpochReport, Summary, run
from flow.engine.spark.session.session import SparkSettings, make_session
from flow.testing import TestDriver, TestingSink, TestingSource
from recovery import RecoveryConfig

DRIVER_ITEMS = 100_000
"""The number of items that the in-process driver reads in an epoch."""

MakeFlow = Callable[[str, str], Dataflow]
"""A function that returns a flow from an input folder to an output folder."""


def streaming(job: Job) -> Figure:
    """Return the seconds from the start of the first epoch of data to the end of the last."""
    return _streaming(job, _columns(job), to_the_last_window=False)


def streaming_whole(job: Job) -> Figure:
    """Return the seconds to the end of the epoch that closes all windows."""
    return _streaming(job, _columns(job), to_the_last_window=True)


def streaming_objects(job: Job) -> Figure:
    """Return the seconds of `streaming_whole` for objects and Python functions."""
    return _streaming(job, _objects(job), to_the_last_window=True)


def batch(job: Job) -> Figure:
    """Return the seconds of a whole call of `run`, after a warm-up of Spark."""
    return _batch(job, _columns(job))


def batch_objects(job: Job) -> Figure:
    """Return the seconds of `batch` for objects and Python functions."""
    return _batch(job, _objects(job))


def in_process_objects(job: Job) -> Figure:
    """Return the seconds of the in-process driver alone, with items and results in memory."""
    flow = folding_flow(TestingSource(()), TestingSink([]))
    _drive(flow, _loaded(job.warm))
    items = _loaded(job.data)
    gc.freeze()  # The time should not include a search for garbage among all items.
    started = time.perf_counter()
    results = _drive(flow, items)
    seconds = time.perf_counter() - started
    Path(job.out).mkdir()
    rows = [plain(item) for item in results]
    (Path(job.out) / "all.pickle").write_bytes(pickle.dumps(rows))
    return Figure(seconds)


def _drive(flow: Dataflow, items: list[Any]) -> list[Any]:
    with TestDriver(flow) as driver:
        for first in range(0, len(items), DRIVER_ITEMS):
            driver.send("events", items[first : first + DRIVER_ITEMS])
        driver.end()
        return driver.received("out")


def _loaded(folder: str) -> list[Any]:
    files = sorted(Path(folder).glob("*.objects"))
    return [item for path in files for item in pickle.loads(path.read_bytes())]


def session(job: Job) -> SparkSession:
    """Return a session with the library's settings, on the job's number of cores."""
    conf = {str(name): str(value) for name, value in job.settings.get("conf", {}).items()}
    return make_session("benchmark", SparkSettings(f"local[{job.cores}]", conf))


def _columns(job: Job) -> MakeFlow:
    upstream = job.settings.get("upstream", "hold")
    return lambda data, out: parquet_flow(job.windows, data, out, job.epoch_rows, upstream)


def _objects(job: Job) -> MakeFlow:
    def make(data: str, out: str) -> Dataflow:
        return folding_flow(PickledSource(data, job.rows, job.epoch_rows), PickledSink(out))

    return make


def _streaming(job: Job, make: MakeFlow, to_the_last_window: bool) -> Figure:
    spark = session(job)
    scratch = Path(job.scratch)
    run(
        make(job.warm, f"{scratch}/warm"),
        spark=spark,
        recovery=RecoveryConfig(scratch / "first"),
        system_time=START,
    )
    times, rows = EpochTimes(spark), Counter[int]()
    times.taken()

    def on_epoch(report: EpochReport) -> None:
        rows[report.epoch] = report.count("events", "out")

    summary = run(
        make(job.data, job.out),
        spark=spark,
        recovery=RecoveryConfig(scratch / "second"),
        system_time=START,
        on_epoch=on_epoch,
    )
    epochs = times.taken()
    _check(sum(rows.values()), _late(summary), job.rows)
    of_data = max(epoch for epoch, count in rows.items() if count)
    last = epochs[-1].number if to_the_last_window else of_data
    return Figure(span(epochs[job.skipped :], last), {"epochs": [one.progress for one in epochs]})


def _batch(job: Job, make: MakeFlow) -> Figure:
    spark = session(job)
    run(make(job.warm, f"{job.scratch}/warm"), spark=spark, engine="batch")
    flow = make(job.data, job.out)
    started = time.perf_counter()
    summary = run(flow, spark=spark, engine="batch")
    seconds = time.perf_counter() - started
    _check(summary.count("events", "out"), _late(summary), job.rows)
    return Figure(seconds)


def _late(summary: Summary) -> int:
    return sum(count for (_, name), count in summary.counts.items() if name == "late")


def _check(read: int, late: int, rows: int) -> None:
    if read != rows or late:
        raise SystemExit(f"{read} of {rows} rows were read, {late} were late: this is no benchmark")
