"""Misspelt fields: found in the columns that are known, and in the records that steps read."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import flow.execution
import flow.operators as op
import flow_windowing as win
from flow import Dataflow, FlowBuildError, StepError, run
from flow.connectors.files import CsvSource, JsonLinesSource, ParquetSource
from flow.connectors.kafka import KafkaSink
from flow.connectors.sql import SqliteSink
from flow.engine.epoch.seen_fields import FieldWarnings
from flow.engine.epoch.statistics import SeenFields
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.declared_columns import check_fields
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key, run_once
from flow.views import ViewSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        ("shop", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("amount", pa.float64()),
        ("user", pa.struct([("id", pa.string())])),
    ]
)
HOURS = win.TumblingWindower("1h")
CLOCK = win.EventClock("at", "1m")
Build = Callable[[Any], Any]


def total(up: Any, *, key: str = "shop", clock: Any = CLOCK, **aggregates: Any) -> Any:
    keyed = op.key_on("key", up, key)
    return win.aggregate_window("hourly", keyed, clock, HOURS, **aggregates)


def right_value(up: Any, path: str) -> Any:
    keyed = op.key_on("key", up, "shop")
    return win.join_asof("join", keyed, keyed, CLOCK, "1h", right_value=path)


def writing(up: Any, sink: Any) -> Any:
    op.output("write", up, sink)
    return up


MISTAKES: dict[str, tuple[Build, str, str, str]] = {
    "an aggregate": (lambda s: total(s, n=win.Sum("amuont")), "hourly", "amuont", "amount"),
    "a nested field": (
        lambda s: total(s, n=win.Count("user.iid")),
        "hourly",
        "user.iid",
        "user.id",
    ),
    "a key": (lambda s: op.key_on("by", s, "shpo"), "by", "shpo", "shop"),
    "one of several keys": (lambda s: op.key_on("by", s, ["shop", "usr"]), "by", "usr", "user"),
    "a clock": (
        lambda s: total(s, clock=win.EventClock("att", "1m"), n=win.Count()),
        *("hourly", "att", "at"),
    ),
    "a condition": (
        lambda s: total(s, n=win.Count(where=pc.field("amonut") > 5)),
        *("hourly", "amonut", "amount"),
    ),
    "a filter": (
        lambda s: op.filter("large", s, pc.field("amonut") > 5),
        "large",
        "amonut",
        "amount",
    ),
    "a branch": (lambda s: op.branch("large", s, pc.field("shp") == "a"), "large", "shp", "shop"),
    "an id": (
        lambda s: win.dedup("once", op.key_on("key", s, "shop"), CLOCK, "user.idd", ttl="1h"),
        *("once", "user.idd", "user.id"),
    ),
    "the right value of a join": (lambda s: right_value(s, "amout"), "join", "amout", "amount"),
    "records": (
        lambda s: op.key_on(
            "by", op.records("rows", total(s, totals=win.Sum("amount")).down), "keyy"
        ),
        *("by", "keyy", "key"),
    ),
    "a table": (
        lambda s: writing(s, SqliteSink("out.db", "t", mode="upsert", key="shopp")),
        *("write", "shopp", "shop"),
    ),
    "a topic": (lambda s: writing(s, KafkaSink("h:1", "t", key="shopp")), "write", "shopp", "shop"),
    "a view": (lambda s: writing(s, ViewSink(key="shopp")), "write", "shopp", "shop"),
}


def flow_of(source: Any, build: Build) -> Dataflow:
    sales = Dataflow("sales")
    made = build(op.input("in", sales, source))
    op.output("out", getattr(made, "down", getattr(made, "trues", made)), TestingSink([]))
    return sales


def check(source: Any, build: Build) -> None:
    check_fields(compile_flow(flow_of(source, build)))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_field_that_no_column_has_is_an_error_before_the_run(mistake: str) -> None:
    build, step_id, path, near = MISTAKES[mistake]
    with pytest.raises(FlowBuildError) as caught:
        check(JsonLinesSource("in/", schema=SCHEMA), build)
    assert str(caught.value) == (
        f"step {step_id!r} names the field {path!r}, which the records that it reads do not have: "
        f"is it {near!r}?"
    )


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("amount", "a column of double"),
        (["shop", "at"], "a column of timestamp[us, tz=UTC]"),
        ("user", "a column of struct<id: string>"),
    ],
)
def test_a_key_of_a_column_without_a_text_form_is_an_error_before_the_run(
    key: Any, kind: str
) -> None:
    name = key if isinstance(key, str) else key[-1]
    with pytest.raises(FlowBuildError) as caught:
        check(JsonLinesSource("in/", schema=SCHEMA), lambda s: op.key_on("by", s, key))
    assert str(caught.value).startswith(
        f"step 'by': the key field {name!r} is {kind}, and a key is made of text, whole numbers, "
    )
    kinds = [pa.string(), pa.int8(), pa.bool_(), pa.date32()]
    keys = pa.schema([(f"k{number}", kind) for number, kind in enumerate(kinds)])
    check(JsonLinesSource("in/", schema=keys), lambda s: op.key_on("by", s, keys.names))


def test_the_columns_of_a_csv_schema_and_of_a_parquet_file_are_known(tmp_path: Path) -> None:
    pq.write_table(SCHEMA.empty_table(), tmp_path / "sales.parquet")
    build = MISTAKES["an aggregate"][0]
    for source in (
        ParquetSource(tmp_path / "sales.parquet"),
        CsvSource("in/", schema={"shop": pa.string(), "amount": pa.int64(), "at": pa.int64()}),
    ):
        with pytest.raises(FlowBuildError, match="is it 'amount'"):
            check(source, build)
        check(source, lambda s: total(s, n=win.Sum("amount")))


def test_nothing_is_said_where_columns_are_not_known(tmp_path: Path) -> None:
    build = MISTAKES["an aggregate"][0]
    check(JsonLinesSource("in/"), build)
    check(ParquetSource(tmp_path / "none.parquet"), build)
    check(
        JsonLinesSource("in/", schema=SCHEMA),
        lambda s: total(op.map("new", s, dict), n=win.Sum("amuont")),
    )


def test_parts_of_other_values_than_structs_are_not_known() -> None:
    check(JsonLinesSource("in/", schema=SCHEMA), lambda s: total(s, years=win.Count("at.year")))


def test_a_field_that_is_expected_to_be_missing_is_no_mistake() -> None:
    for missing in ("skip", 0):
        build: Build = lambda s, m=missing: total(s, n=win.Sum("tip", missing=m))  # noqa: E731
        check(JsonLinesSource("in/", schema=SCHEMA), build)
        with TestDriver(flow_of(TestingSource([]), build)) as t:
            t.send("in", SALES)
            t.end()


SALES: list[Any] = [
    {"shop": "a", "at": 5, "amount": 2.0, "user": {"id": "x"}},
    {"shop": "a", "at": 6, "amount": 3.0, "user": {"id": "y"}, "note": "late"},
]


@dataclass(frozen=True)
class Sale:
    shop: str
    at: int
    amount: float


QUIET = {
    "an aggregate": (win.Sum("amuont"), "amuont", "amount"),
    "a nested field": (win.Count("user.iid"), "user.iid", "user.id"),
    "a condition": (win.Count(where=pc.field("amuont") > 1), "amuont", "amount"),
}


@pytest.mark.parametrize("as_columns", [True, False])
@pytest.mark.parametrize("mistake", QUIET)
def test_a_field_that_no_record_has_fails_the_test_of_a_flow(
    mistake: str, as_columns: bool
) -> None:
    aggregate, path, near = QUIET[mistake]
    with TestDriver(flow_of(TestingSource([]), lambda s: total(s, n=aggregate))) as t:
        for sale in SALES:
            t.send("in", pa.RecordBatch.from_pylist([sale]) if as_columns else [sale])
        with pytest.raises(StepError) as caught:
            t.end()
    assert str(caught.value) == (
        f"step 'hourly': no record that it has read has the field {path!r}, which only an "
        f"aggregate with missing='skip' may name: is it {near!r}?"
    )


def test_objects_have_fields_too() -> None:
    objects = flow_of(TestingSource([]), lambda s: total(s, n=win.Sum("amuont")))
    with TestDriver(objects) as t, key_by_key():
        t.send("in", [Sale("a", 5, 2.0)])
        with pytest.raises(StepError, match="is it 'amount'"):
            t.end()


def test_one_record_with_the_field_in_the_run_is_enough() -> None:
    notes = flow_of(TestingSource([]), lambda s: total(s, n=win.Count("note")))
    for order in (SALES, SALES[::-1]):
        for epochs in ([order], [[sale] for sale in order]):
            with TestDriver(notes) as t:
                for sales in epochs:
                    t.send("in", sales)
                t.end()


def test_values_that_a_clock_drops_for_a_misspelt_field_fail_the_test() -> None:
    clock = win.EventClock("att", "1m", on_invalid="drop")
    with pytest.raises(StepError, match=r"has the field 'att', .*: is it 'at'"):
        run_once(SALES, lambda s: total(s, clock=clock, n=win.Count()).down)


def test_errors_of_a_missing_field_name_the_nearest() -> None:
    with pytest.raises(StepError, match=r"there is no field 'shpo' .*: is it 'shop'"):
        run_once(SALES, lambda s: op.key_on("by", s, "shpo"))
    with pytest.raises(StepError, match=r"there is no field 'att' .*: is it 'at'"):
        run_once(SALES, lambda s: total(s, clock=win.EventClock("att", "1m"), n=win.Count()).down)
    with pytest.raises(StepError, match=r"there is no field 'z' .*: there are 'shop', 'at', "):
        run_once(SALES, lambda s: op.key_on("by", s, "z"))


def test_a_run_warns_once_after_the_first_records(caplog: pytest.LogCaptureFixture) -> None:
    warn, name = FieldWarnings(), ("hourly", "amuont")
    epochs: list[SeenFields] = [{}, {name: ("at", "amount")}, {name: ("at",)}, {name: None}]
    with caplog.at_level(logging.WARNING, "flow"):
        for seen in epochs:
            warn(seen)
    assert [record.getMessage() for record in caplog.records] == [
        "step 'hourly': no record that it has read has the field 'amuont', which only an "
        "aggregate with missing='skip' may name: is it 'amount'?"
    ]


def test_a_run_refuses_a_misspelt_field_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flow.execution, "session_for", lambda *_: pytest.fail("Spark starts"))
    sales = flow_of(JsonLinesSource("in/", schema=SCHEMA), MISTAKES["an aggregate"][0])
    with pytest.raises(FlowBuildError, match="names the field 'amuont'"):
        run(sales, engine="batch")


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["streaming", pytest.param("batch", marks=pytest.mark.extended)])
def test_a_run_on_spark_warns_of_a_misspelt_field(
    engine: Any, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    sales = flow_of(
        TestingSource(SALES),
        lambda s: total(s, n=win.Sum("amuont"), notes=win.Count("note"), all=win.Sum("amount")),
    )
    with caplog.at_level(logging.WARNING, "flow"):
        run(sales, spark=spark, engine=engine)
    warned = [text for text in caplog.messages if "no record that it has read" in text]
    assert warned == [
        "step 'hourly': no record that it has read has the field 'amuont', which only an "
        "aggregate with missing='skip' may name: is it 'amount'?"
    ]
