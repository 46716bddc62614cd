"""The values that an aggregate takes, by `where` and `missing`: over columns and key by key."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import flow.operators as op
import flow_windowing as win
from flow import FlowBuildError, StepError
from flow.columns.predicate import ColumnPredicate
from flow.testing import TestDriver, key_by_key, run_once
from flow_windowing import aggregate
from recovery.identity.fingerprint import describe
from tests.support.windowed_flows import windowed_flow

FAILED = pc.field("status") == "failed"
ORDERS = [
    {"at": 1, "status": "failed", "amount": 5, "ms": 0.5},
    {"at": 2, "status": "paid", "amount": 7, "ms": 2.5},
    {"at": 2, "status": "failed", "amount": None, "ms": None},
    {"at": 3, "status": None, "amount": 11, "ms": 4.0},
    {"at": 9, "status": "failed", "amount": 3, "ms": 1.5},
    {"at": 12, "status": "paid", "amount": 1, "ms": 0.25},
]
ANY: list[Any] = [
    *(win.Sum, win.Min, win.Max, win.Mean, win.First, win.Last, win.Earliest, win.Latest),
    *(win.Collect, win.CollectUnique, win.CountDistinct, win.StdDev, win.Count),
    *(partial(kind, k=2) for kind in (win.TopK, win.MaxK, win.MinK, win.MaxKUnique)),
    *(partial(kind, q=0.5) for kind in (win.Quantile, win.ApproxQuantile)),
    *(partial(win.MinKUnique, k=2), partial(win.ApproxTopK, k=2), win.ApproxCountDistinct),
]


def has_failed(order: Any) -> bool:
    return order.get("status") == "failed"


@pytest.mark.parametrize("made", ANY)
def test_an_aggregate_with_where_is_that_of_the_selected_values(made: Any) -> None:
    selected = [order for order in ORDERS if has_failed(order)]
    for where in (FAILED, has_failed):
        found = aggregate(made("amount", where=where), ORDERS)
        assert found == aggregate(made("amount"), selected)
    assert aggregate(win.Count(where=FAILED), ORDERS) == 3


def results(items: Any, windower: Any, emit: Any, **aggregates: Any) -> list[Any]:
    clock = win.EventClock("at", "1m")
    out = run_once(
        items,
        lambda up: (
            win.aggregate_window(
                "w", op.key_on("key", up, lambda _: "k"), clock, windower, emit=emit, **aggregates
            ).down
        ),
    )
    return [value for _, (_, value) in out]


WINDOWERS = [
    win.TumblingWindower("10s"),
    win.SlidingWindower("10s", "5s"),
    win.SessionWindower("2s"),
    win.CountWindower(3),
]


@pytest.mark.parametrize("windower", WINDOWERS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("emit", ["close", "update"])
def test_columns_objects_and_keys_give_the_same(windower: Any, emit: Any) -> None:
    large = (pc.field("amount") > 4) | ~pc.field("amount").is_valid()
    aggregates = {
        "n": win.Count(where=FAILED),
        "of": win.Count("amount", where=FAILED),
        "total": win.Sum("amount", where=FAILED, missing=2),
        "mean": win.Mean("ms", where=large, missing=1.5),
        "most": win.Max("ms", where=FAILED),
        "late": win.Latest("status", where=large),
        "all": win.Collect("amount", where=has_failed, missing=0),
    }
    given = [ORDERS, pa.RecordBatch.from_pylist(ORDERS)]
    found = [results(items, windower, emit, **aggregates) for items in given]
    with key_by_key():
        found += [results(items, windower, emit, **aggregates) for items in given]
    assert found[1:] == found[:1] * 3
    if emit == "close" and windower == WINDOWERS[0]:
        first = {"n": 3, "of": 2, "total": 10, "mean": 2.125, "most": 1.5, "late": None}
        last = {"n": 0, "of": 0, "total": 0, "mean": None, "most": None, "late": None}
        assert found[0] == [{**first, "late": "failed", "all": [5, 0, 3]}, {**last, "all": []}]


def test_an_aggregate_with_an_expression_reads_its_fields_alone() -> None:
    assert win.Count(where=FAILED).paths_read == {"status"}
    assert win.Sum("ms", where=FAILED).paths_read == {"status", "ms"}
    assert win.Sum("ms", where=has_failed).paths_read is None


@pytest.mark.parametrize("as_columns", [True, False])
def test_a_missing_field_stops_the_flow_where_it_must_not(as_columns: bool) -> None:
    items: Any = pa.RecordBatch.from_pylist(ORDERS) if as_columns else ORDERS
    total = win.Sum("amount", missing="fail")
    with pytest.raises(
        StepError, match=r"Sum\('amount', missing='fail'\) found no value"
    ) as caught:
        results(items, WINDOWERS[0], "close", total=total)
    assert "'amount': None, 'at': 2" in str(caught.value)
    paid = win.Sum("amount", where=pc.field("status") == "paid", missing="fail")
    assert results(items, WINDOWERS[0], "close", total=paid) == [{"total": 7}, {"total": 1}]


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        (lambda order: order["state"], "where raised KeyError: 'state'"),
        (lambda order: order["amount"], r"where must return True or False, got 5 \(int\)"),
        (pc.field("amount"), "where raised ValueError: amount must be true or false, and is of"),
        (pc.field("status") + 1, "where raised ArrowNotImplementedError"),
    ],
)
def test_a_where_that_is_no_condition_names_the_value(where: Any, problem: str) -> None:
    for items in (ORDERS, pa.RecordBatch.from_pylist(ORDERS)):
        with pytest.raises(StepError, match=problem) as caught:
            results(items, WINDOWERS[0], "close", n=win.Count(where=where))
        assert "'amount': 5" in str(caught.value)


def test_a_where_of_another_type_is_refused() -> None:
    problem = r"Count: where must be a function or an expression over columns such as pc\.field"
    with pytest.raises(FlowBuildError, match=problem):
        win.Count(where="failed")  # type: ignore[arg-type]


def test_fields_that_a_value_lacks_are_null_in_an_expression() -> None:
    values: list[Any] = [{"paid": True}, {}, {"paid": None}, {"paid": False}]
    paid, nested = pc.field("paid"), pc.field("shop", "open")
    for expression, count in ((paid, 1), (~paid, 1), (paid.is_null(), 2), (nested.is_null(), 4)):
        assert aggregate(win.Count(where=expression), values) == count
        assert ColumnPredicate(expression).selects(values).sum() == count
        assert (
            ColumnPredicate(expression).selects(pa.RecordBatch.from_pylist(values)).sum() == count
        )


def test_equal_conditions_make_equal_aggregates_that_show_them() -> None:
    count = win.Count(where=pc.field("status") == "failed")
    assert count == win.Count(where=FAILED) != win.Count(where=pc.field("status") == "paid")
    assert repr(count) == 'Count(where=(status == "failed"))'
    assert repr(win.TopK("a", 2, missing=0)) == "TopK('a', 2, missing=0)"


def test_the_state_of_another_condition_does_not_continue() -> None:
    assert describe(win.Count(where=FAILED))["where"] == '(status == "failed")'


def test_one_epoch_after_another_takes_the_same_values() -> None:
    window = (win.EventClock("at", "1m"), win.TumblingWindower("1h"))
    total = win.Sum("amount", where=FAILED)
    flow = windowed_flow(lambda up: win.aggregate_window("w", up, *window, total=total))
    with TestDriver(flow) as t:
        for order in ORDERS:
            t.send("in", [("k", order)])
        t.end()
        assert [value for _, (_, value) in t.received("down")] == [{"total": 8}]
