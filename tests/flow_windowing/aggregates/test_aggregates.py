"""Results of aggregates: values, missing fields, ties and NaN."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pendulum
import pytest

from flow_windowing import (
    Aggregator,
    Arrival,
    Collect,
    CollectUnique,
    Count,
    CountDistinct,
    Earliest,
    First,
    Last,
    Latest,
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

NAN = math.nan
INF = math.inf


def same(left: object, right: object) -> bool:
    """Equal, of the same type, and NaN where NaN is."""
    return repr(left) == repr(right)


@pytest.mark.parametrize(
    ("aggregator", "values", "result"),
    [
        (Count(), ["a", None, "b"], 3),
        (Count(lambda text: text.strip() or None), ["a", " ", "b"], 2),
        (Sum(), [1, 2, 3], 6),
        (Sum(), [2**70, 1], 2**70 + 1),
        (Sum(), [True, False, True], 2),
        (Sum(), [1, 0.5], 1.5),
        (Sum(), [0.5, 1], 1.5),
        (Sum(), [0.1] * 10, 1.0),
        (Sum(), [1e100, 1.0, -1e100], 1.0),
        (Sum(), [2**60, 0.5, -(2**60)], 0.5),
        (Sum(), [1e308, 1e308, -1e308], 1e308),
        (Sum(), [1e308, 1e308], INF),
        (Sum(), [-1e308, -1e308], -INF),
        (Sum(), [5e-324, 5e-324], 1e-323),
        (Sum(), [INF, 1.0], INF),
        (Sum(), [INF, -INF], NAN),
        (Sum(), [NAN, 1], NAN),
        (Sum(), [Decimal("1.10"), Decimal("2.20")], Decimal("3.30")),
        (Sum(), [Decimal("1e20"), Decimal("1e-20"), -(10**20)], Decimal("1E-20")),
        (Sum(), [3, Decimal("0.5")], Decimal("3.5")),
        (Sum(), [timedelta(hours=1), timedelta(minutes=30)], timedelta(hours=1, minutes=30)),
        (Sum(), [pendulum.duration(hours=1)], timedelta(hours=1)),
        (Sum(), [np.int64(2), np.int64(3)], 5),
        (Sum(), [np.float32(0.5), np.float64(0.25)], 0.75),
        (Mean(), [1, 2], 1.5),
        (Mean(), [1, 2, 2, 1, 2], 1.6),
        (Mean(), [0.1, 0.1, 0.1], 0.1),
        (Mean(), [1e308, 1e308], 1e308),
        (Mean(), [2**60 + 1, 0.0], 2.0**59),
        (Mean(), [10**400, 10**400], INF),
        (Mean(), [Decimal("1.5"), Decimal("2.0")], Decimal("1.75")),
        (Mean(), [Decimal(1), 0, 0], Decimal("0.3333333333333333333333333333")),
        (Mean(), [timedelta(seconds=1), timedelta(seconds=2)], timedelta(seconds=1.5)),
        (StdDev(), [2, 4, 4, 4, 5, 5, 7, 9], math.sqrt(32 / 7)),
        (StdDev(sample=False), [2, 4, 4, 4, 5, 5, 7, 9], 2.0),
        (StdDev(), [1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16], math.sqrt(30)),
        (StdDev(), [Decimal("1.5"), 2, 2.5], 0.5),
        (StdDev(), [1, INF], NAN),
        (StdDev(), [1.7e308, -1.7e308], NAN),
        (StdDev(), [1e308, -1e308, 5], NAN),
        (Min(), [3, 1, 2], 1),
        (Min(), ["b", "a"], "a"),
        (Max(), [1, 3, 2], 3),
        (Max(), [Decimal("1.5"), 1.25, 1], Decimal("1.5")),
        (Max(), [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 3, 2)],
         datetime(2024, 1, 3, tzinfo=UTC)),
        (First(), [5, 6, 7], 5),
        (Last(), [5, 6, 7], 7),
        (Earliest(), [5, 6, 7], 5),
        (Latest(), [5, 6, 7], 7),
        (Collect(), [3, 1, 3], [3, 1, 3]),
        (Collect(), [[1], {}], [[1], {}]),
        (CollectUnique(), [3, 1, 3, 2, 1], [3, 1, 2]),
        (TopK(k=2), list("abcbca" "b"), ["b", "a"]),
        (TopK(k=9), list("abb"), ["b", "a"]),
        (MaxK(k=3), [5, 9, 1, 9, 7], [9, 9, 7]),
        (MaxK(k=9), [5, 9], [9, 5]),
        (MinK(k=3), [5, 9, 1, 9, 1], [1, 1, 5]),
        (MaxKUnique(k=3), [5, 9, 1, 9, 7, 7], [9, 7, 5]),
        (MinKUnique(k=3), [5, 9, 1, 9, 1, 5], [1, 5, 9]),
        (CountDistinct(), ["a", "b", "a"], 2),
        (CountDistinct(), [1, 1.0, True, (1,)], 2),
        (Quantile(q=0), [3, 1, 2], 1.0),
        (Quantile(q=1), [3, 1, 2], 3.0),
        (Quantile(q=0.5), [3, 1, 2], 2.0),
        (Quantile(q=0.5), [1, 2, 3, 4], 2.5),
        (Quantile(q=0.25), [1, 2, 3, 4], 1.75),
        (Quantile(q=0.99), [7], 7.0),
        (Quantile(q=0.5), [INF, INF, -INF, INF], INF),
        (Quantile(q=0.5), [Decimal("1.5"), 2], 1.75),
        (Quantile(q=0), [-0.0, 0.0], 0.0),
        (Quantile(q=0), [0.0, -0.0], 0.0),
    ],
)  # fmt: skip
def test_a_result(aggregator: Aggregator[Any, Any, Any], values: list[Any], result: object) -> None:
    assert same(aggregate(aggregator, values), result)


@pytest.mark.parametrize(
    ("aggregator", "result"),
    [
        (Count(), 0),
        (CountDistinct(), 0),
        (Sum(), 0),
        (Mean(), None),
        (StdDev(), None),
        (StdDev(sample=False), None),
        (Quantile(q=0.5), None),
        (Min(), None),
        (Max(), None),
        (First(), None),
        (Last(), None),
        (Earliest(), None),
        (Latest(), None),
        (Collect(), []),
        (CollectUnique(), []),
        (TopK(k=2), []),
        (MaxK(k=2), []),
        (MinK(k=2), []),
        (MaxKUnique(k=2), []),
        (MinKUnique(k=2), []),
    ],
)
def test_the_result_without_values(aggregator: Aggregator[Any, Any, Any], result: object) -> None:
    assert same(aggregate(aggregator, []), result)
    if aggregator != Count():
        assert same(aggregate(aggregator, [None, None]), result)
    assert same(aggregator.empty_result(), result)


def test_the_deviation_of_one_value_is_defined_for_a_population_only() -> None:
    assert aggregate(StdDev(), [0.1]) is None
    assert aggregate(StdDev(sample=False), [0.1]) == 0.0


def test_decimals_do_not_depend_on_the_decimal_context() -> None:
    with localcontext(prec=3):
        assert same(aggregate(Sum(), [Decimal(10**9), Decimal(1)]), Decimal(10**9 + 1))
        assert same(aggregate(Mean(), [Decimal(10**9), Decimal(2)]), Decimal(5 * 10**8 + 1))


@dataclass(frozen=True)
class Order:
    price: float | None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("price", {"price": 5}),
        ("price", MappingProxyType({"price": 5})),
        ("price", Order(5)),
        ("order.price", {"order": {"price": 5}}),
        ("order.price", {"order": Order(5)}),
        ("order.price", {"order.price": 5}),
        (lambda order: order[1], ("a", 5)),
        (len, "price"),
    ],
)
def test_a_field_is_a_path_or_a_function(field: Any, value: object) -> None:
    assert aggregate(Sum(field), [value]) == 5
    assert aggregate(Collect(field), [value]) == [5]
    assert aggregate(Count(field), [value]) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("price", {}),
        ("price", {"price": None}),
        ("price", Order(None)),
        ("price", None),
        ("cost", Order(5)),
        ("order.price", {"order": None}),
        ("order.price", {"order": 5}),
        (lambda order: None, "a"),
        (None, None),
    ],
)
@pytest.mark.parametrize(
    "of",
    [
        Sum, Mean, StdDev, Min, Max, First, Last, Earliest, Latest, Collect, CollectUnique,
        CountDistinct,
        lambda field: TopK(field, 1),
        lambda field: MaxK(field, 1),
        lambda field: MinKUnique(field, 1),
        lambda field: Quantile(field, 0.5),
    ],
)  # fmt: skip
def test_a_missing_field_is_skipped(of: Any, field: Any, value: object) -> None:
    assert aggregate(of(field), [value]) == aggregate(of(field), [])


def test_a_count_of_a_field_counts_values_with_the_field() -> None:
    values: list[Any] = [{"tip": 0}, {"tip": None}, {}, {"tip": 2}]
    assert aggregate(Count("tip"), values) == 2
    assert aggregate(Count(), values) == 4


#           arrival   timestamp   enters
#   "b"        0         30          2
#   "a"        1         10          0
#   "c"        2         30          3
#   "d"        3         10          1
WAITED = [
    ("a", Arrival(10, 1, 0)),
    ("d", Arrival(10, 3, 1)),
    ("b", Arrival(30, 0, 2)),
    ("c", Arrival(30, 2, 3)),
]


@pytest.mark.parametrize(
    ("aggregator", "figure"),
    [
        (First(), "b"),
        (Last(), "d"),
        (Earliest(), "a"),
        (Latest(), "c"),
        (Collect(), ["a", "d", "b", "c"]),
        (CollectUnique(), ["a", "d", "b", "c"]),
        (TopK(k=4), ["b", "a", "c", "d"]),
    ],
)
@pytest.mark.parametrize("step", [1, -1])
def test_first_and_last_do_not_depend_on_the_order_of_calls(
    aggregator: Aggregator[Any, Any, Any], figure: object, step: int
) -> None:
    state = aggregator.initialize()
    for value, at in WAITED[::step]:
        state = aggregator.add_at(state, value, at)
    assert aggregator.result(state) == figure


def test_times_are_read_as_timestamps_are() -> None:
    times = [datetime(2024, 1, 2, tzinfo=UTC), "2024-01-01T00:00:00Z", 0.5]
    assert aggregate(Earliest(), ["a", "b", "c"], times) == "c"
    assert aggregate(Latest(), ["a", "b", "c"], times) == "a"
    with pytest.raises(ValueError, match="shorter"):
        aggregate(Count(), ["a", "b"], times=[0])


@pytest.mark.parametrize(
    ("aggregator", "figure"),
    [
        (First(), "a"),
        (Last(), "c"),
        (Earliest(), "a"),
        (Latest(), "c"),
        (Collect(), ["a", "b", "c"]),
        (CollectUnique(), ["a", "b", "c"]),
    ],
)
def test_without_arrivals_the_order_of_calls_counts(
    aggregator: Aggregator[Any, Any, Any], figure: object
) -> None:
    state = aggregator.add(aggregator.add(aggregator.initialize(), "a"), "b")
    other = aggregator.add(aggregator.initialize(), "c")
    assert aggregator.result(aggregator.merge(state, other)) == figure


@pytest.mark.parametrize(
    ("aggregator", "figure"),
    [
        (Min(), [1, True]),
        (Max(), [2.0, 2]),
        (CollectUnique(), [[2.0, 1], [2, True]]),
        (TopK(k=2), [[2.0, 1], [2, True]]),
        (MaxK(k=3), [[2.0, 2, 1], [2, 2.0, True]]),
        (MinK(k=3), [[1, True, 2.0], [True, 1, 2]]),
        (MaxKUnique(k=2), [[2.0, 1], [2, True]]),
        (MinKUnique(k=2), [[1, 2.0], [True, 2]]),
    ],
)
def test_the_first_of_equal_values_to_arrive_is_kept(
    aggregator: Aggregator[Any, Any, Any], figure: list[Any]
) -> None:
    assert same(aggregate(aggregator, [2.0, 1, True, 2]), figure[0])
    assert same(aggregate(aggregator, [2, True, 1, 2.0]), figure[1])


@pytest.mark.parametrize(
    ("aggregator", "values", "figure"),
    [
        (Min(), [NAN, 2, INF], 2),
        (Min(), [NAN, NAN], NAN),
        (Max(), [1, NAN, INF], NAN),
        (Max(), [Decimal("NaN"), 5], Decimal("NaN")),
        (MaxK(k=2), [1, NAN, INF, NAN], [NAN, NAN]),
        (MaxKUnique(k=2), [1, NAN, INF, -NAN], [NAN, INF]),
        (MinK(k=2), [NAN, 1, NAN], [1, NAN]),
        (CountDistinct(), [float("nan"), float("nan"), Decimal("nan"), Decimal("snan"), 1], 2),
        (CollectUnique(), [float("nan"), 1, float("nan")], [NAN, 1]),
        (TopK(k=1), [1, float("nan"), 2, float("nan")], [NAN]),
        (Quantile(q=0.5), [NAN, 1, 2], 2.0),
        (Quantile(q=0.75), [NAN, 1], NAN),
        (Mean(), [NAN, 1], NAN),
        (StdDev(), [NAN, 1, 2], NAN),
    ],
)
def test_nan_is_the_greatest_number_and_equals_itself(
    aggregator: Aggregator[Any, Any, Any], values: list[Any], figure: object
) -> None:
    assert same(aggregate(aggregator, values), figure)
    assert same(aggregate(aggregator, values[::-1]), figure)


@pytest.mark.parametrize(
    ("aggregator", "typed"),
    [
        (Count(), "Count()"),
        (Sum("amount"), "Sum('amount')"),
        (Sum(len), "Sum(len)"),
        (MaxK("amount", 3), "MaxK('amount', 3)"),
        (MaxK(k=3), "MaxK(k=3)"),
        (Quantile("latency", q=0.99), "Quantile('latency', 0.99)"),
        (StdDev("latency", sample=False), "StdDev('latency', sample=False)"),
        (StdDev("latency", True), "StdDev('latency')"),
    ],
)
def test_a_repr_is_valid_code(aggregator: Aggregator[Any, Any, Any], typed: str) -> None:
    assert repr(aggregator) == typed
    assert eval(typed) == aggregator


def test_aggregators_compare_by_value() -> None:
    assert Sum("a") == Sum("a") != Sum("b")
    assert Sum("a") != Mean("a")
    assert {MaxK("a", 1), MaxK("a", 1), MaxK("a", 2)} == {MaxK("a", 1), MaxK("a", 2)}


class Span(Aggregator[float, list[float], float]):
    """One's own: the distance between the least and the greatest value."""

    def initialize(self) -> list[float]:
        return []

    def add(self, state: list[float], value: float) -> list[float]:
        state.append(value)
        return [min(state), max(state)]

    def merge(self, state: list[float], other: list[float]) -> list[float]:
        return [min(state + other), max(state + other)]

    def result(self, state: list[float]) -> float:
        return state[1] - state[0]


def test_a_user_written_aggregator_needs_four_methods() -> None:
    span = Span()
    assert aggregate(span, [4, 9, 5]) == 5
    state = span.add_at(span.initialize(), 3, Arrival(0, 0, 0))
    assert span.result(span.merge(state, [5, 6])) == 3


def test_a_user_written_aggregator_may_use_times_of_arrival() -> None:
    class Delay(Sum):
        def add_at(self, state: Any, value: Any, at: Arrival) -> Any:
            return super().add_at(state, at.timestamp_us - value, at)

    assert aggregate(Delay(), [0, 0, 0], times=[1, 2, 3]) == 6_000_000


def test_a_fraction_is_not_rounded() -> None:
    with pytest.raises(ValueError, match=r"cannot add Fraction\(1, 3\)"):
        aggregate(Sum(), [Fraction(1, 3)])
