"""Spark data frames as sources and sinks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import add
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
from tests.support.one_stream import a_flow, as_read, running_total

SCHEMA = "id string, n long"
SMALL: dict[str, Any] = {"shards": 2, "partitions": 1}
ROWS = [("a", 1), ("b", 2), ("a", 3)]


def numbers(s: Stream[Any]) -> Stream[Any]:
    """The number of each record under its id."""
    return op.map_value("n", op.key_on("by_id", s, "id"), lambda record: record["n"])


def put(folder: Path, name: str, rows: list[tuple[str, int]]) -> None:
    folder.mkdir(exist_ok=True)
    ids, values = zip(*rows, strict=True)
    pq.write_table(pa.table({"id": ids, "n": values}), folder / name)


# --- sources ----------------------------------------------------------------------------------


def test_a_source_needs_a_data_frame() -> None:
    with pytest.raises(FlowTypeError, match=r"DataFrameSource needs a Spark data frame, got list"):
        DataFrameSource([1])  # type: ignore[arg-type]


class Outputs:
    """A flow with the items of its outputs by name."""

    def __init__(self, flow_id: str = "frames") -> None:
        self.flow = Dataflow(flow_id)
        self.of: dict[str, list[Any]] = {}

    def input(self, name: str, frame: DataFrame) -> Stream[Any]:
        return op.input(name, self.flow, DataFrameSource(frame))

    def keep(self, name: str, s: Stream[Any]) -> None:
        op.output(f"{name}_out", s, TestingSink(self.of.setdefault(name, [])))


def daily_sum(step_id: str, s: Stream[Any], time: str, number: str, **more: Any) -> Stream[Any]:
    """The id, the day and the sum of the numbers of each day."""
    clock, days = EventClock(time, "1h", **more), TumblingWindower("1d")
    keyed = op.key_on(f"{step_id}_by_id", s, "id")
    sums = aggregate_window(step_id, keyed, clock, days, total=Sum(number)).down
    return op.map(f"{step_id}_row", sums, lambda kv: (kv[0], kv[1][0].open_time, kv[1][1]["total"]))


def hours(row: Any) -> Any:
    return row["at"].hour, row["list"][0].hour, row["inner"]["x"].hour, row["map"]


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["batch", pytest.param("streaming", marks=pytest.mark.extended)])
def test_static_data_frames_are_read_once(spark: SparkSession, tmp_path: Path, engine: Any) -> None:
    """In the streaming engine a crash comes in between: frames are kept below the checkpoint.

    The ids of the flow and of two steps have characters that paths may not.
    """
    crash = [ABORT()] if engine == "streaming" else []
    out = Outputs("odd: frames/1")
    killer = op.input("killer", out.flow, TestingSource([("a", 10), *crash]))
    few = numbers(out.input("a/few: frame?", spark.createDataFrame(ROWS, SCHEMA)))
    out.keep("sums", op.reduce_final("sum: of *all*", op.merge("both", few, killer), add))
    out.keep("empty", out.input("nothing", spark.createDataFrame([], SCHEMA)))
    partitions = spark.range(0, 60, 1, 7).selectExpr("concat('k', id % 3) id", "id n")
    keyed = op.key_on("by_k", out.input("partitions", partitions), lambda row: row["id"])
    out.keep("ordered", op.stateful_map("list", keyed, lambda _, row: (0, row["n"])))
    noon = spark.sql("select 'a' id, timestamp'2024-05-01 12:00:00Z' at, 7 n")
    out.keep("daily", daily_sum("daily", out.input("noon", noon), "at", "n"))
    nested = spark.sql(
        "select timestamp'2024-05-01 12:00:00Z' at, array(timestamp'2024-05-01 13:00:00Z') list,"
        " named_struct('x', timestamp'2024-05-01 14:00:00Z') inner, map(1, 2) map"
    )
    out.keep("hours", op.map("hours", out.input("nested", nested), hours))
    # The last second of the year 9999 in New York is one of the year 10000 in UTC.
    end = spark.sql("select 'a' id, timestamp'9999-12-31 23:59:59-05:00' at, 8 n").union(noon)
    at_end = out.input("end", end)
    out.keep("days", daily_sum("days", at_end, "at", "n", on_invalid="drop"))
    out.keep("unread", op.map("unread", at_end, lambda row: row["n"]))
    options: dict[str, Any] = {**SMALL, "spark": spark, "engine": engine, "drain": True}
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        if crash:
            options["recovery"] = RecoveryConfig(tmp_path)
            assert run(out.flow, **options).aborted
            assert out.of["sums"] == []
        summary = run(out.flow, **options)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert (summary.engine, summary.count("a/few: frame?", "out")) == (engine, 3)
    assert (sorted(out.of["sums"]), out.of["empty"]) == ([("a", 14), ("b", 2)], [])
    for m in range(3):
        assert [n for key, n in out.of["ordered"] if key == f"k{m}"] == list(range(m, 60, 3))
    assert out.of["daily"] == [("a", datetime(2024, 5, 1, tzinfo=UTC), 7)]
    assert out.of["hours"] == [(12, 13, 14, [(1, 2)])]
    assert (out.of["days"], sorted(out.of["unread"])) == (out.of["daily"], [7, 8])
    assert summary.count("days", "dropped") == 1
    assert not crash or (tmp_path / "inputs/partitions/_SUCCESS").exists()


@pytest.mark.spark
def test_an_unreadable_frame_is_named_with_spark_s_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "1.parquet", ROWS)
    gone = spark.read.parquet(str(tmp_path))
    (tmp_path / "1.parquet").unlink()
    ids = spark.range(3)
    raising = ids.mapInPandas(lambda _: 1 / 0, "id string, n long")  # type: ignore[arg-type, return-value]
    odd = ids.selectExpr("'a' id", "raise_error('odd') n"), r"\[USER_RAISED_EXCEPTION\] odd"
    for frame, reason in (
        (gone, r"\[FAILED_READ_FILE\.FILE_NOT_EXIST\] .*1\.parquet"),
        (raising, "a function that Spark ran in Python raised ZeroDivisionError: division by zero"),
        odd,
    ):
        with pytest.raises(EngineError, match=f"^the Spark job failed: {reason}"):
            run(sums_of(frame), spark=spark, engine="batch")
    with pytest.raises(StepError, match=r"^step 'in': 2 fields have the name 'n': rename them"):
        run(sums_of(spark.sql("select 'a' id, 1 n, 2 n")), spark=spark, engine="batch")
    frame, reason = odd
    message = rf"^step 'in': its data frame cannot be read and written to \S+/inputs/in: {reason}"
    with pytest.raises(SourceError, match=message) as caught:
        run(sums_of(frame), spark=spark, engine="streaming")
    assert len(str(caught.value).splitlines()) == 1


def sums_of(frame: DataFrame) -> Dataflow:
    out = Outputs()
    out.keep("sums", op.reduce_final("sum", numbers(out.input("in", frame)), add))
    return out.flow


#  run 1   1.parquet: a 1    2.parquet: b 2, which the filter drops    3.parquet: a 3
#  run 2   4.parquet: a 5, then the end
@pytest.mark.spark
def test_a_stream_keeps_its_offset_and_can_be_drained(spark: SparkSession, tmp_path: Path) -> None:
    """Spark itself reads new files; neither an epoch without rows nor a fixed clock is the end."""
    folder = tmp_path / "files"
    for number, row in enumerate(ROWS):
        put(folder, f"{number}.parquet", [row])
        os.utime(folder / f"{number}.parquet", (number, number))
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    out = Outputs()
    s = numbers(out.input("in", reader.parquet(str(folder)).filter("n != 2")))
    out.keep("totals", op.stateful_map("total", s, running_total))
    out.keep("sums", op.reduce_final("sum", s, add))
    options: dict[str, Any] = {
        "spark": spark,
        "recovery": RecoveryConfig(tmp_path / "checkpoint"),
        "trigger": "available",
        "system_time": 1_700_000_000,
    }
    summary = run(out.flow, drain=False, **SMALL, **options)
    assert (summary.engine, summary.epochs >= 3) == ("streaming", True)
    assert (out.of["totals"], out.of["sums"]) == ([("a", 1), ("a", 4)], [])
    put(folder, "4.parquet", [("a", 5)])
    run(out.flow, drain=True, **options)
    assert (out.of["totals"][2:], out.of["sums"]) == ([("a", 9)], [("a", 9)])


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["batch", pytest.param("streaming", marks=pytest.mark.extended)])
def test_unread_columns_are_not_selected(spark: SparkSession, tmp_path: Path, engine: Any) -> None:
    """A column that cannot be computed is as good as any other, then."""
    put(tmp_path, "1.parquet", ROWS)
    reader = spark.read if engine == "batch" else spark.readStream
    frame = reader.schema(SCHEMA).parquet(str(tmp_path)).withColumnRenamed("n", "n`.x")
    frame = frame.withColumn("bad", F.raise_error(F.lit("it was computed")))
    out = Outputs()
    out.keep("daily", daily_sum("daily", out.input("in", frame), "n`.x", "n`.x"))
    available: dict[str, Any] = {"trigger": "available"} if engine == "streaming" else {}
    run(out.flow, spark=spark, engine=engine, drain=True, shards=4, **available)
    assert sorted((key, total) for key, _, total in out.of["daily"]) == [("a", 4), ("b", 2)]


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


def test_a_sink_shows_its_schema() -> None:
    assert repr(DataFrameSink(print)) == "DataFrameSink(...)"
    assert repr(DataFrameSink(print, SCHEMA)) == f"DataFrameSink(..., {SCHEMA!r})"


def flow_to(items: list[Any], sink: DataFrameSink) -> Dataflow:
    return a_flow(as_read, source=TestingSource(items), sink=sink)


@pytest.mark.spark
def test_a_sink_without_a_schema_needs_columns_that_are_known(spark: SparkSession) -> None:
    message = r"^step 'out': its DataFrameSink needs the schema of stream 'in', such as .*source"
    with pytest.raises(FlowBuildError, match=message):
        run(flow_to([1], DataFrameSink(print)), spark=spark)


@pytest.mark.spark
def test_a_sink_hands_over_each_epoch_that_has_items_as_a_data_frame(spark: SparkSession) -> None:
    handed: list[tuple[int, list[Any], str]] = []

    def keep(frame: DataFrame, epoch: int) -> None:
        rows = sorted(tuple(row) for row in frame.collect())
        handed.append((epoch, rows, frame.schema.simpleString()))

    flow, copy = Dataflow("handed"), list[Any]()
    items = [("a", {"n": 1}), ("b", {"n": 2}), ("c", None), ("a", {"n": 4})]
    s = op.input("in", flow, TestingSource(items, batch_size=2))
    present = op.filter_value("present", s, lambda value: value is not None)
    op.output("out", present, DataFrameSink(keep, "key string, n int"))
    op.output("copy", present, TestingSink(copy))
    run(flow, spark=spark, engine="streaming", **SMALL)
    assert handed == [
        (0, [("a", 1), ("b", 2)], "struct<key:string,n:int>"),
        (1, [("a", 4)], "struct<key:string,n:int>"),
    ]
    assert copy == [("a", {"n": 1}), ("b", {"n": 2}), ("a", {"n": 4})]


@dataclass(frozen=True)
class Delay:
    minutes: int
    gate: str | None = None


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["batch", pytest.param("streaming", marks=pytest.mark.extended)])
def test_a_sink_maps_fields_to_columns_beside_others(spark: SparkSession, engine: Any) -> None:
    handed, copy = list[Any](), list[Any]()
    fields = {"key": StringType(), "minutes": LongType(), "gate": StringType()}
    schema = StructType([StructField(name, kind) for name, kind in fields.items()])
    items = [("JFK", Delay(1)), ("LGA", Delay(7)), ("JFK", Delay(5, "B2"))]
    flow = Dataflow("beside")
    last = op.reduce_final("last", op.input("in", flow, TestingSource(items)), lambda _, one: one)
    op.output("frame", last, DataFrameSink(lambda frame, _: handed.extend(frame.collect()), schema))
    op.output("copy", last, TestingSink(copy))
    run(flow, spark=spark, engine=engine)
    assert sorted(map(tuple, handed)) == [("JFK", 5, "B2"), ("LGA", 7, None)]
    assert sorted(copy) == [("JFK", Delay(5, "B2")), ("LGA", Delay(7))]


def refuse(frame: DataFrame, epoch: int) -> None:
    raise OSError("disk full")


@pytest.mark.spark
def test_a_failing_sink_function_is_named(spark: SparkSession) -> None:
    with pytest.raises(StepError, match="step 'out': its function raised OSError: disk full") as e:
        run(flow_to([1], DataFrameSink(refuse, "value int")), spark=spark)
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
    sink = DataFrameSink(lambda frame, _: frame.collect(), "n long, at timestamp")
    with pytest.raises(SinkError, match=f"^step 'out': {problem}"):
        run(flow_to([item], sink), spark=spark)
