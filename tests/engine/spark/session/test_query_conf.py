"""Settings of a query, which the session does not keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.dataframe import DataFrameSink, DataFrameSource
from flow.engine.spark.session.query_conf import QUERY_CONF, query_conf
from flow.testing import TestingSink, TestingSource

pytestmark = pytest.mark.spark

CODE = "spark.sql.codegen.factoryMode"
GENERATED, INTERPRETED = "FALLBACK", "NO_CODEGEN"


def settings_of(spark: SparkSession) -> dict[str, Any]:
    names = [*QUERY_CONF, CODE, "spark.sql.shuffle.partitions"]
    return {name: spark.conf.get(name, None) for name in names}


def test_settings_of_a_query_are_set_while_it_starts(spark: SparkSession) -> None:
    before = settings_of(spark)
    with query_conf(spark, 3, only_packets=True):
        within = settings_of(spark)
    assert within == {**QUERY_CONF, CODE: INTERPRETED, "spark.sql.shuffle.partitions": "3"}
    assert settings_of(spark) == before
    with query_conf(spark, 3):
        assert spark.conf.get(CODE) == GENERATED


def code_in(spark: SparkSession, source: Any, sink: Any, **options: Any) -> str:
    """Return the setting of code generation in the query, or the batch, of a flow."""
    found: list[str] = []

    def on_epoch(*_: Any) -> None:
        java: Any = [query._jsq for query in spark.streams.active]
        of_query = [each.streamingQuery().sparkSessionForStream().conf().get(CODE) for each in java]
        found.extend(of_query or [spark.conf.get(CODE)])

    flow = Dataflow("coded")
    op.output("out", op.input("in", flow, source), sink)
    run(flow, spark=spark, on_epoch=on_epoch, **options)
    return found[0]


def keep(frame: DataFrame, _epoch: int) -> None:
    frame.collect()


@pytest.mark.parametrize("engine", ["streaming", pytest.param("batch", marks=pytest.mark.extended)])
def test_no_code_is_generated_for_packets(spark: SparkSession, engine: str) -> None:
    assert code_in(spark, TestingSource([1]), TestingSink([]), engine=engine) == INTERPRETED


@pytest.mark.extended
def test_code_is_generated_for_rows_of_streamed_frames(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([1], pa.int32())}), tmp_path / "1.parquet")
    frame = spark.readStream.schema("n int").parquet(str(tmp_path))
    source = DataFrameSource(frame)
    assert code_in(spark, source, TestingSink([]), trigger="available") == GENERATED
    sink = DataFrameSink(keep, "value int")
    assert code_in(spark, TestingSource([1]), sink, engine="streaming") == GENERATED


def test_code_is_generated_for_rows_of_data_frames(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1,)], "n int")
    assert code_in(spark, DataFrameSource(frame), TestingSink([]), engine="batch") == GENERATED
