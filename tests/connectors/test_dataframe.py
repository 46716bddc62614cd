"""Spark data frames as sources and sinks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

import flow.operators as op
from flow import Dataflow, StepError, Stream, run
from flow.connectors.dataframe import DataFrameSink, DataFrameSource
from flow.errors import EngineError, FlowBuildError, FlowTypeError, SinkError, SourceError
from flow.testing import ABORT, TestingSink, TestingSource
from flow_windowing import EventClock, Sum, TumblingWindower, aggregate_window
from recovery import RecoveryConfig

SCHEMA = "id string, n long"
ROWS = [("a", 1), ("b", 2), ("a", 3)]


def add(left: int, right: int) -> int:
    return left + right


def running(total: int | None, value: int) -> tuple[int, int]:
    return (total or 0) + value, (total or 0) + value


def numbers(s: Stream[Any]) -> Stream[Any]:
    """The number of each record under its id."""
    return op.map_value("n", op.key_on("by_id", s, "id"), lambda record: record["n"])


def sums(frame: DataFrame, out: list[Any]) -> Dataflow:
    flow = Dataflow("sums")
    s = op.input("in", flow, DataFrameSource(frame))
    op.output("out", op.reduce_final("sum", numbers(s), add), TestingSink(out))
    return flow


def checkpoint(tmp_path: Path) -> Any:
    return RecoveryConfig(str(tmp_path / "checkpoint"))


# --- sources ----------------------------------------------------------------------------------


def test_a_source_needs_a_data_frame() -> None:
    with pytest.raises(FlowTypeError, match=r"DataFrameSource needs a Spark data frame, got list"):
        DataFrameSource([1])  # type: ignore[arg-type]


@pytest.mark.spark
def test_a_static_data_frame_is_read_in_a_batch(spark: SparkSession) -> None:
    out: list[Any] = []
    frame = spark.createDataFrame(ROWS, SCHEMA)
    summary = run(sums(frame, out), spark=spark)
    assert (summary.engine, sorted(out)) == ("batch", [("a", 4), ("b", 2)])
    assert summary.count("in", "out") == 3


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["batch", "streaming"])
def test_rows_of_a_static_data_frame_come_in_its_order(spark: SparkSession, engine: Any) -> None:
    """However many partitions it has."""
    frame = spark.range(0, 60, 1, 7).selectExpr("concat('k', id % 3) id", "id n")
    flow, out = Dataflow("ordered"), list[Any]()
    s = numbers(op.input("in", flow, DataFrameSource(frame)))
    op.output("out", op.stateful_map("list", s, lambda _, n: (0, n)), TestingSink(out))
    run(flow, spark=spark, engine=engine, shards=4)
    of_key = {key: [n for theirs, n in out if theirs == key] for key in ("k0", "k1", "k2")}
    assert of_key == {f"k{m}": list(range(m, 60, 3)) for m in range(3)}


@pytest.mark.spark
def test_an_empty_data_frame_gives_nothing(spark: SparkSession) -> None:
    out: list[Any] = []
    run(sums(spark.createDataFrame([], SCHEMA), out), spark=spark)
    assert out == []


@pytest.mark.spark
def test_a_static_data_frame_is_read_once_despite_a_crash(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A second input kills the first run. The data frame is kept below the checkpoint."""
    out: list[Any] = []
    flow = Dataflow("kept")
    s = op.input("in", flow, DataFrameSource(spark.createDataFrame(ROWS, SCHEMA)))
    killer = op.input("killer", flow, TestingSource([("a", 10), ABORT()]))
    both = op.merge("both", numbers(s), killer)
    op.output("out", op.reduce_final("sum", both, add), TestingSink(out))
    options: dict[str, Any] = {"spark": spark, "recovery": checkpoint(tmp_path), "shards": 4}
    assert run(flow, **options).aborted
    assert out == []
    summary = run(flow, **options)
    assert (summary.engine, sorted(out)) == ("streaming", [("a", 14), ("b", 2)])
    assert (tmp_path / "checkpoint/inputs/in/_SUCCESS").exists()


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["batch", "streaming"])
def test_times_of_a_static_data_frame_are_instants(spark: SparkSession, engine: Any) -> None:
    frame = spark.sql("select 'a' id, timestamp'2024-05-01 12:00:00Z' at, 7 n")
    flow, out = Dataflow("times"), list[Any]()
    by_id = op.key_on("by_id", op.input("in", flow, DataFrameSource(frame)), "id")
    clock, days = EventClock("at", "1h"), TumblingWindower("1d")
    daily = aggregate_window("daily", by_id, clock, days, total=Sum("n"))
    op.output("out", daily.down, TestingSink(out))
    run(flow, spark=spark, engine=engine, drain=True, shards=4)
    ((_, (window, sums)),) = out
    assert (window.open_time, sums["total"]) == (datetime(2024, 5, 1, tzinfo=UTC), 7)


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["batch", "streaming"])
def test_times_are_in_utc_whatever_the_time_zone_of_the_session(
    spark: SparkSession, engine: Any
) -> None:
    """And so is what a function makes of their hours."""
    frame = spark.sql(
        "select timestamp'2024-05-01 12:00:00Z' at, array(timestamp'2024-05-01 13:00:00Z') list,"
        " named_struct('x', timestamp'2024-05-01 14:00:00Z') inner, map(1, 2) map"
    )
    flow, out = Dataflow("zones"), list[Any]()

    def hours(row: Any) -> Any:
        return row["at"].hour, row["list"][0].hour, row["inner"]["x"].hour, row["map"]

    s = op.map("hours", op.input("in", flow, DataFrameSource(frame)), hours)
    op.output("out", s, TestingSink(out))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    run(flow, spark=spark, engine=engine)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert out == [(12, 13, 14, [(1, 2)])]


@pytest.mark.spark
def test_a_static_data_frame_that_cannot_be_read_is_named_with_spark_s_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "1.parquet", ROWS)
    gone = spark.read.parquet(str(tmp_path))
    (tmp_path / "1.parquet").unlink()
    ids = spark.range(3)
    raising = ids.mapInPandas(lambda _: 1 / 0, "id string, n long")  # type: ignore[arg-type, return-value]
    for frame, reason in (
        (gone, r"\[FAILED_READ_FILE\.FILE_NOT_EXIST\] .*1\.parquet"),
        (raising, "a function that Spark ran in Python raised ZeroDivisionError: division by zero"),
        (ids.selectExpr("'a' id", "raise_error('odd') n"), r"\[USER_RAISED_EXCEPTION\] odd"),
    ):
        message = (
            rf"^step 'in': its data frame cannot be read and written to \S+/inputs/in: {reason}"
        )
        with pytest.raises(SourceError, match=message) as caught:
            run(sums(frame, []), spark=spark, engine="streaming")
        assert len(str(caught.value).splitlines()) == 1
        with pytest.raises(EngineError, match=f"^the Spark job failed: {reason}"):
            run(sums(frame, []), spark=spark, engine="batch")


def put(folder: Path, name: str, rows: list[tuple[str, int]]) -> None:
    ids, values = zip(*rows, strict=True)
    pq.write_table(pa.table({"id": ids, "n": values}), folder / name)


@pytest.mark.spark
def test_a_streaming_data_frame_keeps_its_offset_between_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Here Spark itself reads new files; a run takes what is available."""
    folder = tmp_path / "files"
    folder.mkdir()
    out: list[Any] = []
    flow = Dataflow("growing")
    frame = spark.readStream.schema(SCHEMA).parquet(str(folder))
    s = op.input("in", flow, DataFrameSource(frame))
    op.output("out", op.stateful_map("total", numbers(s), running), TestingSink(out))
    options: dict[str, Any] = {
        "spark": spark,
        "recovery": checkpoint(tmp_path),
        "trigger": "available",
        "shards": 4,
    }
    put(folder, "1.parquet", ROWS)
    summary = run(flow, **options)
    assert (summary.engine, sorted(out)) == ("streaming", [("a", 1), ("a", 4), ("b", 2)])
    out.clear()
    put(folder, "2.parquet", [("a", 5)])
    run(flow, **options)
    assert out == [("a", 9)]


@pytest.mark.spark
def test_a_streaming_data_frame_can_be_drained(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    put(folder, "1.parquet", ROWS)
    out: list[Any] = []
    flow = sums(spark.readStream.schema(SCHEMA).parquet(str(folder)), out)
    run(flow, spark=spark, trigger="available", drain=True, shards=4)
    assert sorted(out) == [("a", 4), ("b", 2)]


@pytest.mark.spark
def test_a_streaming_data_frame_is_read_while_the_clock_stands_still(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for number, row in enumerate(ROWS):
        put(folder, f"{number}.parquet", [row])
    out: list[Any] = []
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
    options: dict[str, Any] = {"trigger": "available", "drain": True, "shards": 4}
    summary = run(sums(frame, out), spark=spark, system_time=1_700_000_000, **options)
    assert sorted(out) == [("a", 4), ("b", 2)]
    assert summary.epochs >= len(ROWS)


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["batch", "streaming"])
def test_unread_columns_are_not_selected(spark: SparkSession, tmp_path: Path, engine: Any) -> None:
    """A column that cannot be computed is as good as any other, then."""
    put(tmp_path, "1.parquet", ROWS)
    reader = spark.read if engine == "batch" else spark.readStream
    frame = reader.schema(SCHEMA).parquet(str(tmp_path)).withColumnRenamed("n", "n`.x")
    frame = frame.withColumn("bad", F.raise_error(F.lit("it was computed")))
    flow, out = Dataflow("pruned"), list[Any]()
    by_id = op.key_on("by_id", op.input("in", flow, DataFrameSource(frame)), "id")
    clock, days = EventClock("n`.x", "1h"), TumblingWindower("1d")
    daily = aggregate_window("daily", by_id, clock, days, total=Sum("n`.x"))
    op.output("out", daily.down, TestingSink(out))
    available: dict[str, Any] = {"trigger": "available"} if engine == "streaming" else {}
    run(flow, spark=spark, engine=engine, drain=True, shards=4, **available)
    assert sorted((key, sums["total"]) for key, (_, sums) in out) == [("a", 4), ("b", 2)]


@pytest.mark.spark
def test_an_epoch_without_rows_does_not_end_a_run_of_what_is_available(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The second of three files has no row that passes the data frame's own filter."""
    folder = tmp_path / "files"
    folder.mkdir()
    for number, row in enumerate(ROWS):
        put(folder, f"{number}.parquet", [row])
        os.utime(folder / f"{number}.parquet", (number, number))
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    frame = reader.parquet(str(folder)).filter("n != 2")
    flow, out = Dataflow("sparse"), list[Any]()
    s = numbers(op.input("in", flow, DataFrameSource(frame)))
    op.output("out", op.stateful_map("total", s, running), TestingSink(out))
    options: dict[str, Any] = {"recovery": checkpoint(tmp_path), "trigger": "available"}
    run(flow, spark=spark, shards=4, **options)
    assert out == [("a", 1), ("a", 4)]
    run(flow, spark=spark, **options)
    assert out == [("a", 1), ("a", 4)]


# --- sinks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "schema", "problem"),
    [
        ("not a function", SCHEMA, "DataFrameSink needs a function, got 'not a function'"),
        (print, 7, "DataFrameSink's schema must be a StructType or text, got 7"),
    ],
)
def test_a_sink_needs_a_function_and_a_schema(write: Any, schema: Any, problem: str) -> None:
    with pytest.raises(FlowTypeError, match=problem):
        DataFrameSink(write, schema)


@pytest.mark.parametrize(
    "schema",
    [
        "key string, `n` long, N double",
        "key: string, pair struct<key: long, n: long>, KEY decimal(10, 2)",
        StructType([StructField("n", LongType()), StructField("n", LongType())]),
    ],
)
def test_a_sink_names_each_column_once(schema: Any) -> None:
    with pytest.raises(FlowBuildError, match="DataFrameSink's schema must name each column once"):
        DataFrameSink(print, schema)


@pytest.mark.spark
def test_a_sink_hands_over_each_epoch_that_has_items_as_a_data_frame(spark: SparkSession) -> None:
    handed: list[tuple[int, list[Any], str]] = []

    def keep(frame: DataFrame, epoch: int) -> None:
        rows = sorted(tuple(row) for row in frame.collect())
        handed.append((epoch, rows, frame.schema.simpleString()))

    flow = Dataflow("handed")
    items = [("a", {"n": 1}), ("b", {"n": 2}), ("c", None), ("a", {"n": 4})]
    s = op.input("in", flow, TestingSource(items, batch_size=2))
    present = op.filter_value("present", s, lambda value: value is not None)
    op.output("out", present, DataFrameSink(keep, "key string, n int"))
    op.output("copy", present, TestingSink(copy := list[Any]()))
    run(flow, spark=spark, engine="streaming")
    assert handed == [
        (0, [("a", 1), ("b", 2)], "struct<key:string,n:int>"),
        (1, [("a", 4)], "struct<key:string,n:int>"),
    ]
    assert copy == [("a", {"n": 1}), ("b", {"n": 2}), ("a", {"n": 4})]


@pytest.mark.spark
def test_a_sink_without_a_schema_needs_columns_that_are_known(spark: SparkSession) -> None:
    flow = Dataflow("unknown")
    op.output("out", op.input("in", flow, TestingSource([1])), DataFrameSink(print))
    message = r"^step 'out': its DataFrameSink needs the schema of stream 'in', such as .*source"
    with pytest.raises(FlowBuildError, match=message):
        run(flow, spark=spark)


def test_a_sink_shows_its_schema() -> None:
    assert repr(DataFrameSink(print)) == "DataFrameSink(...)"
    assert repr(DataFrameSink(print, SCHEMA)) == f"DataFrameSink(..., {SCHEMA!r})"


@dataclass(frozen=True)
class Delay:
    minutes: int
    gate: str | None = None


@pytest.mark.spark
def test_a_sink_maps_fields_to_columns(spark: SparkSession) -> None:
    handed: list[Any] = []
    schema = StructType(
        [
            StructField("key", StringType()),
            StructField("minutes", LongType()),
            StructField("gate", StringType()),
        ]
    )
    flow = Dataflow("fields")
    s = op.input("in", flow, TestingSource([("JFK", Delay(5, "B2")), ("LGA", Delay(7))]))
    sink = DataFrameSink(lambda frame, epoch: handed.extend(frame.collect()), schema)
    op.output("out", s, sink)
    run(flow, spark=spark)
    assert sorted(map(tuple, handed)) == [("JFK", 5, "B2"), ("LGA", 7, None)]


@pytest.mark.spark
def test_a_failing_sink_function_is_named(spark: SparkSession) -> None:
    def refuse(frame: DataFrame, epoch: int) -> None:
        raise OSError("disk full")

    flow = Dataflow("refused")
    op.output("out", op.input("in", flow, TestingSource([1])), DataFrameSink(refuse, "value int"))
    with pytest.raises(StepError, match="step 'out': its function raised OSError: disk full") as e:
        run(flow, spark=spark)
    assert isinstance(e.value.__cause__, OSError)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({"n": 1.9}, r"field 'n' holds float 1\.9, which cannot be written as int64"),
        ({"at": datetime(2024, 1, 1)}, "field 'at': 2024-01-01T00:00:00 has no time zone"),  # noqa: DTZ001
    ],
)
def test_a_value_that_does_not_fit_a_sinks_column_is_named(
    spark: SparkSession, item: dict[str, Any], problem: str
) -> None:
    flow = Dataflow("cut")
    sink = DataFrameSink(lambda frame, _: frame.collect(), "n long, at timestamp")
    op.output("out", op.input("in", flow, TestingSource([item])), sink)
    with pytest.raises(SinkError, match=f"^step 'out': {problem}"):
        run(flow, spark=spark)


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["streaming", "batch"])
def test_a_sink_may_stand_beside_others_after_a_keyed_step(
    spark: SparkSession, engine: Any
) -> None:
    handed: list[Any] = []

    def keep(frame: DataFrame, _epoch: int) -> None:
        handed.extend(tuple(row) for row in frame.collect())

    flow = Dataflow("beside")
    items = [(f"k{number % 7}", 1) for number in range(21)]
    counted = op.reduce_final("sum", op.input("in", flow, TestingSource(items)), add)
    op.output("frame", counted, DataFrameSink(keep, "key string, value int"))
    op.output("copy", counted, TestingSink(copy := list[Any]()))
    run(flow, spark=spark, engine=engine)
    assert sorted(handed) == sorted(copy) == [(f"k{number}", 3) for number in range(7)]
