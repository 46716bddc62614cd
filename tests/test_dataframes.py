"""`to_dataframe`: a stream of a flow as a lazy data frame between queries of Spark."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run, to_dataframe
from flow.connectors.dataframe import DataFrameSink, DataFrameSource
from flow.connectors.files import ParquetSink, ParquetSource
from flow.dataflow import Stream
from flow.errors import FlowBuildError, FlowTypeError, SourceError
from flow.testing import TestingSink, TestingSource

pytestmark = pytest.mark.spark
HOURS = win.TumblingWindower("1h")
SMALL: dict[str, Any] = {"shards": 4, "partitions": 2}

TRIPS = """
select * from values
    ('JFK', 10, 1.5F, 'B2', timestamp'2024-05-01 12:00:00Z'),
    ('LGA', -3, 2.5F, 'A1', timestamp'2024-05-01 12:30:00Z'),
    ('JFK', 20, 3.5F, 'B4', timestamp'2024-05-01 12:59:00Z'),
    ('JFK', 40, 4.5F, 'B6', timestamp'2024-05-01 14:00:00Z'),
    ('JFK', 99, 0.5F, 'B8', timestamp'2024-05-01 12:10:00Z')
    as trips(origin, delay, distance, gate, at)
"""
"""Trips in order of arrival; the last is late: JFK's watermark is 14:00 then."""


def hourly(frame: DataFrame) -> win.WindowOut[Any, Any]:
    trips = op.input("trips", Dataflow("trips"), DataFrameSource(frame))
    by_origin = op.key_on("by_origin", trips, "origin")
    aggregates: dict[str, Any] = {
        "n": win.Count(),
        "delay": win.Sum("delay"),
        "mean": win.Mean("delay"),
    }
    return win.aggregate_window(
        "hourly", by_origin, win.EventClock("at", "0s"), HOURS, **aggregates
    )


def trips(spark: SparkSession) -> DataFrame:
    return spark.sql(TRIPS).coalesce(1)


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2024, 5, 1, hour, minute, tzinfo=UTC)


def instants(frame: DataFrame, *names: str) -> DataFrame:
    """Replace timestamps by seconds, because PySpark returns naive local times."""
    return frame.withColumns({name: F.unix_seconds(name) for name in names})


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


@pytest.fixture
def changed(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield a session with settings unlike those of a run, and check that they stay."""
    settings = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2",
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.caseSensitive": "true",
    }
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield spark
        assert {name: spark.conf.get(name) for name in settings} == settings
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@pytest.mark.each_spark
def test_windows_are_flat_typed_columns_for_sql(changed: SparkSession) -> None:
    """In a session with another time zone, and with other settings, which stay as they are."""
    counts = Counter[tuple[str, str]]()
    frame = to_dataframe(hourly(trips(changed)).down, spark=changed, counts=counts, **SMALL)
    assert counts == Counter()
    assert frame.schema.simpleString() == (
        "struct<key:string,window_id:bigint,open_time:timestamp,close_time:timestamp,"
        "merged_ids:array<bigint>,is_retraction:boolean,n:bigint,delay:bigint,mean:double>"
    )
    of_window = ["window_id", "merged_ids", "is_retraction"]
    names = changed.sql("select 'JFK' key, 'Kennedy' name")
    joined = instants(frame, "open_time", "close_time").join(names, "key").drop(*of_window)
    assert rows(joined) == [
        ("JFK", at(12).timestamp(), at(13).timestamp(), 2, 30, 15.0, "Kennedy"),
        ("JFK", at(14).timestamp(), at(15).timestamp(), 1, 40, 40.0, "Kennedy"),
    ]
    assert counts["hourly", "late"] == 1
    counts.clear()
    totals = frame.groupBy("key").agg(F.sum("delay"), F.hour(F.max("open_time")))
    assert rows(totals) == [("JFK", 70, 10), ("LGA", -3, 8)]
    assert (counts["hourly", "late"], counts["trips", "out"]) == (1, 5)


def test_a_retraction_is_a_marked_row_with_the_columns_of_its_result(spark: SparkSession) -> None:
    clock, gap = win.EventClock(lambda at: at, "10s"), win.SessionWindower("5s")
    items = op.input("in", Dataflow("sessions"), TestingSource([10, 20, 15]))
    counts = win.count_window("n", items, clock, gap, lambda _: "a", emit="update")
    frame = to_dataframe(counts.down, spark=spark, **SMALL)
    assert rows(frame.select("window_id", "is_retraction", "value")) == [
        *((10_000_000, False, 1), (10_000_000, False, 3)),
        *((20_000_000, False, 1), (20_000_000, True, 1)),
    ]


def test_the_late_stream_is_a_frame_of_its_own(changed: SparkSession) -> None:
    late = to_dataframe(hourly(trips(changed)).late, spark=changed, **SMALL)
    found = late.selectExpr(
        "key", "value.delay", "unix_seconds(value.at)", "unix_seconds(watermark)", "late_by",
        "unix_seconds(window.open_time)", "reason",
    )  # fmt: skip
    late_at, watermark = at(12, 10), at(14)
    assert rows(found) == [
        (
            *("JFK", 99, late_at.timestamp(), watermark.timestamp()),
            *(watermark - late_at, at(12).timestamp(), "late"),
        )
    ]


def test_a_frame_has_the_columns_and_rows_of_parquet_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    """With aggregates of each kind of field, and two outputs, of which each is a frame.

    JFK's last trip, at 12:10, merges the sessions of 12:00 and 12:59.
    """
    by_origin = op.key_on(
        "by_origin", op.input("in", Dataflow("files"), DataFrameSource(trips(spark))), "origin"
    )
    aggregates: dict[str, Any] = {
        "total": win.Sum("distance"),
        "least": win.Min("at"),
        "gate": win.First("gate"),
        "two": win.MaxK("delay", 2),
        "gates": win.Collect("gate"),
    }
    sessions, clock = win.SessionWindower("50m"), win.EventClock("at", "3h")
    out = win.aggregate_window("s", by_origin, clock, sessions, ordered=False, **aggregates)
    op.output("sessions", out.down, ParquetSink(str(tmp_path / "sessions")))
    op.output("records", by_origin, ParquetSink(str(tmp_path / "records")))
    run(by_origin.flow, spark=spark, engine="batch", **SMALL)
    for name, stream in (("sessions", out.down), ("records", by_origin)):
        written = spark.read.parquet(str(tmp_path / name)).drop("epoch")
        frame = to_dataframe(stream, spark=spark, **SMALL)
        kinds = {field.name: field.dataType.simpleString() for field in frame.schema}
        assert kinds == {f.name: f.dataType.simpleString() for f in written.schema}
        assert sorted(map(str, frame.select(written.columns).collect())) == sorted(
            map(str, written.collect())
        )


@pytest.mark.extended
def test_a_flow_runs_when_spark_computes_the_frame(spark: SparkSession, tmp_path: Path) -> None:
    """Each time again; no sink is written, and steps beside the stream do not run."""
    calls = tmp_path / "calls"

    def double(number: int) -> int:
        with calls.open("a") as file:
            file.write("x")
        return number * 2

    flow, copy = Dataflow("lazy"), list[Any]()
    numbers = op.input("in", flow, TestingSource([1, 2, 3]))
    doubled = op.map("double", numbers, double)
    op.output("copy", doubled, TestingSink(copy))
    op.output("failing", op.map("fail", numbers, lambda n: n / 0), TestingSink([]))
    frame = to_dataframe(doubled, spark=spark, schema="value int")
    assert not calls.exists()
    assert rows(frame) == [(2,), (4,), (6,)]
    assert rows(frame.filter("value > 2")) == [(4,), (6,)]
    assert (calls.read_text(), copy) == ("x" * 6, [])
    cached = frame.cache()
    assert [cached.count(), cached.count(), len(calls.read_text())] == [3, 3, 9]
    cached.unpersist()


def failing(key_and_number: tuple[str, int]) -> float:
    return 1 / (key_and_number[1] - 7)


@pytest.mark.extended
@pytest.mark.each_spark
def test_a_failure_before_a_shuffle_fails_every_action(spark: SparkSession) -> None:
    """Also one that reads a part: the items after the failed one are missing everywhere."""
    pairs = op.input("in", Dataflow("failing"), TestingSource([(f"k{n}", n) for n in range(9)]))
    good = op.map("good", pairs, failing)
    spread = op.redistribute("spread", good)
    options: dict[str, Any] = {"spark": spark, "schema": "value double", "partitions": 2}
    frame = to_dataframe(spread, **options)
    message = (
        r"StepError: step 'good': the mapper raised ZeroDivisionError: division by zero\n"
        r"  item: \('k7', 7\)"
    )
    for action in (frame.collect, frame.limit(1).collect, frame.groupBy("value").count().collect):
        with pytest.raises(PySparkException, match=message):
            action()
    for number in range(2):
        with pytest.raises((PySparkException, Py4JJavaError), match=message):
            spark.sparkContext.runJob(to_dataframe(spread, **options).rdd, list, [number])


def test_a_failure_of_a_keyed_step_names_step_key_and_value(spark: SparkSession) -> None:
    def add(total: int, number: int) -> int:
        return total + number

    items = [("a", 1), ("a", 2), ("b", 1), ("b", "two")]
    pairs: Stream[Any] = op.input("in", Dataflow("sum"), TestingSource(items))
    frame = to_dataframe(op.reduce_final("sum", pairs, add), spark=spark, schema="key string")
    with pytest.raises(
        PySparkException, match=r"StepError: step 'sum': .*\n  key:  'b'\n  item: 'two'"
    ):
        frame.collect()


def test_op_raises_beside_the_stream_still_fails(spark: SparkSession) -> None:
    numbers = op.input("in", Dataflow("tried"), TestingSource([1, 0]))
    tried = op.try_map("invert", numbers, lambda n: 1 / n)
    op.raises("none", tried.errors)
    frame = to_dataframe(tried.ok, spark=spark, schema="value double")
    with pytest.raises(PySparkException, match="StepError: step 'none'"):
        frame.collect()


def test_a_value_that_does_not_fit_its_column_is_named(spark: SparkSession) -> None:
    numbers = op.input("in", Dataflow("unfit"), TestingSource([{"n": 1.5}]))
    frame = to_dataframe(numbers, spark=spark, schema="n int, other string")
    message = r"step 'to_dataframe\(in\)': field 'n' holds float 1\.5, .*: give a schema with types"
    with pytest.raises(PySparkException, match=message):
        frame.collect()


def test_a_frame_is_the_source_of_the_next_flow(spark: SparkSession) -> None:
    """Windows, SQL, windows of windows, SQL."""
    first = to_dataframe(hourly(trips(spark)).down, spark=spark, **SMALL)
    busy = first.filter("n > 0").withColumn("all", F.lit("all"))
    by_all = op.key_on("k", op.input("in", Dataflow("days"), DataFrameSource(busy)), "all")
    days = win.TumblingWindower("1d")
    clock = win.EventClock("open_time", "1d")
    daily = win.aggregate_window("daily", by_all, clock, days, n=win.Sum("n"), hours=win.Count())
    second = to_dataframe(daily.down, spark=spark, **SMALL)
    assert rows(second.selectExpr("key", "n + 1 n", "hours")) == [("all", 5, 3)]


@pytest.mark.extended
def test_values_that_a_frame_leaves_out_are_warned_of_once(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    frame = to_dataframe(hourly(trips(spark)).down, spark=spark, **SMALL)
    with caplog.at_level(logging.WARNING, "flow"):
        frame.count()
        frame.count()
    (record,) = [each for each in caplog.records if each.name == "flow"]
    assert "step 'hourly': values of stream 'hourly.late' are not in the data" in record.message


@pytest.mark.each_spark
@pytest.mark.parametrize("engine", ["batch", pytest.param("streaming", marks=pytest.mark.extended)])
def test_a_data_frame_sink_finds_its_columns(spark: SparkSession, engine: Any) -> None:
    handed: list[Any] = []

    def keep(frame: DataFrame, _epoch: int) -> None:
        handed.append(frame.schema.simpleString())
        handed.extend(rows(instants(frame, "open_time").select("key", "open_time", "delay")))

    out = hourly(trips(spark))
    op.output("out", out.down, DataFrameSink(keep))
    run(out.down.flow, spark=spark, engine=engine, **SMALL)
    noon, two = at(12).timestamp(), at(14).timestamp()
    assert [row for row in handed if not isinstance(row, str)] == [
        *(("JFK", noon, 30), ("JFK", two, 40), ("LGA", noon, -3))
    ]
    assert handed[0].startswith("struct<key:string,window_id:bigint,open_time:timestamp,")


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("value number", "a schema must be DDL text such as 'key string, total double', got"),
        ("n int, N long", "to_dataframe's schema must name each column once"),
    ],
)
def test_a_schema_that_spark_cannot_use_is_refused(
    spark: SparkSession, schema: str, problem: str
) -> None:
    numbers = op.input("in", Dataflow("bad"), TestingSource([1]))
    with pytest.raises(FlowBuildError, match=problem):
        to_dataframe(numbers, spark=spark, schema=schema)


def test_columns_that_are_not_known_need_a_schema(spark: SparkSession) -> None:
    doubled = op.map("double", op.input("in", Dataflow("f"), TestingSource([1])), lambda n: n * 2)
    message = (
        r"to_dataframe needs the schema of stream 'double', such as .*, because the source of step "
        "'in' does not know the columns of its records"
    )
    with pytest.raises(FlowBuildError, match=message):
        to_dataframe(doubled, spark=spark)


def test_a_source_without_an_end_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.schema("id string").parquet(str(tmp_path))
    rows_of_it = op.input("in", Dataflow("endless"), DataFrameSource(frame))
    message = r"step 'in': .* has no end, and a data frame needs one: run the flow with a DataFrame"
    with pytest.raises(FlowBuildError, match=message):
        to_dataframe(rows_of_it, spark=spark)


def test_files_that_are_missing_are_named_at_once(spark: SparkSession, tmp_path: Path) -> None:
    read = op.input("in", Dataflow("gone"), ParquetSource(str(tmp_path / "gone")))
    with pytest.raises(SourceError, match=r"step 'in': .*gone"):
        to_dataframe(read, spark=spark)


def test_arguments_are_checked(spark: SparkSession) -> None:
    numbers = op.input("in", Dataflow("f"), TestingSource([1]))
    tried = op.try_map("t", numbers, float)
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (tried, {}, "needs a Stream, got TryOut"),
        (
            numbers.flow,
            {},
            "needs a Stream, such as the stream that an op.output step of the flow ",
        ),
        (hourly(trips(spark)), {}, "needs a Stream, such as hourly.down of a windowing step, got"),
        (numbers, {"schema": 7}, "to_dataframe's schema must be a StructType or text, got 7"),
        (numbers, {"counts": {}}, "counts must be a collections.Counter, got dict"),
        (numbers, {"drain": 1}, "^to_dataframe: drain must be"),
        (numbers, {"spark": 7}, "spark= must be a SparkSession, got int 7"),
    ]
    for stream, arguments, problem in wrong:
        with pytest.raises(FlowTypeError, match=problem):
            to_dataframe(stream, **{"spark": spark, **arguments})


def test_workers_on_this_machine_run_in_the_python_of_the_program(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    context: Any = spark.sparkContext
    monkeypatch.setattr(context, "pythonExec", "/there/is/no/python")
    read = op.input("in", Dataflow("f"), DataFrameSource(trips(spark)))
    frame = to_dataframe(op.redistribute("spread", read), spark=spark)
    assert context.pythonExec == "/there/is/no/python"
    assert frame.count() == 5


def test_environment_variables_configure_a_frame(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables that concern a frame; an argument precedes them."""
    monkeypatch.setenv("FLOW_PARTITIONS", "3")
    monkeypatch.setenv("FLOW_RECOVERY", "checkpoint")
    down = hourly(trips(spark)).down
    assert to_dataframe(down).rdd.getNumPartitions() == 3
    assert to_dataframe(down, partitions=2).rdd.getNumPartitions() == 2
    monkeypatch.setenv("FLOW_MASTER", "local[9]")
    with pytest.raises(FlowBuildError, match=r"FLOW_MASTER='local\[9\]' cannot change the active"):
        to_dataframe(down)


def test_open_windows_are_left_out_without_a_drain_and_an_empty_result_has_its_columns(
    spark: SparkSession,
) -> None:
    frame = to_dataframe(hourly(trips(spark)).down, spark=spark, drain=False, **SMALL)
    assert rows(frame.select("key", "delay")) == [("JFK", 30)]
    empty = to_dataframe(hourly(trips(spark).limit(0)).down, spark=spark, **SMALL)
    assert (empty.columns[:2], empty.collect()) == (["key", "window_id"], [])
