"""Records as objects of a class: what fits, what is refused before a run, and what is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NotRequired, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.files import ParquetSource
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.declared_columns import check_fields
from flow.errors import FlowBuildError, FlowTypeError, StepError
from flow.testing import TestingSink, run_once

pydantic = pytest.importorskip("pydantic")

AT = datetime(2026, 11, 27, 12, tzinfo=UTC)


@dataclass
class Item:
    sku: str
    n: int = 1


@dataclass
class Order:
    user: str
    at: datetime
    price: Decimal | None
    items: list[Item] = field(default_factory=list)


class OrderDict(TypedDict):
    user: str
    at: datetime
    price: Decimal | None
    items: NotRequired[list[Item]]


class OrderStruct(msgspec.Struct, frozen=True):
    user: str
    at: datetime
    price: Decimal | None
    items: list[Item] = msgspec.field(default_factory=list)


class OrderModel(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    user: str
    at: datetime
    price: Decimal | None
    items: list[Item] = pydantic.Field(default_factory=list)


ORDERS: list[Any] = [Order, OrderDict, OrderStruct, OrderModel]
RECORD = {"user": "ann", "at": AT, "price": Decimal("1.50"), "items": [{"sku": "x", "n": 2}]}
TYPES = {
    "user": pa.string(),
    "at": pa.timestamp("us", "UTC"),
    "price": pa.decimal128(10, 2),
    "items": pa.list_(pa.struct({"sku": pa.string(), "n": pa.int64()})),
    "note": pa.string(),
}


def get(order: Any, name: str) -> Any:
    return order[name] if isinstance(order, dict) else getattr(order, name)


@pytest.mark.parametrize("model", ORDERS)
def test_a_record_becomes_an_object_of_the_class(model: Any) -> None:
    for record in (RECORD, {**RECORD, "note": "left out", "at": "2026-11-27T12:00:00Z"}):
        (order,) = run_once([record], lambda orders: op.typed("orders", orders, model))
        assert isinstance(order, dict if model is OrderDict else model)
        assert [get(order, name) for name in ("user", "at")] == ["ann", AT]
        assert get(order, "items") == [Item("x", 2)]
    with pytest.raises(StepError, match=r"(?s)step 'orders'.*user"):
        run_once([{**RECORD, "user": 7}], lambda orders: op.typed("orders", orders, model))


@pytest.mark.parametrize("model", ORDERS)
def test_a_record_that_does_not_fit_goes_to_errors(model: Any) -> None:
    bad = {**RECORD, "items": [{"n": 1}]}
    for port, expected in (("ok", 1), ("errors", [bad])):
        found = run_once(
            [RECORD, bad], lambda orders, p=port: getattr(op.try_typed("o", orders, model), p)
        )
        assert (len(found) if port == "ok" else [one.item for one in found]) == expected


def flow_of(folder: Path, model: Any, types: Any = None, **changed: Any) -> tuple[Dataflow, Any]:
    """Return a flow over a Parquet file with the columns of orders, some of them changed."""
    types = {**TYPES, **changed} if types is None else types
    schema = pa.schema([(name, kind) for name, kind in types.items() if kind is not None])
    rows = [{name: value for name, value in RECORD.items() if name in schema.names}]
    table = pa.Table.from_pylist(rows if not changed else [], schema)
    pq.write_table(table, folder / "orders.parquet")
    flow, out = Dataflow("typed"), list[Any]()
    orders = op.input("in", flow, ParquetSource(folder / "orders.parquet"))
    op.output("out", op.typed("orders", orders, model), TestingSink(out))
    return flow, out


@pytest.mark.parametrize("model", ORDERS)
@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"user": None}, "step 'orders' names the field 'user', which the records"),
        ({"user": pa.int64()}, "the column 'user' has the type int64, which is not that of"),
        ({"at": pa.float64()}, None),  # pydantic reads Unix seconds.
        ({"price": pa.date32()}, "the column 'price' has the type date32"),
        ({"items": None}, None),
    ],
)
def test_columns_that_do_not_fit_are_errors_as_the_flow_is_built(
    model: Any, changed: Any, problem: str | None, tmp_path: Path
) -> None:
    flow, _ = flow_of(tmp_path, model, **changed)
    if "at" in changed and model is not OrderModel:
        problem = "the column 'at' has the type double"
    if problem is None:
        check_fields(compile_flow(flow))
        return
    with pytest.raises(FlowBuildError, match=problem):
        check_fields(compile_flow(flow))


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    user: str


class Tagged(msgspec.Struct, tag="order"):
    user: str


class StrictModel(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    model_config: ClassVar[Any] = {"extra": "forbid"}
    user: str


class Renamed(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    who: str = pydantic.Field(validation_alias="user")


class Joined(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    whole: str

    @pydantic.model_validator(mode="before")  # type: ignore[untyped-decorator]
    @classmethod
    def join(cls, record: Any) -> Any:
        return {"whole": f"{record['user']} {record['note']}"}


class Camel(msgspec.Struct, rename={"who": "user"}):
    who: str


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        *((model, set(RECORD)) for model in ORDERS),
        (Camel, {"user"}),
        *((model, None) for model in (Strict, Tagged, StrictModel, Renamed, Joined)),
    ],
)
def test_only_the_fields_of_the_class_are_read(model: Any, fields: Any, tmp_path: Path) -> None:
    flow, _ = flow_of(tmp_path, model)
    plan = compile_flow(flow)
    check_fields(plan)
    assert plan.fields_read.get("in") == fields


@pytest.mark.parametrize(("port", "fields"), [("ok", set(RECORD)), ("errors", None)])
def test_an_error_has_its_whole_record(port: str, fields: Any, tmp_path: Path) -> None:
    flow, _ = flow_of(tmp_path, Order)
    source = op.input("again", flow, ParquetSource(tmp_path / "orders.parquet"))
    tried = op.try_typed("tried", source, Order)
    op.output("read", getattr(tried, port), TestingSink([]))
    assert compile_flow(flow).fields_read.get("again") == fields


@pytest.mark.spark
@pytest.mark.extended
@pytest.mark.parametrize("model", ORDERS)
def test_classes_reach_workers(model: Any, spark: SparkSession, tmp_path: Path) -> None:
    flow, out = flow_of(tmp_path, model)
    run(flow, spark=spark)
    assert [(get(order, "user"), get(order, "price")) for order in out] == [("ann", Decimal("1.5"))]


@dataclass
class Day:
    day: date
    share: float


class Pair(NamedTuple):
    a: int


@dataclass
class Unknown:
    a: Nowhere  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (dict, "model must be a dataclass, a TypedDict, a msgspec.Struct or a pydantic model"),
        (Pair, "model must be a dataclass"),
        (Item("a"), "model must be a dataclass"),
        (pydantic.dataclasses.dataclass(Day), "model must be .*, which a dataclass of pydantic is"),
        (Unknown, "the fields of .*Unknown.* cannot be read"),
    ],
)
def test_other_classes_are_refused(model: Any, problem: str) -> None:
    with pytest.raises(FlowTypeError, match=f"step 'typed': {problem}"):
        run_once([], lambda rows: op.typed("typed", rows, model))


def test_an_item_of_a_keyed_stream_is_no_record() -> None:
    with pytest.raises(StepError, match=r"(?s)no record but a tuple.*before op\.key_on"):
        run_once(
            [RECORD], lambda rows: op.typed("typed", op.key_on("by", rows, "user"), OrderStruct)
        )


def test_dates_and_numbers_keep_their_types() -> None:
    rows = [{"day": date(2026, 1, 2), "share": 1}]
    (found,) = run_once(rows, lambda stream: op.typed("days", stream, Day))
    assert found == Day(date(2026, 1, 2), 1.0)
