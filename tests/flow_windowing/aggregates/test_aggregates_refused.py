"""Errors of aggregates: refused arguments and refused values."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pendulum
import pytest

from flow.errors import FlowBuildError, FlowTypeError
from flow.operators import RejectedValue
from flow_windowing import (
    Aggregator,
    Collect,
    CollectUnique,
    Count,
    CountDistinct,
    Last,
    Max,
    MaxK,
    MaxKUnique,
    Mean,
    Min,
    MinK,
    MinKUnique,
    Quantile,
    StdDev,
    Sum,
    TopK,
    aggregate,
)

NAIVE = datetime(2024, 1, 1)  # noqa: DTZ001
DAY = pendulum.datetime(2024, 1, 1)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda: Sum(5),
            "Sum: field must be a function or a field's path such as",
        ),
        (lambda: Count(["a"]), "Count: field must be a function or a field's path such as"),
        (lambda: StdDev(sample=1), "StdDev: sample must be True or False, got 1"),
    ],
)
def test_an_argument_of_a_wrong_type(make: Any, problem: str) -> None:
    with pytest.raises(FlowTypeError) as caught:
        make()
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Sum(""), "Sum: field must be a field's path such as 'details.price', got ''"),
        (
            lambda: Last("a..b"),
            "Last: field must be a field's path such as",
        ),
        (lambda: MaxK("a"), "MaxK: k must be a whole number of at least 1, got None"),
        (lambda: MaxK("a", 0), "MaxK: k must be a whole number of at least 1, got 0"),
        (lambda: MinK("a", 1.0), "MinK: k must be a whole number of at least 1, got 1.0"),
        (lambda: MaxKUnique("a", True), "MaxKUnique: k must be a whole number of at least 1, got"),
        (lambda: MinKUnique(k=-1), "MinKUnique: k must be a whole number of at least 1, got -1"),
        (lambda: TopK("a"), "TopK: k must be a whole number of at least 1, got None"),
        (lambda: TopK(3), "TopK: field must be a function or a field's path such as"),
        (lambda: Quantile("a"), "Quantile: q must be a number from 0 to 1, got None"),
        (lambda: Quantile("a", 99), "Quantile: q must be a number from 0 to 1, got 99"),
        (lambda: Quantile("a", -0.1), "Quantile: q must be a number from 0 to 1, got -0.1"),
        (lambda: Quantile(q=float("nan")), "Quantile: q must be a number from 0 to 1, got nan"),
        (lambda: Quantile(q="0.5"), "Quantile: q must be a number from 0 to 1, got '0.5'"),
        (lambda: Quantile(q=True), "Quantile: q must be a number from 0 to 1, got True"),
    ],
)
def test_an_invalid_argument(make: Any, problem: str) -> None:
    with pytest.raises(FlowBuildError) as caught:
        make()
    assert str(caught.value).startswith(problem)


def test_a_class_is_not_an_aggregator() -> None:
    with pytest.raises(FlowTypeError, match=r"needs an Aggregator such as Count\(\), got <class"):
        aggregate(Sum, [1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "values", "problem"),
    [
        (Sum("a"), ["abc"], "Sum('a') cannot add 'abc' (str)"),
        (Sum("a"), [1, "2"], "Sum('a') cannot add '2' (str)"),
        (Sum("a"), [[1]], "Sum('a') cannot add [1] (list)"),
        (Sum("a"), [1j], "Sum('a') cannot add 1j (complex)"),
        (Sum("a"), [Decimal(1), 0.5], "Sum('a') cannot add 0.5 (float) to a total of Decimal"),
        (Sum("a"), [0.5, Decimal(1)],
         "Sum('a') cannot add Decimal('1') (Decimal) to a total of float"),
        (Sum("a"), [1, timedelta(1)],
         "Sum('a') cannot add datetime.timedelta(days=1) (timedelta) to a total of int"),
        (Sum("a"), [timedelta(1), 1], "Sum('a') cannot add 1 (int) to a total of timedelta"),
        (Sum("a"), [timedelta.max, timedelta(1)],
         "Sum('a') cannot add datetime.timedelta(days=1) (timedelta): "
         "days=1000000000; must have magnitude <= 999999999"),
        (Sum("a"), [pendulum.duration(months=1)], "Sum('a') cannot add Duration(months=1) ("),
        (Mean("a"), ["abc"], "Mean('a') cannot add 'abc' (str)"),
        (Mean("a"), [Decimal(1), 0.5], "Mean('a') cannot add 0.5 (float) to a total of Decimal"),
        (StdDev("a"), ["1"], "StdDev('a') needs numbers, not '1' (str)"),
        (StdDev("a"), [timedelta(1)],
         "StdDev('a') needs numbers, not datetime.timedelta(days=1) (timedelta)"),
        (Quantile("a", 0.5), [1, "1"], "Quantile('a', 0.5) needs numbers, not '1' (str)"),
        (Quantile("a", 0.5), [10**400], "Quantile('a', 0.5) cannot make a float of 1000"),
        (Quantile("a", 0.5), [Decimal("snan")],
         "Quantile('a', 0.5) cannot make a float of Decimal('sNaN') (Decimal)"),
        (Min("a"), [1, "b"], "Min('a') cannot compare 'b' (str) with 1 (int)"),
        (Max("a"), ["b", float("nan")], "Max('a') cannot compare nan (float) with 'b' (str)"),
        (Max("a"), [{1}, {2}], "Max('a') cannot compare {2} (set) with {1} (set)"),
        (Max("a"), [{}, {}, {"b": 1}], "Max('a') cannot compare {} (dict) with {} (dict)"),
        (Min("a"), [NAIVE, DAY], "Min('a') cannot compare DateTime(2024, 1, 1"),
        (MaxK("a", 2), [1, "b"], "MaxK('a', 2) cannot compare 'b' (str) with 1 (int)"),
        (MinK("a", 1), [1, "b"], "MinK('a', 1) cannot compare 'b' (str) with 1 (int)"),
        (CountDistinct("a"), [[1]],
         "CountDistinct('a') cannot tell [1] (list) from others: it has no hash"),
        (CollectUnique("a"), [{}],
         "CollectUnique('a') cannot tell {} (dict) from others: it has no hash"),
        (TopK("a", 2), [([],)],
         "TopK('a', 2) cannot tell ([],) (tuple) from others: it has no hash"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_aggregated(
    one: Aggregator[Any, Any, Any], values: list[Any], problem: str
) -> None:
    with pytest.raises(RejectedValue) as caught:
        aggregate(one, [{"a": value} for value in values])
    assert str(caught.value).startswith(problem)
    assert caught.value.value == {"a": values[1 if len(values) > 1 else 0]}


def test_types_that_do_not_mix_are_named_at_a_merge() -> None:
    left = Max().add(Max().initialize(), "a")
    right = Max().add(Max().initialize(), 1)
    with pytest.raises(RejectedValue, match=r"Max\(\) cannot compare 1 \(int\) with 'a' \(str\)"):
        Max().merge(left, right)
    dollars = Sum().add(Sum().initialize(), Decimal(1))
    floats = Sum().add(Sum().initialize(), 0.5)
    with pytest.raises(RejectedValue, match=r"cannot add 0\.5 \(float\) to a total of Decimal"):
        Sum().merge(dollars, floats)


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
        (Sum(lambda row: row["b"]), {"a": 1},
         "Sum(<lambda>): reading the value raised KeyError: 'b'"),
        (Count(lambda row: 1 / 0), 1,
         "Count(<lambda>): reading the value raised ZeroDivisionError: division by zero"),
        (Collect("price"), Faulty(),
         "Collect('price'): reading the value raised OSError: no such disk"),
    ],
)  # fmt: skip
def test_an_error_of_a_function_names_the_value(
    one: Aggregator[Any, Any, Any], value: object, problem: str
) -> None:
    with pytest.raises(RejectedValue) as caught:
        aggregate(one, [value])
    assert str(caught.value) == problem
    assert caught.value.value is value
    assert isinstance(caught.value.__cause__, Exception)


def test_a_function_may_reject_a_value_itself() -> None:
    def price(value: object) -> int:
        raise RejectedValue(value, "prices are in dollars")

    with pytest.raises(RejectedValue, match=r"^prices are in dollars$"):
        aggregate(Sum(price), [1])


@pytest.mark.parametrize("one", [Min(), MaxK(k=1), CountDistinct(), TopK(k=1)])
def test_an_error_of_a_values_methods_is_the_cause(one: Aggregator[Any, Any, Any]) -> None:
    with pytest.raises(RejectedValue) as caught:
        aggregate(one, [Faulty(), Faulty()])
    assert isinstance(caught.value.__cause__, OSError)
