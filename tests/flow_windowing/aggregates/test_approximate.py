"""Approximate aggregates: their bounds of error, and results that depend on values alone."""

from __future__ import annotations

import copy
import math
import pickle
import random
import sys
from collections import Counter
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.errors import EnvironmentProblem, FlowBuildError
from flow.operators import RejectedValue
from flow_windowing import (
    Aggregator,
    ApproxCountDistinct,
    ApproxQuantile,
    ApproxTopK,
    Arrival,
    aggregate,
)
from flow_windowing.aggregates.distinct_sketch import canonical_text
from flow_windowing.aggregates.value_order import key_of
from tests.support.sampling import sampled


def state_of(one: Aggregator[Any, Any, Any], values: list[Any], cuts: int = 0) -> Any:
    """Return the state of values, which is written and read again so many times on the way."""
    state = one.initialize()
    every = len(values) // (cuts + 1) + 1
    for number, value in enumerate(values):
        state = one.add_at(state, value, Arrival(number, number, number))
        if number % every == every - 1:
            state = pickle.loads(pickle.dumps(copy.copy(state)))
    return state


# --- ApproxCountDistinct ------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 3, 4096])
def test_the_number_of_different_values_is_exact_up_to_the_size_of_the_sketch(count: int) -> None:
    assert aggregate(ApproxCountDistinct(), [f"user-{n}" for n in range(count)] * 2) == count


@pytest.mark.parametrize("precision", [8, 12])
def test_the_error_of_the_number_of_different_values_is_within_its_bound(precision: int) -> None:
    error = 1 / math.sqrt(2**precision - 1)
    errors = []
    for seed in range(20):
        values = [f"{seed} {n}" for n in range(20_000)]
        found = aggregate(ApproxCountDistinct(precision=precision), values)
        errors.append(abs(found - len(values)) / len(values))
    assert max(errors) < 4 * error
    assert math.sqrt(sum(one * one for one in errors) / len(errors)) < 1.5 * error
    assert max(errors) > 0


@sampled(100, by_default=12)
@given(
    st.integers(0, 400),
    st.randoms(use_true_random=False),
    st.lists(st.integers(0, 3), min_size=1, max_size=4),
)
def test_a_sketch_depends_on_the_set_of_values_alone(
    count: int, order: random.Random, cuts: list[int]
) -> None:
    one = ApproxCountDistinct(precision=6)
    values = list(range(count))
    content = state_of(one, values).content()
    shuffled = values + values[: count // 2]
    order.shuffle(shuffled)
    parts = [shuffled[start :: len(cuts)] for start in range(len(cuts))]
    merged = one.initialize()
    for part, cut in zip(parts, cuts, strict=True):
        state = state_of(one, part, cut)
        merged = one.merge(merged, state) if order.random() < 0.5 else one.merge(state, merged)
    assert merged.content() == content


def test_a_sketch_written_by_this_version_is_read_for_ever() -> None:
    one = ApproxCountDistinct(precision=5)
    content = state_of(one, list("abc")).content()
    assert content.hex() == CONTENT_OF_ABC
    assert len(state_of(one, list(range(10_000))).content()) == 8 * 32 + 24


CONTENT_OF_ABC = "02030300001acc930300000000000000268974e690374526e20868d33d455b3579329f794e14da6d"


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    "same",
    [
        [1, 1.0, True, Decimal("1.0"), Fraction(1), np.int64(1), np.float32(1)],
        [0, 0.0, -0.0, False],
        [0.5, Decimal("0.50"), Fraction(1, 2), np.float64(0.5)],
        [math.nan, float("nan"), Decimal("nan")],
        [math.inf, Decimal("inf")],
        ["red", Colour.RED],
        ["1"],
        ["ä", "ä"],
        ["\ud800"],
        [b"1"],
        [b"red"],
        [2**70],
        [None],
        [(1, "a"), (1.0, "a")],
        [("1", "a")],
        [("1a",)],
        [(1, ("a",))],
        [()],
        [
            datetime(2024, 1, 1, 12, tzinfo=UTC),
            datetime(2024, 1, 1, 13, tzinfo=timezone(timedelta(hours=1))),
        ],
        [datetime(2024, 1, 1, 12)],  # noqa: DTZ001
        [date(2024, 1, 1)],
        [timedelta(seconds=1), timedelta(milliseconds=1000)],
        [UUID(int=1)],
    ],
)
def test_equal_values_have_one_text(same: list[Any]) -> None:
    texts = {canonical_text(one) for one in same}
    assert len(texts) == 1
    TEXTS.setdefault(texts.pop(), repr(same))
    assert len(set(TEXTS.values())) == len(TEXTS)


TEXTS: dict[str, str] = {}
FEW = st.sampled_from([0, -0.0, 1, 1.0, True, 2.5, math.nan, math.inf, Decimal("2.5"), "1", b"1"])
THINGS = FEW | st.text(max_size=2) | st.tuples(FEW, st.text(max_size=1)) | st.integers()


@given(THINGS, THINGS)
def test_two_values_have_one_text_if_they_are_the_same(left: Any, right: Any) -> None:
    is_same = key_of(left) == key_of(right)
    if isinstance(left, tuple) and isinstance(right, tuple):
        is_same = tuple(map(key_of, left)) == tuple(map(key_of, right))
    assert (canonical_text(left) == canonical_text(right)) == is_same


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(
        RejectedValue, match=r"ApproxCountDistinct\(\) cannot tell \['a'\] \(list\)"
    ):
        aggregate(ApproxCountDistinct(), [["a"]])


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(EnvironmentProblem) as caught:
        ApproxCountDistinct("user")
    assert "pip install 'flow-windows[sketches]'" in str(caught.value)
    assert aggregate(ApproxQuantile(q=0.5), [4]) == pytest.approx(4, rel=0.01)
    assert aggregate(ApproxTopK(k=1), [4]) == [4]


# --- ApproxQuantile -----------------------------------------------------------------------------


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1),
    st.floats(0, 1),
    st.sampled_from([0.0001, 0.01, 0.3, 0.5]),
)
def test_the_relative_error_of_a_quantile_is_within_the_accuracy(
    values: list[float], q: float, accuracy: float
) -> None:
    found = aggregate(ApproxQuantile(q=q, accuracy=accuracy), values)
    exact = sorted(values)[math.floor(q * (len(values) - 1))]
    assert found is not None
    assert math.isfinite(found)
    # Numbers below the least normal float have fewer digits than the accuracy.
    assert abs(found - exact) <= accuracy * abs(exact) * (1 + 1e-9) + sys.float_info.min


def test_quantiles_of_numbers_without_a_logarithm() -> None:
    values = [math.nan, math.inf, 0, -math.inf, -0.0]
    found = [aggregate(ApproxQuantile(q=q), values) for q in (0, 0.25, 0.5, 0.75, 1)]
    assert found[:4] == [-math.inf, 0, 0, math.inf]
    assert math.isnan(found[4] or 0)
    assert aggregate(ApproxQuantile(q=0.5), []) is None


def test_the_number_of_bins_follows_the_range_of_values() -> None:
    one = ApproxQuantile(q=0.5)
    state = state_of(one, [0.001 * 1.0001**n for n in range(137_000)])
    assert len(state) <= math.log(900_000) / 0.02 + 1


# --- ApproxTopK ---------------------------------------------------------------------------------


@sampled(200, by_default=60)
@given(
    st.lists(st.lists(st.integers(0, 12).map(lambda n: n * n // 9), max_size=60), max_size=4),
    st.integers(1, 6),
)
def test_a_count_is_never_too_great_nor_too_small_by_more_than_the_bound(
    parts: list[list[int]], counters: int
) -> None:
    one = ApproxTopK(k=1, counters=counters)
    merged = one.initialize()
    for part in parts:
        merged = one.merge(merged, state_of(one, part))
    exact = Counter(value for part in parts for value in part)
    bound = exact.total() / (counters + 1)
    for value, count in exact.items():
        counted = merged.get(value, (0,))[0]
        assert count - bound <= counted <= count
    assert len(merged) <= 2 * counters


@given(st.lists(st.integers(0, 30), max_size=120), st.integers(0, 9))
def test_counts_are_the_same_after_a_state_was_written(values: list[int], cuts: int) -> None:
    one = ApproxTopK(k=3, counters=4)
    assert state_of(one, values, cuts) == state_of(one, values)


def test_frequent_values_are_found_among_many() -> None:
    values = [n for n in range(50_000) for _ in range(1 + 200 * (n % 10_000 == 0))]
    random.Random(1).shuffle(values)
    assert sorted(aggregate(ApproxTopK(k=5, counters=500), values)) == [
        0,
        10_000,
        20_000,
        30_000,
        40_000,
    ]


# --- arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda: ApproxCountDistinct(precision=4),
            "ApproxCountDistinct: precision must be a whole number of at least 5, got 4",
        ),
        (
            lambda: ApproxCountDistinct(precision=21),
            "ApproxCountDistinct: precision must be at most 20, got 21",
        ),
        (lambda: ApproxQuantile("a"), "ApproxQuantile: q must be a number from 0 to 1, got None"),
        (
            lambda: ApproxQuantile("a", 0.5, 0),
            "ApproxQuantile: accuracy must be a number from 0.0001 to 0.5, got 0",
        ),
        (lambda: ApproxTopK("a"), "ApproxTopK: k must be a whole number of at least 1, got None"),
        (
            lambda: ApproxTopK("a", 10, 9),
            "ApproxTopK: counters must be at least k=10, got 9",
        ),
    ],
)
def test_an_invalid_argument_is_refused(make: Any, problem: str) -> None:
    with pytest.raises(FlowBuildError) as caught:
        make()
    assert str(caught.value) == problem


def test_arguments_are_shown_as_they_are_written() -> None:
    assert repr(ApproxCountDistinct("user", 14)) == "ApproxCountDistinct('user', 14)"
    assert repr(ApproxQuantile("ms", 0.5, 0.02)) == "ApproxQuantile('ms', 0.5, accuracy=0.02)"
    assert repr(ApproxTopK("url", 3)) == "ApproxTopK('url', 3)"
