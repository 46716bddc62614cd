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

PHASES = {"source": "reading", "keyed step": "levels", "sink": "sinks"}
"""The phase of each part of a flow that can be slow; an item names the part that sleeps at it."""


def napping(part: str, value: str) -> str:
    if value == part:
        sleep(NAP)
    return value


class SlowSource(TestingSource):
    @override
    def read(self, split: Split) -> Iterator[Batch]:
        for batch in super().read(split):
            assert isinstance(batch, list)
            yield [napping("source", value) for value in batch]


class SlowSink(TestingSink):
    @override
    def write(self, context: WriteContext, items: Iterator[Written]) -> Any:
        batches = list(items)
        for batch in batches:
            rows = batch if isinstance(batch, list) else [("a", "sink")]
            for _, part in rows:
                napping("sink", part)
        return super().write(context, iter(batches))


@pytest.mark.extended
def test_the_longest_phase_is_that_of_the_slow_part(spark: SparkSession) -> None:
    """Each epoch has another slow part; in the first, Spark is not warm."""
    flow, reports = Dataflow("pairs"), list[EpochReport]()
    parts = op.input("in", flow, SlowSource(["none", *PHASES], batch_size=1))
    pairs = op.map("pairs", parts, lambda part: ("a", part))
    keyed = op.stateful_map("keyed", pairs, lambda s, part: (s, napping("keyed step", part)))
    op.output("out", keyed, SlowSink([]))
    run(flow, spark=spark, engine="streaming", shards=2, partitions=2, on_epoch=reports.append)
    _, *epochs = (report.phases for report in reports if report.count("in", "out"))
    for phases, (part, phase) in zip(epochs, PHASES.items(), strict=True):
        assert NAP <= phases[phase] < NAP + 1.0, part
        assert max(phases, key=phases.__getitem__) == phase, part


def slow_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    sleep(NAP)
    yield from batches


@pytest.mark.extended
def test_a_batch_has_the_phases_of_its_only_job_and_reads_a_frame_while_tasks_wait(
    spark: SparkSession,
) -> None:
    frame = spark.range(0, 1, 1, 1).mapInArrow(slow_rows, "id long")
    flow, reports = Dataflow("frame"), list[EpochReport]()
    op.output("out", op.input("in", flow, DataFrameSource(frame)), SlowSink([]))
    run(flow, spark=spark, engine="batch", shards=2, partitions=2, on_epoch=reports.append)
    (phases,) = (report.phases for report in reports)
    # The frame's worker already sleeps while Spark starts the worker of the reading.
    assert 0.5 < phases["reading"] < NAP + 1.0
    assert NAP <= phases["sinks"] < NAP + 1.0
    assert phases["levels"] < 0.5
