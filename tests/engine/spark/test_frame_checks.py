"""Refusal of streaming data frames that keep state of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from flow import Dataflow, run
from flow.connectors.dataframe import DataFrameSource
from flow.engine.plan.compiler import compile_flow
from flow.engine.spark.input_frames import refuse_stateful_frames
from flow.errors import FlowBuildError
from flow.testing import TestingSink
from recovery import RecoveryConfig
from tests.support.one_stream import a_flow, as_read

pytestmark = pytest.mark.spark

SCHEMA = "id string, n long, at timestamp"


class Processor(StatefulProcessor):
    """Is never run."""

    def init(self, handle: Any) -> None:
        """Keep nothing."""

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame()

    def close(self) -> None:
        """Close the processor, which holds no resources."""


def unchanged(_key: Any, rows: Any, _state: Any) -> Any:
    return rows


def grouped(stream: DataFrame) -> Any:
    return stream.groupBy("id")


def reading(frame: DataFrame, out: list[Any] | None = None) -> Dataflow:
    source, sink = DataFrameSource(frame), TestingSink([] if out is None else out)
    return a_flow(as_read, source=source, sink=sink)


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """A stream of files, with one row; and the views ``stream`` and ``static``."""
    made = stream_of(spark, tmp_path_factory.mktemp("stream"))
    made.createOrReplaceTempView("stream")
    static(spark).createOrReplaceTempView("static")
    return made


def stream_of(spark: SparkSession, path: Path) -> DataFrame:
    """Return a stream of files in a folder, which has one row."""
    folder = str(path / "files")
    spark.sql("select 'a' id, 3L n, timestamp'2024-05-01 12:00:00Z' at").write.parquet(folder)
    return spark.readStream.schema(SCHEMA).parquet(folder).withWatermark("at", "1 hour")


def static(spark: SparkSession) -> DataFrame:
    return spark.sql("select 'a' id, 5L m union all select 'a', 6L")


STATEFUL: dict[str, tuple[Callable[[DataFrame], DataFrame], str, str]] = {
    "an aggregation": (
        lambda s: s.groupBy(F.window("at", "1 hour"), "id").count(),
        r"an aggregation \(Spark's Aggregate\)",
        "flow_windowing.aggregate_window",
    ),
    "dropDuplicates": (
        lambda s: s.dropDuplicates(["id"]),
        r"distinct or dropDuplicates \(Spark's Deduplicate\)",
        "op.stateful_flat_map",
    ),
    "distinct in SQL": (
        lambda s: s.sparkSession.sql("select distinct id from stream"),
        r"distinct or dropDuplicates \(Spark's Distinct\)",
        "op.stateful_flat_map",
    ),
    "dropDuplicatesWithinWatermark, below other operators": (
        lambda s: s.dropDuplicatesWithinWatermark(["id"]).select("id").union(s.select("id")),
        r"dropDuplicatesWithinWatermark \(Spark's DeduplicateWithinWatermark\)",
        "op.stateful_flat_map",
    ),
    "a join of two streams": (
        lambda s: s.alias("l").join(s.alias("r"), F.expr("l.id = r.id and l.at = r.at")),
        r"a join of two streams \(Spark's Join\)",
        "flow_windowing.join_interval, join_window or op.join",
    ),
    "a join of two streams that have names": (
        lambda s: s.sparkSession.sql(
            "with a as (select id from stream), b as (select id, n from stream) "
            "select * from a join b using (id)"
        ),
        r"a join of two streams \(Spark's Join\)",
        "flow_windowing.join_interval, join_window or op.join",
    ),
    "limit": (lambda s: s.limit(3), r"limit \(Spark's GlobalLimit\)", "op.stateful_flat_map"),
    "applyInPandasWithState": (
        lambda s: grouped(s).applyInPandasWithState(
            unchanged, SCHEMA, "n int", "append", "NoTimeout"
        ),
        r"applyInPandasWithState \(Spark's FlatMapGroupsInPandasWithState\)",
        "op.stateful_map or op.stateful",
    ),
    "transformWithState": (
        lambda s: grouped(s).transformWithState(Processor(), "id string", "Append", "None"),
        r"transformWithState \(Spark's TransformWithStateInPySpark\)",
        "op.stateful_map or op.stateful",
    ),
}

STATELESS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "select and filter": lambda s: s.select("id", F.expr("n + 1 as n")).filter("n > 1"),
    "explode": lambda s: s.select("id", F.explode(F.array("n", "n"))),
    "union": lambda s: s.union(s),
    "a join with what is static": lambda s: s.join(static(s.sparkSession), "id"),
    "a join with an aggregation of what is static": lambda s: s.join(
        static(s.sparkSession).distinct().groupBy("id").count().limit(5), "id", "left"
    ),
    "subqueries of what is static": lambda s: s.sparkSession.sql(
        "select *, (select max(m) from static where static.id = stream.id) from stream "
        "where id in (select distinct id from static)"
    ),
    "mapInPandas": lambda s: s.mapInPandas(lambda frames: frames, SCHEMA),
    "applyInPandas": lambda s: grouped(s).applyInPandas(lambda frame: frame, SCHEMA),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_a_refused_stateful_stream_names_an_operator(stream: DataFrame, name: str) -> None:
    made, what, instead = STATEFUL[name]
    message = (
        f"^step 'in': its streaming data frame keeps state of its own, for {what}, which a flow "
        f"can neither continue nor end. Do that in the flow, with {instead}.*; or let a query of "
    )
    with pytest.raises(FlowBuildError, match=message):
        refuse_stateful_frames(compile_flow(reading(made(stream))))


@pytest.mark.parametrize("name", STATELESS)
def test_a_stateless_stream_is_read(stream: DataFrame, name: str) -> None:
    refuse_stateful_frames(compile_flow(reading(STATELESS[name](stream))))


def test_a_stateful_stream_is_refused_before_anything_is_written(
    spark: SparkSession, stream: DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"
    flow = reading(stream.dropDuplicates(["id"]))
    with pytest.raises(FlowBuildError, match=r"^step 'in': its streaming data frame keeps state"):
        run(flow, spark=spark, recovery=RecoveryConfig(str(path)), trigger="available")
    assert not path.exists()


@pytest.mark.extended
@pytest.mark.parametrize("engine", ["batch", "streaming"])
def test_static_data_frames_may_use_stateful_operations(spark: SparkSession, engine: Any) -> None:
    frame = static(spark).distinct().groupBy("id").agg(F.sum("m").alias("m"))
    both = frame.join(frame.dropDuplicates(["id"]).withColumnRenamed("m", "k"), "id").limit(3)
    out: list[Any] = []
    run(reading(both, out), spark=spark, engine=engine)
    assert out == [{"id": "a", "m": 11, "k": 11}]
