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

import flow_windowing as win

NAN = math.nan
INF = math.inf


def same(left: object, right: object) -> bool:
    """Equal, of the same type, and NaN where NaN is."""
    return repr(left) == repr(right)


@pytest.mark.parametrize(
    ("aggregator", "values", "result"),
    [
        (win.Count(), ["a", None, "b"], 3),
        (win.Count(lambda text: text.strip() or None), ["a", " ", "b"], 2),
        (win.Sum(), [1, 2, 3], 6),
        (win.Sum(), [2**70, 1], 2**70 + 1),
        (win.Sum(), [True, False, True], 2),
        (win.Sum(), [1, 0.5], 1.5),
        (win.Sum(), [0.5, 1], 1.5),
        (win.Sum(), [0.1] * 10, 1.0),
        (win.Sum(), [1e100, 1.0, -1e100], 1.0),
        (win.Sum(), [2**60, 0.5, -(2**60)], 0.5),
        (win.Sum(), [1e308, 1e308, -1e308], 1e308),
        (win.Sum(), [1e308, 1e308], INF),
        (win.Sum(), [-1e308, -1e308], -INF),
        (win.Sum(), [5e-324, 5e-324], 1e-323),
        (win.Sum(), [INF, 1.0], INF),
        (win.Sum(), [INF, -INF], NAN),
        (win.Sum(), [NAN, 1], NAN),
        (win.Sum(), [Decimal("1.10"), Decimal("2.20")], Decimal("3.30")),
        (win.Sum(), [Decimal("1e20"), Decimal("1e-20"), -(10**20)], Decimal("1E-20")),
        (win.Sum(), [3, Decimal("0.5")], Decimal("3.5")),
        (win.Sum(), [timedelta(hours=1), timedelta(minutes=30)], timedelta(hours=1, minutes=30)),
        (win.Sum(), [pendulum.duration(hours=1)], timedelta(hours=1)),
        (win.Sum(), [np.int64(2), np.int64(3)], 5),
        (win.Sum(), [np.float32(0.5), np.float64(0.25)], 0.75),
        (win.Mean(), [1, 2], 1.5),
        (win.Mean(), [1, 2, 2, 1, 2], 1.6),
        (win.Mean(), [0.1, 0.1, 0.1], 0.1),
        (win.Mean(), [1e308, 1e308], 1e308),
        (win.Mean(), [2**60 + 1, 0.0], 2.0**59),
        (win.Mean(), [10**400, 10**400], INF),
        (win.Mean(), [Decimal("1.5"), Decimal("2.0")], Decimal("1.75")),
        (win.Mean(), [Decimal(1), 0, 0], Decimal("0.3333333333333333333333333333")),
        (win.Mean(), [timedelta(seconds=1), timedelta(seconds=2)], timedelta(seconds=1.5)),
        (win.StdDev(), [2, 4, 4, 4, 5, 5, 7, 9], math.sqrt(32 / 7)),
        (win.StdDev(sample=False), [2, 4, 4, 4, 5, 5, 7, 9], 2.0),
        (win.StdDev(), [1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16], math.sqrt(30)),
        (win.StdDev(), [Decimal("1.5"), 2, 2.5], 0.5),
        (win.StdDev(), [1, INF], NAN),
        (win.StdDev(), [1.7e308, -1.7e308], NAN),
        (win.StdDev(), [1e308, -1e308, 5], NAN),
        (win.Min(), [3, 1, 2], 1),
        (win.Min(), ["b", "a"], "a"),
        (win.Max(), [1, 3, 2], 3),
        (win.Max(), [Decimal("1.5"), 1.25, 1], Decimal("1.5")),
        (win.Max(), [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 3, 2)],
         datetime(2024, 1, 3, tzinfo=UTC)),
        (win.First(), [5, 6, 7], 5),
        (win.Last(), [5, 6, 7], 7),
        (win.Earliest(), [5, 6, 7], 5),
        (win.Latest(), [5, 6, 7], 7),
        (win.Collect(), [3, 1, 3], [3, 1, 3]),
        (win.Collect(), [[1], {}], [[1], {}]),
        (win.CollectUnique(), [3, 1, 3, 2, 1], [3, 1, 2]),
        (win.TopK(k=2), list("abcbca" "b"), ["b", "a"]),
        (win.TopK(k=9), list("abb"), ["b", "a"]),
        (win.MaxK(k=3), [5, 9, 1, 9, 7], [9, 9, 7]),
        (win.MaxK(k=9), [5, 9], [9, 5]),
        (win.MinK(k=3), [5, 9, 1, 9, 1], [1, 1, 5]),
        (win.MaxKUnique(k=3), [5, 9, 1, 9, 7, 7], [9, 7, 5]),
        (win.MinKUnique(k=3), [5, 9, 1, 9, 1, 5], [1, 5, 9]),
        (win.CountDistinct(), ["a", "b", "a"], 2),
        (win.CountDistinct(), [1, 1.0, True, (1,)], 2),
        (win.Quantile(q=0), [3, 1, 2], 1.0),
        (win.Quantile(q=1), [3, 1, 2], 3.0),
        (win.Quantile(q=0.5), [3, 1, 2], 2.0),
        (win.Quantile(q=0.5), [1, 2, 3, 4], 2.5),
        (win.Quantile(q=0.25), [1, 2, 3, 4], 1.75),
        (win.Quantile(q=0.99), [7], 7.0),
        (win.Quantile(q=0.5), [INF, INF, -INF, INF], INF),
        (win.Quantile(q=0.5), [Decimal("1.5"), 2], 1.75),
        (win.Quantile(q=0), [-0.0, 0.0], 0.0),
        (win.Quantile(q=0), [0.0, -0.0], 0.0),
    ],
)  # fmt: skip
def test_a_result(
    aggregator: win.Aggregator[Any, Any, Any], values: list[Any], result: object
) -> None:
    assert same(win.aggregate(aggregator, values), result)


@pytest.mark.parametrize(
    ("aggregator", "result"),
    [
        (win.Count(), 0),
        (win.CountDistinct(), 0),
        (win.Sum(), 0),
        (win.Mean(), None),
        (win.StdDev(), None),
        (win.StdDev(sample=False), None),
        (win.Quantile(q=0.5), None),
        (win.Min(), None),
        (win.Max(), None),
        (win.First(), None),
        (win.Last(), None),
        (win.Earliest(), None),
        (win.Latest(), None),
        (win.Collect(), []),
        (win.CollectUnique(), []),
        (win.TopK(k=2), []),
        (win.MaxK(k=2), []),
        (win.MinK(k=2), []),
        (win.MaxKUnique(k=2), []),
        (win.MinKUnique(k=2), []),
    ],
)
def test_the_result_without_values(
    aggregator: win.Aggregator[Any, Any, Any], result: object
) -> None:
    assert same(win.aggregate(aggregator, []), result)
    if aggregator != win.Count():
        assert same(win.aggregate(aggregator, [None, None]), result)
    assert same(aggregator.empty_result(), result)


def test_the_deviation_of_one_value_is_defined_for_a_population_only() -> None:
    assert win.aggregate(win.StdDev(), [0.1]) is None
    assert win.aggregate(win.StdDev(sample=False), [0.1]) == 0.0


def test_decimals_do_not_depend_on_the_decimal_context() -> None:
    with localcontext(prec=3):
        assert same(win.aggregate(win.Sum(), [Decimal(10**9), Decimal(1)]), Decimal(10**9 + 1))
        assert same(win.aggregate(win.Mean(), [Decimal(10**9), Decimal(2)]), Decimal(5 * 10**8 + 1))


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
    assert win.aggregate(win.Sum(field), [value]) == 5
    assert win.aggregate(win.Collect(field), [value]) == [5]
    assert win.aggregate(win.Count(field), [value]) == 1


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
        win.Sum, win.Mean, win.StdDev, win.Min, win.Max, win.First, win.Last, win.Earliest,
        win.Latest, win.Collect, win.CollectUnique, win.CountDistinct,
        lambda field: win.TopK(field, 1),
        lambda field: win.MaxK(field, 1),
        lambda field: win.MinKUnique(field, 1),
        lambda field: win.Quantile(field, 0.5),
    ],
)  # fmt: skip
def test_a_missing_field_is_skipped(of: Any, field: Any, value: object) -> None:
    assert win.aggregate(of(field), [value]) == win.aggregate(of(field), [])


def test_a_count_of_a_field_counts_values_with_the_field() -> None:
    values: list[Any] = [{"tip": 0}, {"tip": None}, {}, {"tip": 2}]
    assert win.aggregate(win.Count("tip"), values) == 2
    assert win.aggregate(win.Count(), values) == 4


#           arrival   timestamp   enters
#   "b"        0         30          2
#   "a"        1         10          0
#   "c"        2         30          3
#   "d"        3         10          1
WAITED = [
    ("a", win.Arrival(10, 1, 0)),
    ("d", win.Arrival(10, 3, 1)),
    ("b", win.Arrival(30, 0, 2)),
    ("c", win.Arrival(30, 2, 3)),
]


@pytest.mark.parametrize(
    ("aggregator", "figure"),
    [
        (win.First(), "b"),
        (win.Last(), "d"),
        (win.Earliest(), "a"),
        (win.Latest(), "c"),
        (win.Collect(), ["a", "d", "b", "c"]),
        (win.CollectUnique(), ["a", "d", "b", "c"]),
        (win.TopK(k=4), ["b", "a", "c", "d"]),
    ],
)
@pytest.mark.parametrize("step", [1, -1])
def test_first_and_last_do_not_depend_on_the_order_of_calls(
    aggregator: win.Aggregator[Any, Any, Any], figure: object, step: int
) -> None:
    state = aggregator.initialize()
    for value, at in WAITED[::step]:
        state = aggregator.add_at(state, value, at)
    assert aggregator.result(state) == figure


def test_times_are_read_as_timestamps_are() -> None:
    times = [datetime(2024, 1, 2, tzinfo=UTC), "2024-01-01T00:00:00Z", 0.5]
    assert win.aggregate(win.Earliest(), ["a", "b", "c"], times) == "c"
    assert win.aggregate(win.Latest(), ["a", "b", "c"], times) == "a"
    with pytest.raises(ValueError, match="shorter"):
        win.aggregate(win.Count(), ["a", "b"], times=[0])


@pytest.mark.parametrize(
    ("aggregator", "figure"),
    [
        (win.First(), "a"),
        (win.Last(), "c"),
        (win.Earliest(), "a"),
        (win.Latest(), "c"),
        (win.Collect(), ["a", "b", "c"]),
        (win.CollectUnique(), ["a", "b", "c"]),
    ],
)
def test_without_arrivals_the_order_of_calls_counts(
    aggregator: win.Aggregator[Any, Any, Any], figure: object
) -> None:
    state = aggregator.add(aggregator.add(aggregator.initialize(), "a"), "b")
    other = aggregator.add(aggregator.initialize(), "c")
    assert aggregator.result(aggregator.merge(state, other)) == figure


@pytest.mark.parametrize(
    ("aggregator", "figure"),
    [
        (win.Min(), [1, True]),
        (win.Max(), [2.0, 2]),
        (win.CollectUnique(), [[2.0, 1], [2, True]]),
        (win.TopK(k=2), [[2.0, 1], [2, True]]),
        (win.MaxK(k=3), [[2.0, 2, 1], [2, 2.0, True]]),
        (win.MinK(k=3), [[1, True, 2.0], [True, 1, 2]]),
        (win.MaxKUnique(k=2), [[2.0, 1], [2, True]]),
        (win.MinKUnique(k=2), [[1, 2.0], [True, 2]]),
    ],
)
def test_the_first_of_equal_values_to_arrive_is_kept(
    aggregator: win.Aggregator[Any, Any, Any], figure: list[Any]
) -> None:
    assert same(win.aggregate(aggregator, [2.0, 1, True, 2]), figure[0])
    assert same(win.aggregate(aggregator, [2, True, 1, 2.0]), figure[1])


@pytest.mark.parametrize(
    ("aggregator", "values", "figure"),
    [
        (win.Min(), [NAN, 2, INF], 2),
        (win.Min(), [NAN, NAN], NAN),
        (win.Max(), [1, NAN, INF], NAN),
        (win.Max(), [Decimal("NaN"), 5], Decimal("NaN")),
        (win.MaxK(k=2), [1, NAN, INF, NAN], [NAN, NAN]),
        (win.MaxKUnique(k=2), [1, NAN, INF, -NAN], [NAN, INF]),
        (win.MinK(k=2), [NAN, 1, NAN], [1, NAN]),
        (win.CountDistinct(), [float("nan"), float("nan"), Decimal("nan"), Decimal("snan"), 1], 2),
        (win.CollectUnique(), [float("nan"), 1, float("nan")], [NAN, 1]),
        (win.TopK(k=1), [1, float("nan"), 2, float("nan")], [NAN]),
        (win.Quantile(q=0.5), [NAN, 1, 2], 2.0),
        (win.Quantile(q=0.75), [NAN, 1], NAN),
        (win.Mean(), [NAN, 1], NAN),
        (win.StdDev(), [NAN, 1, 2], NAN),
    ],
)
def test_nan_is_the_greatest_number_and_equals_itself(
    aggregator: win.Aggregator[Any, Any, Any], values: list[Any], figure: object
) -> None:
    assert same(win.aggregate(aggregator, values), figure)
    assert same(win.aggregate(aggregator, values[::-1]), figure)


@pytest.mark.parametrize(
    ("aggregator", "typed"),
    [
        (win.Count(), "Count()"),
        (win.Sum("amount"), "Sum('amount')"),
        (win.Sum(len), "Sum(len)"),
        (win.MaxK("amount", 3), "MaxK('amount', 3)"),
        (win.MaxK(k=3), "MaxK(k=3)"),
        (win.Quantile("latency", q=0.99), "Quantile('latency', 0.99)"),
        (win.StdDev("latency", sample=False), "StdDev('latency', sample=False)"),
        (win.StdDev("latency", True), "StdDev('latency')"),
    ],
)
def test_a_repr_is_valid_code(aggregator: win.Aggregator[Any, Any, Any], typed: str) -> None:
    assert repr(aggregator) == typed
    assert eval(typed, dict(vars(win))) == aggregator


def test_aggregators_compare_by_value() -> None:
    assert win.Sum("a") == win.Sum("a") != win.Sum("b")
    assert win.Sum("a") != win.Mean("a")
    assert {win.MaxK("a", 1), win.MaxK("a", 1), win.MaxK("a", 2)} == {
        win.MaxK("a", 1),
        win.MaxK("a", 2),
    }


class Span(win.Aggregator[float, list[float], float]):
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
    assert win.aggregate(span, [4, 9, 5]) == 5
    state = span.add_at(span.initialize(), 3, win.Arrival(0, 0, 0))
    assert span.result(span.merge(state, [5, 6])) == 3


def test_a_user_written_aggregator_may_use_times_of_arrival() -> None:
    class Delay(win.Sum):
        def add_at(self, state: Any, value: Any, at: win.Arrival) -> Any:
            return super().add_at(state, at.timestamp_us - value, at)

    assert win.aggregate(Delay(), [0, 0, 0], times=[1, 2, 3]) == 6_000_000


def test_a_fraction_is_not_rounded() -> None:
    with pytest.raises(ValueError, match=r"cannot add Fraction\(1, 3\)"):
        win.aggregate(win.Sum(), [Fraction(1, 3)])
