"""A query of Spark that reads the files of a streaming flow as a stream of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, StepError, run
from flow.connectors.files import ParquetSink
from flow.connectors.sink import Sink, WriteContext, Written
from flow.engine.spark.versions.supported import installed_version
from flow.testing import TestingSource
from recovery import RecoveryConfig


class FailingOnce(Sink[Any]):
    """A sink whose commit fails in the second epoch, after other sinks have published theirs."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def write(self, context: WriteContext, batches: Iterator[Written]) -> Any:
        return sum(len(batch) for batch in batches)

    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        if epoch == 1 and not self.marker.exists():
            self.marker.touch()
            raise OSError("no answer")


def next_query(spark: SparkSession, tmp_path: Path) -> None:
    """Read the files that there are, in a query with a checkpoint of its own."""
    frame = spark.readStream.schema("key string, value long").parquet(f"{tmp_path}/out/epoch=*")
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "next"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "copy"))
    )
    query.awaitTermination()


@pytest.mark.spark
@pytest.mark.each_spark
@pytest.mark.skipif(
    not installed_version().has_streaming, reason="Spark 4.0 has no streaming flows"
)
def test_a_replayed_epoch_reaches_the_next_query_once(spark: SparkSession, tmp_path: Path) -> None:
    """The epoch is published, read, and published again by the replay."""
    flow = Dataflow("chain")
    pairs = op.input("in", flow, TestingSource([("a", 1), ("b", 2), ("a", 3)], batch_size=1))
    op.output("out", pairs, ParquetSink(str(tmp_path / "out")))
    op.output("other", pairs, FailingOnce(tmp_path / "failed"))
    options: dict[str, Any] = {"recovery": RecoveryConfig(str(tmp_path / "checkpoint"))}
    with pytest.raises(StepError, match="step 'other': committing epoch 1 raised OSError"):
        run(flow, spark=spark, shards=2, partitions=1, **options)
    next_query(spark, tmp_path)
    assert rows(spark, tmp_path) == [("a", 1), ("b", 2)]
    run(flow, spark=spark, **options)
    next_query(spark, tmp_path)
    assert rows(spark, tmp_path) == [("a", 1), ("a", 3), ("b", 2)]


def rows(spark: SparkSession, tmp_path: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.parquet(str(tmp_path / "copy")).collect())
