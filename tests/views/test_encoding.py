"""The JSON of each type of value, and the types that a view refuses."""

from __future__ import annotations

import json
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.views.view_rows import REFUSED, decode, encode
from flow_windowing import WindowMetadata
from tests.support.sampling import sampled

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Total:
    count: int
    at: datetime


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (2**70, "1180591620717411303424"),
        (0.1, "0.1"),
        ("é\0", '"é\\u0000"'),
        (NOON, '"2024-01-01T12:00:00Z"'),
        (NOON.astimezone(timezone(timedelta(hours=2))), '"2024-01-01T14:00:00+02:00"'),
        (pd.Timestamp("2024-01-01", tz="UTC"), '"2024-01-01T00:00:00Z"'),
        (date(2024, 2, 29), '"2024-02-29"'),
        (time(1, 2, 3), '"01:02:03"'),
        (timedelta(milliseconds=1500), "1.5"),
        (Decimal("1.10"), '"1.10"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Colour.RED, '"red"'),
        ((1, [2, (3,)]), "[1,[2,[3]]]"),
        ({3, 1, 2}, "[1,2,3]"),
        (frozenset(("a", 1)), '["a",1]'),
        ({"a": {1: "one", Colour.RED: 2}}, '{"a":{"1":"one","red":2}}'),
        (Total(3, NOON), '{"count":3,"at":"2024-01-01T12:00:00Z"}'),
        (Point(1, 2), '{"x":1,"y":2}'),
        (np.int64(7), "7"),
        (np.float32(0.5), "0.5"),
        (np.array([1, 2]), "[1,2]"),
        (
            WindowMetadata(1, NOON, NOON, frozenset((3, 2))),
            '{"window_id":1,"open_time":"2024-01-01T12:00:00Z",'
            '"close_time":"2024-01-01T12:00:00Z","merged_ids":[2,3]}',
        ),
    ],
)
def test_a_value_has_one_form(value: object, text: str) -> None:
    assert encode(value) == text


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def circle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"x", "bytes b'x' has no form in JSON"),
        (object, "type <class 'object'> has no form in JSON"),
        (1j, "complex 1j has no form"),
        (float("nan"), "nan has no form in JSON: map it to None or to text"),
        ([float("inf")], "inf has no form in JSON"),
        (np.float64("nan"), "has no form in JSON"),
        (Decimal("NaN"), "has no form in JSON"),
        (pd.NaT, "NaT has no form in JSON"),
        (datetime(2024, 1, 1), "has no time zone"),  # noqa: DTZ001
        (np.datetime64("2024-01-01"), "has no time zone or unit"),
        ({(1, 2): 3}, "names must be text or whole numbers"),
        ({True: 3}, "names must be text or whole numbers"),
        ({1: "a", "1": "b"}, "are not distinct as text"),
        ("\ud800", "surrogates not allowed"),
        (nested(100_000), "recursion"),
        (circle(), "recursion"),
    ],
)
def test_a_value_without_a_form_is_refused(value: object, problem: str) -> None:
    with pytest.raises(REFUSED, match=problem):
        encode(value)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # No lone surrogates, which UTF-8 cannot encode.
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@sampled(100, by_default=40)
@given(JSON)
def test_json_comes_back_unchanged(value: Any) -> None:
    assert decode(encode(value)) == value
    assert json.loads(encode(value)) == value
