"""A query of Spark that reads the files of a streaming flow as a stream of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flow import StepError, run
from flow.connectors.files import ParquetSink
from flow.testing import TestingSource
from recovery import RecoveryConfig
from tests.support.one_stream import a_flow, as_read


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


@pytest.mark.extended
@pytest.mark.spark
@pytest.mark.each_spark
def test_a_replayed_epoch_reaches_the_next_query_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch is published, read, and published again by the replay."""
    pairs = TestingSource([("a", 1), ("b", 2), ("a", 3)], batch_size=1)
    flow = a_flow(as_read, source=pairs, sink=ParquetSink(str(tmp_path / "out")))
    recovery = RecoveryConfig(str(tmp_path / "checkpoint"))
    commit = ParquetSink.commit

    def failing(sink: ParquetSink, epoch: int, messages: Sequence[Any]) -> None:
        commit(sink, epoch, messages)
        if epoch == 1:
            raise OSError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(ParquetSink, "commit", failing)
        with pytest.raises(StepError, match="step 'out': committing epoch 1 raised OSError"):
            run(flow, spark=spark, shards=2, partitions=1, recovery=recovery)
    next_query(spark, tmp_path)
    assert rows(spark, tmp_path) == [("a", 1), ("b", 2)]
    run(flow, spark=spark, recovery=recovery)
    next_query(spark, tmp_path)
    assert rows(spark, tmp_path) == [("a", 1), ("a", 3), ("b", 2)]


def rows(spark: SparkSession, tmp_path: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.parquet(str(tmp_path / "copy")).collect())
