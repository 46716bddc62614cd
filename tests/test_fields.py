"""Paths of fields into mappings and objects."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest

from flow.fields import FieldPath


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
    assert FieldPath(path).value_in(item) == value


def test_a_key_with_dots_precedes_a_path() -> None:
    assert FieldPath("user.id").value_in({"user.id": 1, "user": {"id": 2}}) == 1


def test_a_mapping_s_methods_are_not_its_fields() -> None:
    with pytest.raises(KeyError, match="there is no field 'keys'"):
        FieldPath("keys").value_in({"a": 1})


@pytest.mark.parametrize(
    ("item", "path", "missing", "near"),
    [
        ({"a": 1}, "b", "b", ": there are 'a'"),
        ({"amount": 1, "at": 2}, "amuont", "amuont", ": is it 'amount'?"),
        ({"a": {"b": 1}}, "a.c", "c", ": is it 'a.b'?"),
        ({"a": None}, "a.b", "b", ": 'a' is None"),
        (Flight("JFK", {}), "orign", "orign", ": is it 'origin'?"),
        (5, "a", "a", ""),
    ],
)
def test_the_error_of_a_path_names_its_missing_part_and_the_nearest_name(
    item: Any, path: str, missing: str, near: str
) -> None:
    with pytest.raises(KeyError) as caught:
        FieldPath(path).value_in(item)
    assert caught.value.args == (f"there is no field {missing!r} (of {path!r}){near}",)
    assert caught.value.__cause__ is None


def test_a_column_is_found_by_its_whole_name_or_inside_structs() -> None:
    batch = pa.RecordBatch.from_pylist([{"user.id": 1, "user": {"id": 2, "age": 40}}])
    assert FieldPath("user.id").column_in(batch).to_pylist() == [1]
    assert FieldPath("user.age").column_in(batch).to_pylist() == [40]


@pytest.mark.parametrize("path", ["name", "user.name", "user.id.low", "n.low"])
def test_a_path_without_a_column_gives_none(path: str) -> None:
    batch = pa.RecordBatch.from_pylist([{"n": 1, "user": {"id": 2}}])
    assert FieldPath(path).column_in(batch) is None


def test_a_null_struct_has_null_fields() -> None:
    kind = pa.struct([("id", pa.int64())])
    batch = pa.record_batch({"user": pa.array([{"id": 1}, None], kind)})
    assert FieldPath("user.id").column_in(batch).to_pylist() == [1, None]


@pytest.mark.parametrize(("path", "is_valid"), [("a.b", True), ("a..b", False), ("", False)])
def test_a_path_has_no_empty_names(path: str, is_valid: bool) -> None:
    assert FieldPath(path).is_valid is is_valid


def test_a_record_s_field_may_be_the_whole_path_or_its_first_name() -> None:
    assert FieldPath("a.b.c").record_fields == {"a.b.c", "a"}
