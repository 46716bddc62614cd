"""Errors of aggregates: refused arguments and refused values."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pendulum
import pytest

import flow_windowing as win
from flow.errors import FlowBuildError, FlowTypeError
from flow.operators import RejectedValue

NAIVE = datetime(2024, 1, 1)  # noqa: DTZ001
DAY = pendulum.datetime(2024, 1, 1)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda: win.Sum(5),
            "Sum: field must be a function or a field's path such as",
        ),
        (lambda: win.Count(["a"]), "Count: field must be a function or a field's path such as"),
        (lambda: win.StdDev(sample=1), "StdDev: sample must be True or False, got int 1"),
    ],
)
def test_an_argument_of_a_wrong_type(make: Any, problem: str) -> None:
    with pytest.raises(FlowTypeError) as caught:
        make()
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: win.Sum(""), "Sum: field must be a field's path such as 'details.price', got ''"),
        (
            lambda: win.Last("a..b"),
            "Last: field must be a field's path such as",
        ),
        (lambda: win.MaxK("a"), "MaxK: k must be a whole number of at least 1, got None"),
        (lambda: win.MaxK("a", 0), "MaxK: k must be a whole number of at least 1, got 0"),
        (lambda: win.MinK("a", 1.0), "MinK: k must be a whole number of at least 1, got 1.0"),
        (
            lambda: win.MaxKUnique("a", True),
            "MaxKUnique: k must be a whole number of at least 1, got",
        ),
        (
            lambda: win.MinKUnique(k=-1),
            "MinKUnique: k must be a whole number of at least 1, got -1",
        ),
        (lambda: win.TopK("a"), "TopK: k must be a whole number of at least 1, got None"),
        (lambda: win.TopK(3), "TopK: field must be a function or a field's path such as"),
        (lambda: win.Quantile("a"), "Quantile: q must be a number from 0 to 1, got None"),
        (lambda: win.Quantile("a", 99), "Quantile: q must be a number from 0 to 1, got 99"),
        (lambda: win.Quantile("a", -0.1), "Quantile: q must be a number from 0 to 1, got -0.1"),
        (lambda: win.Quantile(q=float("nan")), "Quantile: q must be a number from 0 to 1, got nan"),
        (lambda: win.Quantile(q="0.5"), "Quantile: q must be a number from 0 to 1, got '0.5'"),
        (lambda: win.Quantile(q=True), "Quantile: q must be a number from 0 to 1, got True"),
    ],
)
def test_an_invalid_argument(make: Any, problem: str) -> None:
    with pytest.raises(FlowBuildError) as caught:
        make()
    assert str(caught.value).startswith(problem)


def test_a_class_is_not_an_aggregator() -> None:
    with pytest.raises(FlowTypeError, match=r"needs an Aggregator such as Count\(\), got <class"):
        win.aggregate(win.Sum, [1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "values", "problem"),
    [
        (win.Sum("a"), ["abc"], "Sum('a') cannot add 'abc' (str)"),
        (win.Sum("a"), [1, "2"], "Sum('a') cannot add '2' (str)"),
        (win.Sum("a"), [[1]], "Sum('a') cannot add [1] (list)"),
        (win.Sum("a"), [1j], "Sum('a') cannot add 1j (complex)"),
        (win.Sum("a"), [Decimal(1), 0.5], "Sum('a') cannot add 0.5 (float) to a total of Decimal"),
        (win.Sum("a"), [0.5, Decimal(1)],
         "Sum('a') cannot add Decimal('1') (Decimal) to a total of float"),
        (win.Sum("a"), [1, timedelta(1)],
         "Sum('a') cannot add datetime.timedelta(days=1) (timedelta) to a total of int"),
        (win.Sum("a"), [timedelta(1), 1], "Sum('a') cannot add 1 (int) to a total of timedelta"),
        (win.Sum("a"), [timedelta.max, timedelta(1)],
         "Sum('a') cannot add datetime.timedelta(days=1) (timedelta): "
         "days=1000000000; must have magnitude <= 999999999"),
        (win.Sum("a"), [pendulum.duration(months=1)], "Sum('a') cannot add Duration(months=1) ("),
        (win.Mean("a"), ["abc"], "Mean('a') cannot add 'abc' (str)"),
        (win.Mean("a"), [Decimal(1), 0.5],
         "Mean('a') cannot add 0.5 (float) to a total of Decimal"),
        (win.StdDev("a"), ["1"], "StdDev('a') needs numbers, not '1' (str)"),
        (win.StdDev("a"), [timedelta(1)],
         "StdDev('a') needs numbers, not datetime.timedelta(days=1) (timedelta)"),
        (win.Quantile("a", 0.5), [1, "1"], "Quantile('a', 0.5) needs numbers, not '1' (str)"),
        (win.Quantile("a", 0.5), [10**400], "Quantile('a', 0.5) cannot make a float of 1000"),
        (win.Quantile("a", 0.5), [Decimal("snan")],
         "Quantile('a', 0.5) cannot make a float of Decimal('sNaN') (Decimal)"),
        (win.Min("a"), [1, "b"], "Min('a') cannot compare 'b' (str) with 1 (int)"),
        (win.Max("a"), ["b", float("nan")], "Max('a') cannot compare nan (float) with 'b' (str)"),
        (win.Max("a"), [{1}, {2}], "Max('a') cannot compare {2} (set) with {1} (set)"),
        (win.Max("a"), [{}, {}, {"b": 1}], "Max('a') cannot compare {} (dict) with {} (dict)"),
        (win.Min("a"), [NAIVE, DAY], "Min('a') cannot compare DateTime(2024, 1, 1"),
        (win.MaxK("a", 2), [1, "b"], "MaxK('a', 2) cannot compare 'b' (str) with 1 (int)"),
        (win.MinK("a", 1), [1, "b"], "MinK('a', 1) cannot compare 'b' (str) with 1 (int)"),
        (win.CountDistinct("a"), [[1]],
         "CountDistinct('a') cannot tell [1] (list) from others: it has no hash"),
        (win.CollectUnique("a"), [{}],
         "CollectUnique('a') cannot tell {} (dict) from others: it has no hash"),
        (win.TopK("a", 2), [([],)],
         "TopK('a', 2) cannot tell ([],) (tuple) from others: it has no hash"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_aggregated(
    one: win.Aggregator[Any, Any, Any], values: list[Any], problem: str
) -> None:
    with pytest.raises(RejectedValue) as caught:
        win.aggregate(one, [{"a": value} for value in values])
    assert str(caught.value).startswith(problem)
    assert caught.value.value == {"a": values[1 if len(values) > 1 else 0]}


def test_types_that_do_not_mix_are_named_at_a_merge() -> None:
    left = win.Max().add(win.Max().initialize(), "a")
    right = win.Max().add(win.Max().initialize(), 1)
    with pytest.raises(RejectedValue, match=r"Max\(\) cannot compare 1 \(int\) with 'a' \(str\)"):
        win.Max().merge(left, right)
    dollars = win.Sum().add(win.Sum().initialize(), Decimal(1))
    floats = win.Sum().add(win.Sum().initialize(), 0.5)
    with pytest.raises(RejectedValue, match=r"cannot add 0\.5 \(float\) to a total of Decimal"):
        win.Sum().merge(dollars, floats)


class Faulty:
    """Its field cannot be read."""

    @property
    def price(self) -> int:
        raise OSError("no such disk")

    def __lt__(self, other: object) -> bool:
        raise OSError("no order")

    def __hash__(self) -> int:
        raise OSError("no hash")


@pytest.mark.parametrize(
    ("one", "value", "problem"),
    [
        (win.Sum(lambda row: row["b"]), {"a": 1},
         "Sum(<lambda>): reading the value raised KeyError: 'b'"),
        (win.Count(lambda row: 1 / 0), 1,
         "Count(<lambda>): reading the value raised ZeroDivisionError: division by zero"),
        (win.Collect("price"), Faulty(),
         "Collect('price'): reading the value raised OSError: no such disk"),
    ],
)  # fmt: skip
def test_an_error_of_a_function_names_the_value(
    one: win.Aggregator[Any, Any, Any], value: object, problem: str
) -> None:
    with pytest.raises(RejectedValue) as caught:
        win.aggregate(one, [value])
    assert str(caught.value) == problem
    assert caught.value.value is value
    assert isinstance(caught.value.__cause__, Exception)


def test_a_function_may_reject_a_value_itself() -> None:
    def price(value: object) -> int:
        raise RejectedValue(value, "prices are in dollars")

    with pytest.raises(RejectedValue, match=r"^prices are in dollars$"):
        win.aggregate(win.Sum(price), [1])


@pytest.mark.parametrize("one", [win.Min(), win.MaxK(k=1), win.CountDistinct(), win.TopK(k=1)])
def test_an_error_of_a_values_methods_is_the_cause(one: win.Aggregator[Any, Any, Any]) -> None:
    with pytest.raises(RejectedValue) as caught:
        win.aggregate(one, [Faulty(), Faulty()])
    assert isinstance(caught.value.__cause__, OSError)
