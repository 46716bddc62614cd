"""Paths of fields into mappings and objects."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest

from flow.fields import get_path


@dataclass(frozen=True)
class Flight:
    origin: str
    times: dict[str, int]


@pytest.mark.parametrize(
    ("item", "path", "value"),
    [
        ({"id": 5}, "id", 5),
        ({"details": {"started_at": 5}}, "details.started_at", 5),
        (Flight("JFK", {"left": 7}), "origin", "JFK"),
        (Flight("JFK", {"left": 7}), "times.left", 7),
        ({"flight": Flight("JFK", {})}, "flight.origin", "JFK"),
        (MappingProxyType({"a": {"b": 1}}), "a.b", 1),
        ({"id": None}, "id", None),
    ],
)
def test_a_path_goes_through_mappings_and_attributes(item: Any, path: str, value: object) -> None:
    assert get_path(item, path) == value


def test_a_key_that_holds_dots_comes_before_the_way_through_them() -> None:
    assert get_path({"user.id": 1, "user": {"id": 2}}, "user.id") == 1


def test_a_mapping_s_methods_are_not_its_fields() -> None:
    with pytest.raises(KeyError, match="there is no field 'keys'"):
        get_path({"a": 1}, "keys")


@pytest.mark.parametrize(
    ("item", "path", "missing"),
    [
        ({"a": 1}, "b", "b"),
        ({"a": {"b": 1}}, "a.c", "c"),
        ({"a": None}, "a.b", "b"),
        (Flight("JFK", {}), "dest", "dest"),
        (5, "a", "a"),
    ],
)
def test_a_path_that_leads_nowhere_names_the_part_that_is_missing(
    item: Any, path: str, missing: str
) -> None:
    with pytest.raises(KeyError) as caught:
        get_path(item, path)
    assert caught.value.args == (f"there is no field {missing!r} (of {path!r})",)
    assert caught.value.__cause__ is None
