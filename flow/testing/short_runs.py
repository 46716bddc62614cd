"""Runs of a few operators or of one source, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import flow.operators as op
from flow.connectors.source import MemoryLog, Source
from flow.dataflow import Dataflow, Stream
from flow.engine.feed.slices import plan_everything
from flow.testing.driver import TestDriver
from flow.testing.lists import TestingSink, TestingSource, items_of

X = TypeVar("X")


def run_once(items: Iterable[Any], build: Callable[[Stream[Any]], Stream[Any]]) -> list[Any]:
    """Run a few operators over items without Spark, and return the items of the last stream.

    >>> import flow.operators as op
    >>> run_once([1, 2], lambda s: op.map("double", s, lambda x: x * 2))
    [2, 4]
    """
    flow = Dataflow("once")
    op.output("out", build(op.input("in", flow, TestingSource(()))), TestingSink([]))
    with TestDriver(flow) as driver:
        driver.send("in", items)
        driver.end()
        return driver.received("out")


def run_source(source: Source[X]) -> list[X]:
    """Read a bounded source to its end, as an engine would, and return its items.

    Raises:
        SourceError: if an input cannot be read, also with ``on_invalid="drop"``.
    """
    planner = source.planner(MemoryLog(), parallelism=2)
    try:
        slices = plan_everything({"source": planner})["source"]
    finally:
        planner.close()
    splits = [
        split
        for one in slices
        for split in sorted(one.splits, key=lambda split: (split.partition, split.order))
    ]
    return [item for split in splits for batch in source.read(split) for item in items_of(batch)]
