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
    """Return the setting of code generation in the query of a flow."""
    found: list[str] = []

    def on_epoch(*_: Any) -> None:
        (query,) = spark.streams.active
        java: Any = query._jsq
        found.append(java.streamingQuery().sparkSessionForStream().conf().get(CODE))

    flow = Dataflow("coded")
    op.output("out", op.input("in", flow, source), sink)
    run(flow, spark=spark, engine="streaming", on_epoch=on_epoch, **options)
    return found[0]


def keep(frame: DataFrame, _epoch: int) -> None:
    frame.collect()


def test_no_code_is_generated_for_packets(spark: SparkSession) -> None:
    assert code_in(spark, TestingSource([1]), TestingSink([])) == INTERPRETED


def test_code_is_generated_for_rows_of_data_frames(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([1], pa.int32())}), tmp_path / "1.parquet")
    frame = spark.readStream.schema("n int").parquet(str(tmp_path))
    source = DataFrameSource(frame)
    assert code_in(spark, source, TestingSink([]), trigger="available") == GENERATED
    sink = DataFrameSink(keep, "value int")
    assert code_in(spark, TestingSource([1]), sink) == GENERATED


def code_in_batch(spark: SparkSession, source: Any) -> str:
    """Return the setting of code generation in a batch of which no sink takes data frames."""
    found: list[str] = []
    flow = Dataflow("coded")
    op.output("out", op.input("in", flow, source), TestingSink([]))
    run(flow, spark=spark, engine="batch", on_epoch=lambda *_: found.append(spark.conf.get(CODE)))
    return found[0]


def test_code_of_a_batch_is_generated_for_data_frames_only(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1,)], "n int")
    assert code_in_batch(spark, TestingSource([1])) == INTERPRETED
    assert code_in_batch(spark, DataFrameSource(frame)) == GENERATED
