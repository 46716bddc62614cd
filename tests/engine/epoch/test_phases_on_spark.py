"""The phases of a job on Spark: the slow part of a flow is the longest phase."""

from __future__ import annotations

from collections.abc import Iterator
from time import sleep
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typing_extensions import override

from flow import EpochReport, run
from flow.connectors.dataframe import DataFrameSource
from flow.connectors.sink import SinkBatch, WriteContext
from flow.testing import TestingSink
from tests.support.one_stream import a_flow, as_read

pytestmark = pytest.mark.spark

NAP = 2.5
"""Seconds that a slow part sleeps, more than Spark needs for a job on a loaded machine."""


class SlowSink(TestingSink):
    @override
    def write(self, context: WriteContext, items: Iterator[SinkBatch]) -> Any:
        batches = list(items)
        sleep(NAP * len(batches))
        return super().write(context, iter(batches))


def slow_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    sleep(NAP)
    yield from batches


@pytest.mark.extended
def test_a_batch_has_the_phases_of_its_job_and_reads_a_frame_meanwhile(spark: SparkSession) -> None:
    frame = spark.range(0, 1, 1, 1).mapInArrow(slow_rows, "id long")
    reports: list[EpochReport] = []
    flow = a_flow(as_read, source=DataFrameSource(frame), sink=SlowSink([]))
    run(flow, spark=spark, engine="batch", shards=2, partitions=2, on_epoch=reports.append)
    (phases,) = (report.phases for report in reports)
    # The frame's worker already sleeps while Spark starts the worker of the reading.
    # A part that counted twice would have two naps.
    assert 0.5 < phases["reading"] < 2 * NAP
    assert NAP <= phases["sinks"] < 2 * NAP
    assert phases["steps"] < 0.5
