"""Laws of aggregates, for random values."""

from __future__ import annotations

import collections
import copy
import math
import pickle
import statistics
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow_windowing as win
from tests.support.sampling import sampled

Added = list[tuple[Any, win.Arrival]]
AnyAggregator = win.Aggregator[Any, Any, Any]

# A few values that meet again and again, so that ties and equals of several types are common.
FEW = st.sampled_from([0, -0.0, 1, 1.0, True, 2, 2.5, math.nan, math.inf, -math.inf, None])
NUMBERS = FEW | st.integers() | st.floats()
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False) | st.integers()
LENGTHS = st.timedeltas(min_value=timedelta(days=-1000), max_value=timedelta(days=1000))
ORDERED = FEW | st.floats() | st.decimals(allow_nan=False)
THINGS = FEW | st.text(max_size=2) | st.tuples(st.integers(0, 2), st.text(max_size=1))
# Squares of what is far apart overflow, and a spread of rounding errors is nothing to compare.
SPREAD = st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6).map(lambda number: round(number, 3))

OF_WHAT: list[tuple[AnyAggregator, st.SearchStrategy[Any]]] = [
    (win.Count(), THINGS),
    (win.Sum(), NUMBERS),
    (win.Sum(), DECIMALS),
    (win.Sum(), LENGTHS),
    (win.Mean(), NUMBERS),
    (win.Mean(), DECIMALS),
    (win.Mean(), LENGTHS),
    (win.StdDev(), SPREAD),
    (win.StdDev(sample=False), SPREAD),
    (win.Min(), ORDERED),
    (win.Max(), ORDERED),
    (win.First(), THINGS),
    (win.Last(), THINGS),
    (win.Earliest(), THINGS),
    (win.Latest(), THINGS),
    (win.Collect(), THINGS),
    (win.CollectUnique(), THINGS),
    (win.CountDistinct(), THINGS),
    (win.TopK(k=2), THINGS),
    (win.ApproxCountDistinct(precision=5), THINGS),
    (win.ApproxTopK(k=2), THINGS),
    (win.ApproxQuantile(q=0.3), NUMBERS),
    (win.MaxK(k=3), ORDERED),
    (win.MinK(k=3), ORDERED),
    (win.MaxKUnique(k=3), ORDERED),
    (win.MinKUnique(k=3), ORDERED),
    (win.Quantile(q=0.3), NUMBERS),
]
EVERY = [one for one, _ in OF_WHAT]


def state_of(one: AnyAggregator, added: Added) -> Any:
    state = one.initialize()
    for value, at in added:
        state = one.add_at(state, value, at)
    return state


def assert_same(one: AnyAggregator, state: Any, other: Any) -> None:
    """By what is shown, so that 1, 1.0 and True are told apart, and NaN is NaN."""
    left, right = one.result(state), one.result(other)
    if isinstance(one, win.StdDev) and left is not None:
        assert left == pytest.approx(right, rel=1e-9, abs=1e-6)
    else:
        assert repr(left) == repr(right)


@st.composite
def arrivals(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> Added:
    """Values in the order in which they enter, which need not be that in which they came."""
    drawn = draw(st.lists(values, max_size=12))
    numbers = draw(st.permutations(range(len(drawn))))
    times = [draw(st.integers(0, 3)) for _ in drawn]
    return [
        (value, win.Arrival(time, number, entered))
        for entered, (value, time, number) in enumerate(zip(drawn, times, numbers, strict=True))
    ]


@pytest.mark.parametrize(("one", "values"), OF_WHAT)
@sampled(100, by_default=10)
@given(data=st.data())
def test_merged_parts_give_the_result_of_all_values(
    one: AnyAggregator, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    added = data.draw(arrivals(values))
    parts: list[Added] = [[], [], []]
    for entry in data.draw(st.permutations(added)):
        parts[data.draw(st.integers(0, 2))].append(entry)
    first, second, third = (state_of(one, part) for part in parts)
    if data.draw(st.booleans()):
        merged = one.merge(one.merge(first, second), third)
    else:
        merged = one.merge(first, one.merge(second, third))
    assert_same(one, merged, state_of(one, added))


@sampled(100, by_default=12)
@given(arrivals(NUMBERS), st.integers(0, 12))
def test_a_result_is_independent_of_its_state(added: Added, cut: int) -> None:
    for one in EVERY:
        state = state_of(one, added[:cut])
        early = one.result(state)
        shown = repr(early)
        for value, at in added[cut:]:
            state = one.add_at(state, value, at)
        assert repr(one.result(state)) == repr(one.result(state_of(one, added)))
        one.merge(state, state_of(one, added))
        assert repr(early) == shown


@sampled(100, by_default=12)
@given(arrivals(NUMBERS))
def test_a_state_may_be_pickled_at_any_time(added: Added) -> None:
    for one in EVERY:
        state = one.initialize()
        for value, at in added:
            state = one.add_at(pickle.loads(pickle.dumps(state)), value, at)
        assert repr(one.result(state)) == repr(one.result(state_of(one, added)))


@sampled(100, by_default=12)
@given(arrivals(NUMBERS), arrivals(NUMBERS))
def test_a_shallow_copy_of_a_state_is_independent(added: Added, more: Added) -> None:
    for one in EVERY:
        state = state_of(one, added)
        kept, shown = copy.copy(state), repr(one.result(state))
        for value, at in more:
            state = one.add_at(state, value, at)
        one.merge(state, state_of(one, more))
        assert repr(one.result(kept)) == shown


@pytest.mark.parametrize("one", EVERY)
def test_windows_do_not_share_an_initial_state(one: AnyAggregator) -> None:
    one.add_at(one.initialize(), 1, win.Arrival(0, 0, 0))
    assert repr(one.result(one.initialize())) == repr(win.aggregate(one, []))


@pytest.mark.parametrize(
    ("one", "limit"),
    [
        (win.Count(), 20),
        (win.Sum(), 110),
        (win.Mean(), 120),
        (win.StdDev(), 50),
        (win.Min(), 40),
        (win.First(), 40),
        (win.Latest(), 50),
        (win.MaxK(k=3), 80),
        (win.MinKUnique(k=3), 80),
        (win.Quantile(q=0.5), 8 * 10_000 + 100),
    ],
)
def test_a_state_is_small(one: AnyAggregator, limit: int) -> None:
    state = state_of(one, [(n / 7, win.Arrival(n, n, n)) for n in range(10_000)])
    assert len(pickle.dumps(state, protocol=5)) <= limit


@pytest.mark.parametrize(
    "one", [win.Sum("a"), win.MaxK("a", 3), win.Quantile(q=0.5), win.StdDev(len)]
)
def test_an_aggregator_can_be_pickled(one: AnyAggregator) -> None:
    assert pickle.loads(pickle.dumps(one)) == one


@given(st.lists(st.floats(-1e300, 1e300), max_size=50))
def test_a_sum_of_floats_equals_fsum(numbers: list[float]) -> None:
    assert win.aggregate(win.Sum(), numbers) == math.fsum(numbers)


@given(st.lists(st.integers() | st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_a_mean_is_rounded_once(numbers: list[float]) -> None:
    exact = sum(map(Fraction, numbers)) / len(numbers)
    assert win.aggregate(win.Mean(), numbers) == float(exact)


@given(st.lists(SPREAD, min_size=2))
def test_a_standard_deviation_is_close_to_the_exact_one(numbers: list[float]) -> None:
    exact = [Fraction(number) for number in numbers]
    assert win.aggregate(win.StdDev(), numbers) == pytest.approx(statistics.stdev(exact), abs=1e-6)
    spread = win.aggregate(win.StdDev(sample=False), numbers)
    assert spread == pytest.approx(statistics.pstdev(exact), abs=1e-6)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1), st.floats(0, 1))
def test_a_quantile_equals_numpys(numbers: list[float], q: float) -> None:
    assert win.aggregate(win.Quantile(q=q), numbers) == float(np.quantile(numbers, q))


@given(st.lists(st.integers(0, 9)), st.integers(1, 5))
def test_the_best_k_are_the_ends_of_the_sorted_values(numbers: list[int], k: int) -> None:
    assert win.aggregate(win.MinK(k=k), numbers) == sorted(numbers)[:k]
    assert win.aggregate(win.MaxK(k=k), numbers) == sorted(numbers, reverse=True)[:k]
    assert win.aggregate(win.MinKUnique(k=k), numbers) == sorted(set(numbers))[:k]
    assert win.aggregate(win.MaxKUnique(k=k), numbers) == sorted(set(numbers), reverse=True)[:k]


@given(st.lists(st.integers(0, 9)), st.integers(1, 5))
def test_the_most_frequent_values_equal_those_of_a_counter(numbers: list[int], k: int) -> None:
    expected = [number for number, _ in collections.Counter(numbers).most_common(k)]
    assert win.aggregate(win.TopK(k=k), numbers) == expected
