"""Keys made of fields: the same text from columns as from objects, which can be read back."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
from flow.columns.chunks import key_texts
from flow.columns.text_keys import NoTextKey, key_column, key_reader
from flow.errors import FlowBuildError, FlowTypeError, StepError
from flow.testing import run_once

ID = UUID("12345678-9ABC-def0-1234-56789abcdef0")


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("acme", "acme"),
        ("", ""),
        (Colour.RED, "red"),
        (-7, "-7"),
        (1 << 70, "1180591620717411303424"),
        (Level.HIGH, "3"),
        (True, "true"),
        (date(999, 1, 2), "0999-01-02"),
        (ID, "12345678-9abc-def0-1234-56789abcdef0"),
    ],
)
def test_the_key_of_a_field_is_its_text(value: Any, key: str) -> None:
    assert run_once([{"id": value}], lambda s: op.key_on("step", s, "id"))[0][0] == key


COLUMNS: dict[str, tuple[Any, list[Any], list[str]]] = {
    "text": (pa.string(), ["a", "é"], ["a", "é"]),
    "large text": (pa.large_string(), ["a"], ["a"]),
    "coded text": (pa.dictionary(pa.int8(), pa.string()), ["b", "a", "b"], ["b", "a", "b"]),
    "coded numbers": (pa.dictionary(pa.int8(), pa.int64()), [5, 4, 5], ["5", "4", "5"]),
    "bytes": (pa.int8(), [-128, 127], ["-128", "127"]),
    "great numbers": (pa.uint64(), [(1 << 64) - 1], ["18446744073709551615"]),
    "booleans": (pa.bool_(), [True, False], ["true", "false"]),
    "dates": (pa.date32(), [date(1, 2, 3)], ["0001-02-03"]),
}


@pytest.mark.parametrize(("kind", "values", "keys"), COLUMNS.values(), ids=COLUMNS)
def test_columns_give_the_keys_of_objects(kind: Any, values: list[Any], keys: list[str]) -> None:
    batch = pa.record_batch({"id": pa.array(values, kind)})
    assert key_texts(key_column(("id",), batch)) == keys
    assert [key_reader(("id",))(row) for row in batch.to_pylist()] == keys


def test_uuids_in_a_part_of_a_column_give_the_keys_of_objects() -> None:
    ids = [UUID(int=number) for number in (0, 1 << 127, (1 << 128) - 1, ID.int)]
    column = pa.array([one.bytes for one in ids], pa.uuid())
    batch = pa.record_batch({"id": column}).slice(1, 3)
    assert key_texts(key_column(("id",), batch)) == [str(one) for one in ids[1:]]
    assert run_once(batch, lambda s: op.key_on("step", s, ["id"]))[-1] == (str(ID), {"id": ID})


def test_a_field_inside_a_record_stays_a_column() -> None:
    batch = pa.RecordBatch.from_pylist([{"user": {"id": 7}}])
    assert key_texts(key_column(("user.id",), batch)) == ["7"]


TEXT = st.text('ab"\\,[é\x7f\u2028\U0001f600')


@given(rows=st.lists(st.tuples(TEXT, st.integers(-9, 9), st.booleans(), st.dates()), min_size=1))
def test_several_fields_are_a_json_array(rows: list[tuple[str, int, bool, date]]) -> None:
    paths = ("a", "b", "c", "d")
    records = [dict(zip(paths, row, strict=True)) for row in rows]
    keys = [key_reader(paths)(record) for record in records]
    assert [json.loads(key) for key in keys] == [[a, b, c, str(d)] for a, b, c, d in rows]
    column = key_column(paths, pa.RecordBatch.from_pylist(records))
    assert column is not None
    assert column.to_pylist() == keys


@pytest.mark.parametrize("code", range(33))
def test_control_characters_are_escaped(code: int) -> None:
    rows = pa.RecordBatch.from_pylist([{"id": f"a{chr(code)}", "n": 1}])
    ((key, _),) = run_once(rows, lambda s: op.key_on("step", s, ["id", "n"]))
    assert json.loads(key) == [f"a{chr(code)}", 1]


REFUSED = [2.5, Decimal("1.0"), datetime(2024, 1, 1, tzinfo=UTC), b"id"]


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_a_value_without_one_text_is_refused(value: Any, columns: bool) -> None:
    rows: Any = [{"id": value, "n": 1}]
    if columns:
        rows = pa.RecordBatch.from_pylist(rows)
    with pytest.raises(StepError) as error:
        run_once(rows, lambda s: op.key_on("step", s, ["n", "id"]))
    assert error.value.problem == (
        f"the key field 'id' is {type(value).__name__} {value!r}, and a key is made of text, whole "
        "numbers, True and False, dates and UUIDs: equal floats, decimals and times may differ as "
        "text. Give a function that returns the text, such as lambda item: str(item['id'])"
    )


@pytest.mark.parametrize("day", [2_932_897, -719_163, 2**31 - 1])
def test_a_day_that_no_date_holds_is_refused(day: int) -> None:
    days = pa.array([0, day], pa.int32()).cast(pa.date32())
    with pytest.raises(StepError, match=r"the key field 'id' is OutOfRange .*, and a key is made"):
        run_once(pa.record_batch({"id": days}), lambda s: op.key_on("step", s, "id"))


@pytest.mark.parametrize("key", ["id", ["id", "n"]])
@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int8(), pa.string())])
def test_a_null_is_no_key(key: Any, kind: Any) -> None:
    rows = pa.record_batch({"id": pa.array(["a", None], kind), "n": pa.array([1, 2])})
    with pytest.raises(StepError, match="the key field 'id' is null"):
        run_once(rows, lambda s: op.key_on("step", s, key))


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        ([], FlowBuildError, r"step 'step': key must name a field or more, got \[\]"),
        (["a", 5], FlowTypeError, "key must be a field's path such as 'user.id', got int 5"),
        (["a."], FlowBuildError, "key must be a field's path such as 'user.id', got 'a.'"),
        (5, FlowTypeError, "key must be a function or a field's path such as 'user.id', got int 5"),
    ],
)
def test_other_keys_are_refused_as_the_flow_is_built(key: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        run_once([], lambda s: op.key_on("step", s, key))


def test_an_error_names_the_field() -> None:
    with pytest.raises(NoTextKey, match=r"the key field 'b\.c' is null"):
        key_reader(("a", "b.c"))({"a": 1, "b": {"c": None}})


def test_a_table_is_keyed_by_the_same_rule() -> None:
    def names(users: Any) -> Any:
        rows = [{"id": 7, "name": "ann"}]
        table = op.lookup_table("names", users.flow, lambda: rows, "id", "name")
        by_id = op.key_on("by_id", users, "user")
        return op.map_with("name", by_id, table, lambda pair, found: found[pair[0]])

    assert run_once([{"user": 7}], names) == ["ann"]
