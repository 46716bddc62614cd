"""Seconds of many calls that wait: `op.map_async` in process, and in a batch on Spark.

Run with ``python benchmarks/calls.py [--calls N] [--wait MILLISECONDS] [--capacity N]``. Each call
sleeps in the event loop, as a request that waits for its answer does. *Ideal* is the number of
calls times the wait, divided by the capacity. In the batch one task makes the calls; *calls* is the
time that it works in the step, and *whole* is the whole run in a session that is warm.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from functools import partial

import flow.operators as op
from flow import Dataflow, EpochReport, run
from flow.engine.spark.session.session import SparkSettings, make_session
from flow.testing import TestDriver, TestingSink, TestingSource


async def wait(seconds: float, item: int) -> int:
    """Wait, and return the item."""
    await asyncio.sleep(seconds)
    return item


def make_flow(calls: int, wait_ms: int, capacity: int) -> tuple[Dataflow, list[int]]:
    """Return a flow that makes the calls, and the list of their results."""
    flow, out = Dataflow("calls"), list[int]()
    numbers = op.input("numbers", flow, TestingSource(range(calls), batch_size=calls))
    called = op.map_async("call", numbers, partial(wait, wait_ms / 1000), capacity=capacity)
    op.output("out", called, TestingSink(out))
    return flow, out


def in_process(calls: int, wait_ms: int, capacity: int) -> float:
    """Return the seconds of an epoch of the in-process driver."""
    flow, _ = make_flow(calls, wait_ms, capacity)
    with TestDriver(flow) as driver:
        started = time.perf_counter()
        driver.send("numbers", range(calls))
        seconds = time.perf_counter() - started
        check(len(driver.received("out")), calls)
    return seconds


def batch(calls: int, wait_ms: int, capacity: int) -> tuple[float, float]:
    """Return the seconds that the step of a batch works, and those of the whole run."""
    flow, out = make_flow(calls, wait_ms, capacity)
    busy: list[float] = []

    def on_epoch(report: EpochReport) -> None:
        busy.append(report.busy["call"])

    started = time.perf_counter()
    run(flow, engine="batch", on_epoch=on_epoch)
    whole = time.perf_counter() - started
    check(len(out), calls)
    return sum(busy), whole


def check(received: int, calls: int) -> None:
    """Check that every call has a result."""
    if received != calls:
        raise RuntimeError(f"{received} results of {calls} calls")


def main() -> None:
    """Print the seconds of each engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--wait", type=int, default=50, help="milliseconds")
    parser.add_argument("--capacity", type=int, default=100)
    options = parser.parse_args()
    work = options.calls, options.wait, options.capacity
    print(f"ideal       {options.calls * options.wait / options.capacity / 1000:6.2f} s")
    print(f"in process  {in_process(*work):6.2f} s")
    make_session("calls", SparkSettings("local[2]"))
    batch(*work)
    calls_s, whole_s = batch(*work)
    print(f"batch       {calls_s:6.2f} s of calls, {whole_s:.2f} s whole")


if __name__ == "__main__":
    main()
