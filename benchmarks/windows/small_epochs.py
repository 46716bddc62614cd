"""The time of an epoch with a single item: the fixed work of Spark and of the engine."""

from __future__ import annotations

import statistics
from typing import Any

import flow.operators as op
import flow_windowing as win
from benchmarks.windows.data import START
from benchmarks.windows.epochs import EpochTimes
from benchmarks.windows.job import Figure, Job
from benchmarks.windows.ours import session
from flow import Dataflow, run
from flow.connectors.files import ParquetSink
from flow.testing import TestingSource
from recovery import RecoveryConfig

SKIPPED = 20
"""The number of epochs before the measured ones, while Spark warms up."""
TIMED = 40


def one_item(job: Job) -> Figure:
    """Return the median milliseconds of an epoch; the setting `levels` is the number of levels."""
    spark = session(job)
    times = EpochTimes(spark)
    settings = job.settings
    flow = flow_of_levels(int(settings["levels"]), job.out, settings.get("upstream", "hold"))
    run(flow, spark=spark, recovery=RecoveryConfig(job.scratch), drain=False, system_time=START)
    epochs = times.taken()[SKIPPED:]
    milliseconds = [1000 * one.seconds for one in epochs]
    return Figure(statistics.median(milliseconds), {"epochs": [one.progress for one in epochs]})


def flow_of_levels(levels: int, out: str, upstream: Any = "hold") -> Dataflow:
    """Return a flow in which each item closes the window of the item before.

    Args:
        levels: the number of levels.
        out: the folder of the results.
        upstream: as of an `EventClock`, for the windows of windows at the second level.
    """
    flow = Dataflow("small_epochs")
    items = [("key", _event(number)) for number in range(SKIPPED + TIMED)]
    events = op.input("events", flow, TestingSource(items, batch_size=1))
    clock: win.EventClock[Any] = win.EventClock("ts", "0s")
    minutes = win.TumblingWindower("1m")
    totals: Any = win.aggregate_window("sum", events, clock, minutes, total=win.Sum("amount")).down
    if levels > 1:
        minute = op.map("minute", totals, lambda item: ("all", _result(item)))
        clock = win.EventClock("ts", "1m", upstream=upstream)
        totals = win.aggregate_window("again", minute, clock, minutes, total=win.Sum("amount")).down
    op.output("out", totals, ParquetSink(out))
    return flow


def _event(number: int) -> dict[str, float]:
    return {"ts": START.timestamp() + 60 * number, "amount": 1.0}


def _result(item: Any) -> dict[str, float]:
    _, (window, figures) = item
    return {"ts": window.open_time.timestamp(), "amount": figures["total"]}
