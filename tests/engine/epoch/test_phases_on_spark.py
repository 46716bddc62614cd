"""The phases of a job on Spark: the slow part of a flow is the longest phase."""

from __future__ import annotations

from collections.abc import Iterator
from time import sleep
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typing_extensions import override

import flow.operators as op
from flow import Dataflow, EpochReport, run
from flow.connectors.dataframe import DataFrameSource
from flow.connectors.sink import WriteContext, Written
from flow.connectors.source import Batch, Split
from flow.testing import TestingSink, TestingSource

pytestmark = pytest.mark.spark

NAP = 2.5
"""Seconds that a slow part sleeps, more than Spark needs for a job on a loaded machine."""

QUICK, SLOW = 0, 1
"""Items: slow parts sleep at the second one, in an epoch for which Spark is warm."""


def napping(value: int, is_slow: bool = True) -> int:
    if is_slow and value == SLOW:
        sleep(NAP)
    return value


class SlowSource(TestingSource):
    @override
    def read(self, split: Split) -> Iterator[Batch]:
        for batch in super().read(split):
            assert isinstance(batch, list)
            yield [napping(value) for value in batch]


class SlowSink(TestingSink):
    @override
    def write(self, context: WriteContext, items: Iterator[Written]) -> Any:
        batches = list(items)
        for batch in batches:
            assert isinstance(batch, list)
            for _, value in batch:
                napping(value)
        return super().write(context, iter(batches))


def pairs_flow(slow: str, *, is_keyed: bool) -> Dataflow:
    """Return a flow whose source, step before a shuffle, keyed step or sink is slow."""
    flow = Dataflow("pairs")
    source = SlowSource if slow == "source" else TestingSource
    numbers = op.input("in", flow, source([QUICK, SLOW], batch_size=1))
    pairs = op.map("pairs", numbers, lambda n: ("a", napping(n, slow == "step")))
    if is_keyed:
        pairs = op.stateful_map("keyed", pairs, lambda s, n: (n, napping(n, slow == "keyed step")))
    op.output("out", pairs, (SlowSink if slow == "sink" else TestingSink)([]))
    return flow


@pytest.mark.parametrize(
    ("slow", "phase", "is_keyed"),
    [
        ("source", "reading", True),
        ("step", "levels", False),
        ("keyed step", "levels", True),
        ("sink", "sinks", True),
    ],
)
def test_the_longest_phase_is_that_of_the_slow_part(
    spark: SparkSession, slow: str, phase: str, is_keyed: bool
) -> None:
    reports: list[EpochReport] = []
    flow = pairs_flow(slow, is_keyed=is_keyed)
    run(flow, spark=spark, engine="streaming", shards=2, partitions=2, on_epoch=reports.append)
    _, second = (report.phases for report in reports if report.count("in", "out"))
    assert NAP <= second[phase] < NAP + 1.0
    assert max(second, key=second.__getitem__) == phase, second


def slow_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    sleep(NAP)
    yield from batches


def test_a_data_frame_is_read_while_tasks_wait_for_its_rows(spark: SparkSession) -> None:
    frame = spark.range(0, 1, 1, 1).mapInArrow(slow_rows, "id long")
    flow = Dataflow("frame")
    op.output("out", op.input("in", flow, DataFrameSource(frame)), TestingSink([]))
    reports: list[EpochReport] = []
    run(flow, spark=spark, engine="batch", shards=2, partitions=2, on_epoch=reports.append)
    (phases,) = (report.phases for report in reports)
    # The frame's worker already sleeps while Spark starts the worker of the reading.
    assert 0.5 < phases["reading"] < NAP + 1.0
    assert phases["levels"] + phases["sinks"] < 0.5


def test_a_batch_has_the_phases_of_its_only_job(spark: SparkSession) -> None:
    reports: list[EpochReport] = []
    flow = pairs_flow("sink", is_keyed=False)
    run(flow, spark=spark, engine="batch", shards=2, partitions=2, on_epoch=reports.append)
    (phases,) = (report.phases for report in reports)
    assert NAP <= phases["sinks"] < NAP + 1.0
    assert phases["reading"] + phases["levels"] < 1.0
