"""Predicates of filter and branch that are expressions over columns."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Stream
from flow.columns.chunks import Items, KeyedRecords, Records
from flow.columns.predicate import ColumnPredicate
from flow.engine.plan.portability import obstacle_in
from flow.errors import FlowTypeError, StepError
from flow.operators.stateless import Branch, Filter
from flow.testing import key_by_key, run_once
from tests.support.one_stream import Build, driver, made
from tests.support.sampling import sampled

NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)
ORDERS: list[dict[str, Any]] = [
    {"shop": "Oslo", "amount": 20, "user": {"id": "u1"}, "at": NOON},
    {"shop": "Rome", "amount": 100, "user": {"id": "u2"}, "at": NOON.replace(hour=13)},
    {"shop": None, "amount": None, "user": None, "at": None},
    {"shop": "Oslo", "amount": 300, "user": {"id": None}, "at": NOON.replace(hour=14)},
]
RECORDS = pa.RecordBatch.from_pylist(ORDERS)
LARGE = pc.field("amount") >= 100


@dataclass(frozen=True)
class Point:
    x: int
    y: int | None


class Trade(NamedTuple):
    share: str
    price: float


def keep(predicate: Any) -> Build:
    return lambda s: op.filter("keep", s, predicate)


def keep_values(predicate: Any) -> Build:
    return lambda s: op.filter_value("keep", by_shop(s), predicate)


def by_shop(s: Stream[Any]) -> Stream[Any]:
    return op.key_on("by", s, lambda order: f"{order['shop']}")


# --- what is kept -----------------------------------------------------------------------------

KEPT: dict[str, tuple[Any, list[int]]] = {
    "comparison": (LARGE, [1, 3]),
    "negation, in which null stays null": (~LARGE, [0]),
    "null": (pc.field("amount").is_null(), [2]),
    "and": (LARGE & (pc.field("shop") == "Oslo"), [3]),
    "or": ((pc.field("amount") < 50) | (pc.field("shop") == "Rome"), [0, 1]),
    "one of several": (pc.field("shop").isin(["Rome", "Bern"]), [1]),
    "function of text": (pc.starts_with(pc.field("shop"), "Os"), [0, 3]),
    "field of a record in a record": (pc.field("user", "id") == "u2", [1]),
    "aware time": (pc.field("at") > NOON, [1, 3]),
    "all": (pc.scalar(True), [0, 1, 2, 3]),
    "none": (pc.scalar(False), []),
    "null for all": (pc.scalar(None), []),
}


@pytest.mark.parametrize(("predicate", "kept"), KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("items", [ORDERS, RECORDS], ids=["dicts", "records"])
def test_dicts_and_records_are_decided_alike(items: Any, predicate: Any, kept: list[int]) -> None:
    expected = [ORDERS[number] for number in kept]
    assert run_once(items, keep(predicate)) == expected
    assert run_once(items, lambda s: op.branch("large", s, predicate).trues) == expected
    falses = run_once(items, lambda s: op.branch("large", s, predicate).falses)
    assert falses == [order for n, order in enumerate(ORDERS) if n not in kept]


OBJECTS: dict[str, tuple[list[Any], Any, list[Any]]] = {
    "numbers": ([1, 5, None, 7], pc.field("value") > 3, [5, 7]),
    "text": (["a", "b"], pc.field("value") == "b", ["b"]),
    "dataclasses": ([Point(1, 2), Point(3, None)], pc.field("y") == 2, [Point(1, 2)]),
    "named tuples": ([Trade("A", 5.0), Trade("B", 7.0)], pc.field("price") > 6, [Trade("B", 7.0)]),
    "dicts that lack a field": ([{"a": 1}, {"b": 2}], pc.field("b") == 2, [{"b": 2}]),
    "not a number": ([float("nan"), 1.0], pc.field("value") == pc.field("value"), [1.0]),
    "nothing but nulls": ([{"a": None}], pc.field("a") > 3, []),
    "two types in a field not read": (
        [{"a": 1, "x": 1}, {"a": 5, "x": "b"}],
        pc.field("a") > 3,
        [{"a": 5, "x": "b"}],
    ),
    "no items": ([], pc.field("a") > 3, []),
}


@pytest.mark.parametrize(("items", "predicate", "kept"), OBJECTS.values(), ids=OBJECTS)
def test_objects_pass_unchanged(items: list[Any], predicate: Any, kept: list[Any]) -> None:
    assert run_once(items, keep(predicate)) == kept


@pytest.mark.parametrize("items", [ORDERS, RECORDS], ids=["dicts", "records"])
def test_in_a_keyed_stream_the_fields_are_those_of_the_values(items: Any) -> None:
    expected = [("Rome", ORDERS[1]), ("Oslo", ORDERS[3])]
    assert run_once(items, keep_values(LARGE)) == expected
    assert run_once(items, lambda s: op.filter("keep", by_shop(s), LARGE)) == expected
    assert run_once(items, lambda s: op.branch("keep", by_shop(s), LARGE).trues) == expected


def test_keyed_values_that_are_no_records_are_the_column_value() -> None:
    above = pc.field("value") > 3
    kept = run_once([("a", 1), ("a", 5)], lambda s: op.filter_value("keep", s, above))
    assert kept == [("a", 5)]


def hourly(s: Stream[Any]) -> Stream[Any]:
    """Return the numbers of each name, counted in hours."""
    clock, hours = win.EventClock("at", "0s"), win.TumblingWindower("1h")
    return win.aggregate_window("w", op.key_on("by", s, "name"), clock, hours, n=win.Count()).down


def test_results_of_windows_are_kept_by_their_aggregates() -> None:
    visits = [{"name": name, "at": 5.0} for name in "aab"]

    def several(s: Stream[Any]) -> Stream[Any]:
        return op.filter_value("several", hourly(s), pc.field("n") > 1)

    def without_keys(s: Stream[Any]) -> Stream[Any]:
        return op.filter("several", op.key_rm("values", hourly(s)), pc.field("n") > 1)

    ((key, result),) = run_once(visits, several)
    assert (key, result[1]) == ("a", {"n": 2})
    assert run_once(visits, without_keys) == [result]
    with key_by_key():
        assert run_once(visits, several) == [("a", result)]
        assert run_once(visits, without_keys) == [result]


@pytest.mark.parametrize(
    ("predicate", "items"),
    [(LARGE, RECORDS), (LARGE, ORDERS), (lambda order: (order["amount"] or 0) >= 100, ORDERS)],
)
def test_filters_count_what_they_drop(predicate: Any, items: Any) -> None:
    with driver(lambda s: op.filter("large", s, predicate)) as t:
        t.send("in", items)
        counts = {what: t.stats.counts["large", what] for what in ("in", "out", "filtered")}
    assert counts == {"in": 4, "out": 2, "filtered": 2}


# --- chunks -----------------------------------------------------------------------------------


def records() -> Records:
    return Records(RECORDS, np.arange(len(ORDERS), dtype=np.int64))


def test_records_stay_columns_with_their_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("records became objects")

    for name in ("rows_of", "as_items", "as_pairs"):
        monkeypatch.setattr(f"flow.columns.chunks.{name}", refuse)
        monkeypatch.setattr(f"flow.engine.steps.kernels.{name}", refuse)
    large, others = made(Branch(ColumnPredicate(LARGE)), records())
    (kept,) = made(Filter(ColumnPredicate(LARGE)), records())
    assert [type(chunk) for chunk in (large, others, kept)] == [Records] * 3
    assert [chunk.pos.tolist() for chunk in (large, others, kept)] == [[1, 3], [0, 2], [1, 3]]


def test_keyed_records_stay_columns() -> None:
    keyed = KeyedRecords(pa.array(list("abcd")), records().batch, records().pos)
    for on_value in (False, True):
        (kept,) = made(Filter(ColumnPredicate(LARGE), on_value), keyed)
        assert isinstance(kept, KeyedRecords)
        assert (kept.keys.to_pylist(), kept.pos.tolist()) == (["b", "d"], [1, 3])


def test_objects_are_kept_as_they_are() -> None:
    (kept,) = made(Filter(ColumnPredicate(LARGE)), Items(ORDERS, records().pos))
    assert isinstance(kept, Items)
    assert [id(item) for item in kept.items] == [id(ORDERS[1]), id(ORDERS[3])]


def test_a_slice_of_records_is_decided_by_its_own_rows() -> None:
    chunk = Records(RECORDS.slice(1, 2), np.arange(2, dtype=np.int64))
    (kept,) = made(Filter(ColumnPredicate(LARGE)), chunk)
    assert kept.pos.tolist() == [0]


def test_the_order_of_many_records_stays() -> None:
    """Arrow computes an expression for about 32,000 rows at a time."""
    numbers = np.arange(200_000)
    chunk = Records(pa.RecordBatch.from_pydict({"n": numbers}), numbers)
    every_fourth = ColumnPredicate(pc.bit_wise_and(pc.field("n"), 3) == 0)
    (kept,) = made(Filter(every_fourth), chunk)
    assert kept.pos.tolist() == list(range(0, 200_000, 4))


@pytest.mark.parametrize(
    "predicate", [pc.field("shop") == "Oslo", pc.starts_with(pc.field("shop"), "Os")]
)
def test_text_in_dictionaries_is_decided_as_text(predicate: Any) -> None:
    shops = pa.array(["Oslo", "Rome", None]).dictionary_encode()
    batch = pa.RecordBatch.from_arrays([shops], names=["shop"])
    assert run_once(batch, keep(predicate)) == [{"shop": "Oslo"}]


# --- the same as a function -------------------------------------------------------------------

AMOUNTS = st.none() | st.integers(-(2**40), 2**40)
ROWS = st.builds(
    lambda amount, shop, code: {"amount": amount, "shop": shop, "user": {"code": code}},
    AMOUNTS,
    st.none() | st.sampled_from(["Oslo", "Rome", ""]),
    st.none() | st.integers(0, 3),
)
SCHEMA = pa.schema(
    [
        ("amount", pa.int64()),
        ("shop", pa.string()),
        ("user", pa.struct([("code", pa.int8())])),
    ]
)


def sent(build: Build, epochs: list[list[dict[str, Any]]], as_records: bool) -> list[Any]:
    """Return the output of a step for rows that are sent in epochs."""
    with driver(build) as t:
        for rows in epochs:
            t.send("in", pa.RecordBatch.from_pylist(rows, schema=SCHEMA) if as_records else rows)
        return t.received("out")


@sampled(100, by_default=30)
@given(st.lists(st.lists(ROWS, max_size=8), max_size=4), AMOUNTS.filter(lambda n: n is not None))
def test_expressions_and_functions_keep_alike(
    epochs: list[list[dict[str, Any]]], least: int
) -> None:
    expression = (pc.field("amount") >= least) & (pc.field("user", "code") != 2) | (
        pc.field("shop") == "Rome"
    )

    def function(row: dict[str, Any]) -> bool:
        is_large = row["amount"] is not None and row["amount"] >= least
        return (is_large and row["user"]["code"] not in (None, 2)) or row["shop"] == "Rome"

    expected = [row for rows in epochs for row in rows if function(row)]
    for as_records in (False, True):
        assert sent(keep(expression), epochs, as_records) == expected
        assert sent(keep(function), epochs, as_records) == expected


# --- expressions as parts of a flow -----------------------------------------------------------


def test_a_predicate_survives_pickle_and_compares_by_value() -> None:
    kind = Filter(ColumnPredicate(LARGE))
    again = pickle.loads(pickle.dumps(kind))
    assert again == kind
    assert hash(again) == hash(kind)
    assert again != Filter(ColumnPredicate(pc.field("amount") > 100))
    assert obstacle_in(kind) is None
    assert "amount >= 100" in repr(kind)


# --- errors -----------------------------------------------------------------------------------

FAILURES: dict[str, tuple[Any, str]] = {
    "a number": (
        pc.field("amount") + 1,
        "the predicate 'add_checked(amount, 1)' must be true or false, and is of type int64: "
        "compare it with a value, as in pc.field('amount') >= 100; the columns are 'shop' (string)",
    ),
    "an unknown field": (
        pc.field("total") >= 100,
        "the predicate '(total >= 100)' reads a field that the items lack (No match for "
        "FieldRef.Name(total)): name one that they have, or use a function for fields that only "
        "some items have; the columns are 'shop' (",
    ),
    "an unknown field of a record in a record": (
        pc.field("user", "name") == "x",
        "reads a field that the items lack (No match for FieldRef.Nested(FieldRef.Name(user) "
        "FieldRef.Name(name))): name one that they have",
    ),
    "another type": (
        pc.field("amount") == "x",
        "the predicate '(amount == \"x\")' cannot be computed, ArrowNotImplementedError: Function "
        "'equal' has no kernel matching input types (int64, string): cast a field to another type",
    ),
    "a naive time": (
        pc.field("at") > NOON.replace(tzinfo=None),
        "cannot be computed, ArrowInvalid: Cannot compare timestamp with timezone to timestamp "
        "without timezone",
    ),
}


@pytest.mark.parametrize(("predicate", "message"), FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("items", [ORDERS, RECORDS], ids=["dicts", "records"])
def test_an_expression_that_fails_names_the_step(items: Any, predicate: Any, message: str) -> None:
    for build in (keep(predicate), keep_values(predicate)):
        with pytest.raises(StepError) as caught:
            run_once(items, build)
        assert str(caught.value).startswith("step 'keep': the predicate ")
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        ~pc.field("x"),
        pc.field("x").isin(["a"]),
        pc.starts_with(pc.field("x"), "a"),
        pc.year(pc.field("x")) > 2000,
        (pc.field("x", "y") > 1) & (pc.field("x", "z", "w") == 2),
        pc.field("o", "x", "y") > 1,
    ],
)
def test_items_that_are_null_alone_are_dropped_as_beside_others(expression: Any) -> None:
    items = [{"x": None, "o": {"x": None}}]
    assert run_once(items, keep(expression)) == []
    assert ColumnPredicate(expression).selects(items).tolist() == [False]


def test_a_column_of_nulls_without_a_type_is_an_error_with_advice() -> None:
    with pytest.raises(StepError, match=r"as in pc\.field\('is_paid'\)\.cast\('bool'\); the col"):
        run_once([{"x": None}], keep(pc.list_value_length(pc.field("x")) > 0))


@pytest.mark.parametrize("items", [[{"x": 1}, {"x": "b"}], [{"x": 1, "a": 1}, {"x": "b"}]])
def test_a_field_of_two_types_that_is_read_is_an_error(items: list[Any]) -> None:
    with pytest.raises(StepError, match=r"^step 'keep': field 'x' holds int and str"):
        run_once(items, keep(pc.field("x") > 0))


def test_a_condition_on_a_day_beside_a_time_is_an_error_not_a_comparison_of_days() -> None:
    day = NOON.date()
    items = [{"at": day}, {"at": NOON.replace(tzinfo=None)}]
    with pytest.raises(StepError, match=r"^step 'keep': field 'at' holds date and datetime"):
        run_once(items, keep(pc.field("at") > day))


def test_an_aggregate_decides_each_of_a_day_and_a_time_by_itself() -> None:
    day = NOON.date()
    values = [("k", {"at": day}), ("k", {"at": NOON.replace(tzinfo=None)})]
    later, two = win.Count(where=pc.field("at") > day), win.CountWindower(2)
    for items in (values, values[::-1]):
        ((_, (_, result)),) = run_once(
            items, lambda s: win.aggregate_window("w", s, win.SystemClock(), two, n=later).down
        )
        assert result == {"n": 1}


def test_an_aggregate_reads_of_objects_the_parts_that_its_expression_names() -> None:
    large = ColumnPredicate((pc.field("x", "y") > 1) & pc.field("x").is_valid())
    items: list[Any] = [{"x": {"y": 2, "other": object()}}, {"x": {"z": "b"}}, {"x": None}, {}]
    assert [bool(large.selects([item])[0]) for item in items] == [True, False, False, False]
    assert large.selects(items).tolist() == [True, False, False, False]
    for values in (ORDERS, RECORDS):
        assert ColumnPredicate(pc.scalar(True)).selects(values).tolist() == [True] * 4


def test_records_without_columns_are_an_error() -> None:
    with pytest.raises(StepError, match="the predicate 'true' needs items with columns"):
        run_once(RECORDS.select([]), keep(pc.scalar(True)))


def test_an_error_names_at_most_twenty_columns() -> None:
    wide = pa.RecordBatch.from_pydict({f"c{number}": [1] for number in range(25)})
    with pytest.raises(StepError, match=r"'c19' \(int64\) and 5 more$"):
        run_once(wide, keep(pc.field("n") > 0))


@pytest.mark.parametrize("items", [ORDERS, RECORDS], ids=["dicts", "records"])
def test_a_value_filter_of_items_without_keys_is_an_error(items: Any) -> None:
    with pytest.raises(StepError, match=r"^step 'keep': needs \(key, value\) pairs, got dict"):
        run_once(items, lambda s: op.filter_value("keep", s, LARGE))


@pytest.mark.parametrize("predicate", ["amount >= 100", True, None, pa.scalar(True)])
def test_what_is_neither_a_function_nor_an_expression_is_refused(predicate: Any) -> None:
    message = r"^step 'keep': predicate must be a function or an expression over columns such as pc"
    builds = (
        keep(predicate),
        keep_values(predicate),
        lambda s: op.branch("keep", s, predicate).trues,
    )
    for build in builds:
        with pytest.raises(FlowTypeError, match=message):
            run_once([], build)


def test_an_expression_that_no_worker_can_get_is_refused() -> None:
    message = r"^step 'keep': predicate must name fields by text, as pc\.field\('amount'\) does"
    with pytest.raises(FlowTypeError, match=message):
        run_once([], keep(pc.field(0) > 0))
