"""Deserialization of messages to columns, compared with plain Python, and bad messages."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.connectors.kafka.deserializers import (
    AvroDeserializer,
    BytesDeserializer,
    Deserializer,
    FlatJsonColumns,
    JsonColumns,
    JsonDeserializer,
    TextDeserializer,
    is_flat,
)
from flow.connectors.kafka.message_items import ObjectItems, RecordItems
from flow.connectors.source import BadInput, Invalid
from tests.support.sampling import sampled

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": "double"},
    ],
}


def message(
    value: bytes | None,
    key: bytes | None = None,
    offset: int = 0,
    timestamp: tuple[int, int] = (1, 1_500),
    headers: list[tuple[str, bytes | None]] | None = None,
) -> Any:
    """A message as the client has it."""
    parts = {"value": value, "key": key, "offset": offset, "timestamp": timestamp}
    parts |= {"headers": headers, "topic": "orders", "partition": 3}
    return SimpleNamespace(
        **{name: partial(lambda part: part, part) for name, part in parts.items()}
    )


def records(
    messages: Sequence[Any],
    value: Deserializer,
    key: Deserializer | None = None,
) -> tuple[list[dict[str, Any]], list[BadInput]]:
    """The records of messages, and the bad ones among them."""
    items = RecordItems(key or TextDeserializer(), value, prefix="")
    good: list[dict[str, Any]] = []
    bad: list[BadInput] = []
    for batch in items.batches(messages, None):
        if isinstance(batch, Invalid):
            bad += batch.inputs
        elif isinstance(batch, pa.RecordBatch):
            good += batch.to_pylist()
    return good, bad


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


# --- what is beside the value ---


def test_a_record_has_the_value_as_text_and_the_metadata_of_the_message() -> None:
    made = message(b"hi", b"ann", 17, (2, 1_500), [("trace", b"\x01"), ("empty", None)])
    good, bad = records([made], TextDeserializer())
    assert bad == []
    assert good == [
        {
            "value": "hi",
            "key": "ann",
            "topic": "orders",
            "partition": 3,
            "offset": 17,
            "timestamp": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
            "timestamp_type": "append",
            "headers": [{"name": "trace", "value": b"\x01"}, {"name": "empty", "value": None}],
        }
    ]


def test_missing_parts_of_a_message_are_null() -> None:
    good, _ = records([message(None, None, timestamp=(0, -1))], BytesDeserializer())
    assert [good[0][name] for name in ("value", "key", "timestamp")] == [None, None, None]
    assert (good[0]["timestamp_type"], good[0]["headers"]) == ("none", [])


@pytest.mark.parametrize("whole", [RecordItems, ObjectItems])
def test_a_time_may_be_before_1970_or_missing_but_not_beyond_the_calendar(whole: Any) -> None:
    """Producers that give microseconds for milliseconds give the year 50,000."""
    more = {"prefix": ""} if whole is RecordItems else {}
    items = whole(TextDeserializer(), TextDeserializer(), **more)
    first, last = -62_135_596_800_000, 253_402_300_799_999
    stamps = [-1, -2, first, last, first - 1, last + 1, 1_700_000_000 * 10**9, -(2**63)]
    made = list(
        items.batches([message(b"v", None, n, (1, at)) for n, at in enumerate(stamps)], None)
    )
    good = [one for batch in made if not isinstance(batch, Invalid) for one in as_dicts(batch)]
    bad = [one for batch in made if isinstance(batch, Invalid) for one in batch.inputs]
    assert [one["timestamp"] for one in good] == [
        None,
        datetime(1969, 12, 31, 23, 59, 59, 998_000, UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC),
    ]
    assert [(one.message.offset, one.message.timestamp) for one in bad] == [
        (offset, None) for offset in (4, 5, 6, 7)
    ]
    reason = (
        "its timestamp: 1,700,000,000,000,000,000 ms since 1970 is not within the years 1 to 9999"
    )
    assert bad[2].reason == reason


def as_dicts(batch: Any) -> list[dict[str, Any]]:
    return [asdict(one) for one in batch] if isinstance(batch, list) else batch.to_pylist()


def test_only_the_columns_that_are_read_are_made() -> None:
    items = RecordItems(TextDeserializer(), TextDeserializer(), prefix="k_")
    batch = items.batch([message(b"a", b"b")], frozenset({"k_key", "value", "headers"}))
    assert isinstance(batch, pa.RecordBatch)
    assert batch.to_pylist() == [{"value": "a", "k_key": "b"}]


def test_keys_that_are_records_may_be_missing() -> None:
    keys = [b'{"id": 1}', None, b'{"id": 2}']
    key = JsonColumns(pa.schema([("id", pa.int64())]))
    good, bad = records([message(b"x", one) for one in keys], BytesDeserializer(), key)
    assert [one["key"] for one in good] == [{"id": 1}, None, {"id": 2}]
    assert bad == []
    good, bad = records([message(b"x", None)], BytesDeserializer(), key)
    assert ([one["key"] for one in good], bad) == ([None], [])


# --- JSON ---

plain = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(-(2**53), 2**53),
        "name": st.none() | st.text(st.characters(codec="utf-8"), max_size=20),
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    }
)
json_columns = pytest.mark.parametrize("columns", [JsonColumns, FlatJsonColumns])
layouts = st.sampled_from([{}, {"indent": 2}, {"ensure_ascii": False}, {"separators": (",", ":")}])


@json_columns
@given(values=st.lists(st.tuples(plain, layouts), max_size=30))
def test_json_columns_agree_with_python_for_any_layout(
    columns: type[JsonColumns], values: list[tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    data = [json.dumps(value, **layout).encode() for value, layout in values]
    column = columns(SCHEMA).column(data)
    assert column is not None
    assert column.to_pylist() == [json.loads(one) for one in data]


BAD_JSON = [
    (b"not json", "not JSON: Expecting value at byte 1"),
    (b'{"id": "one"}', "field 'id' does not fit int64: 'one'"),
    (b'{"id": 1.5}', "field 'id' does not fit int64: 1.5"),
    (b"[1]", "a JSON object is needed, got list"),
    (b"null", "a JSON object is needed, got NoneType"),
    (b"", "not JSON: Expecting value at byte 1"),
    (b"  ", "not JSON: Expecting value at byte 3"),
    (b"\n", "not JSON: Expecting value at byte 2"),
    (b'{"name": "\xff"}', "not UTF-8 text, at byte 11"),
    (b'{"more": "\xff"}', "not UTF-8 text, at byte 11"),
    (b'{"id": 1} {"id": 2}', "not JSON: Extra data at byte 11"),
    (b'{"id": 1}\n{"id": 2}', "not JSON: Extra data at byte 11"),
    (b"[" * 100_000, "not JSON: nested too deeply"),
    (None, "there is nothing (a tombstone)"),
]


@json_columns
@pytest.mark.parametrize(("data", "reason"), BAD_JSON)
def test_a_bad_value_among_good_ones_is_reported_with_its_reason(
    columns: type[JsonColumns], data: bytes | None, reason: str
) -> None:
    around = [message(b'{"id": %d}' % n, b"k", n) for n in range(5)]
    messages = [*around[:2], message(data, b"k", 77), *around[2:]]
    good, bad = records(messages, columns(SCHEMA))
    assert [one["id"] for one in good] == [0, 1, 2, 3, 4]
    assert [(one.where, one.reason) for one in bad] == [
        ("topic 'orders', partition 3, offset 77", f"its value: {reason}")
    ]


@json_columns
@sampled(100, by_default=12)
@given(
    data=st.lists(
        st.one_of(
            st.none(),
            st.binary(max_size=8),
            plain.map(lambda value: json.dumps(value).encode()),
            st.sampled_from([data for data, _ in BAD_JSON[:-2]]),
            st.sampled_from([b'{"price": NaN, "id": 1}', b'{"id": 1, "other": Infinity}']),
        ),
        max_size=40,
    )
)
def test_a_message_is_judged_independently_of_its_neighbours(
    columns: type[JsonColumns], data: list[bytes | None]
) -> None:
    form = columns(SCHEMA)
    messages = [message(one, None, offset) for offset, one in enumerate(data)]
    good, bad = records(messages, form)
    alone = [records([one], form) for one in messages]
    # As text, since what is not a number is not equal to itself.
    assert repr(good) == repr([record for some, _ in alone for record in some])
    assert [one.where for one in bad] == [one.where for _, some in alone for one in some]
    assert len(good) + len(bad) == len(data)


PIECES = [
    *b'"id" "name" "price" "x" : , { } [ ] null true 7 1.0 1e2 -0.5 NaN 01 "a" "\\u00e9"'.split(),
    *(b"-0", b"1e400"),
]


@st.composite
def broken_json(draw: st.DrawFn) -> bytes:
    """Generate a JSON object with up to two pieces of its text replaced or inserted."""
    data = json.dumps(
        {**draw(plain), "x": draw(st.sampled_from([1, "a", [1, {"id": 2}]]))}
    ).encode()
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(data)))
        piece = draw(st.sampled_from(PIECES) | st.binary(max_size=1))
        data = data[:start] + piece + data[start + draw(st.integers(0, 3)) :]
    return data


@given(broken_json())
def test_flat_columns_agree_with_arrow(data: bytes) -> None:
    assert is_flat(SCHEMA)
    mine, theirs = FlatJsonColumns(SCHEMA).column([data]), JsonColumns(SCHEMA).column([data])
    if theirs is not None:
        assert mine is not None
        assert repr(mine.to_pylist()) == repr(theirs.to_pylist())
    elif mine is not None:  # a field that is there twice, and numbers beyond a float's range
        value = json.loads(data)
        assert mine.to_pylist() == [{name: value.get(name) for name in SCHEMA.names}]


@json_columns
@pytest.mark.parametrize(
    ("text", "price"),
    [("-0", "-0.0"), ("-0.0", "-0.0"), ("0", "0.0"), ("1e400", None), ("-1e400", None)],
)
@pytest.mark.parametrize("layout", ['{"id": 1, "price": %s}', '{"price":%s\n,"name":"-0,"}'])
@pytest.mark.parametrize("other", ["2.5", "nan"])
def test_numbers_at_the_edges_of_floats_have_one_reading(
    columns: type[JsonColumns], text: str, price: str | None, layout: str, other: str
) -> None:
    of_others = [f'{{"price": {one}}}' for one in ("1.5", other.replace("nan", "NaN"))]
    around = [message(one.encode()) for one in of_others]
    good, bad = records([*around, message((layout % text).encode())], columns(SCHEMA))
    assert [repr(one["price"]) for one in good] == ["1.5", other, *([price] if price else [])]
    assert len(bad) == (price is None)


def test_flat_columns_may_have_any_name_and_parse_text() -> None:
    schema = pa.schema(
        {
            "user-id": pa.uint8(),
            "class": pa.bool_(),
            "é": pa.large_string(),
            "at": pa.timestamp("ms", "UTC"),
            "day": pa.date32(),
        }
    )
    good = b'{"user-id": 255, "class": true, "at": "2026-01-02T03:04:05Z", "day": "2026-01-02"}'
    assert is_flat(schema)
    form = pickle.loads(pickle.dumps(FlatJsonColumns(schema)))
    named = good.replace(b"{", '{"é": "ü", '.encode())
    assert form.column([good, named]).equals(JsonColumns(schema).column([good, named]))
    assert form.column([good]).type == pa.struct(list(schema))
    for bad in (b'{"user-id": 256}', b'{"day": "today"}', b'{"at": 5}'):
        assert form.column([bad]) is None
    assert form.problem(b'{"user-id": 256}') == "field 'user-id' does not fit uint8: 256"


@pytest.mark.parametrize(
    "kind",
    [pa.float32(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.decimal128(5, 2)],
)
def test_other_types_are_parsed_by_arrow(kind: Any) -> None:
    assert not is_flat(pa.schema([("id", pa.int64()), ("more", kind)]))


def test_json_messages_agree_with_python() -> None:
    items = ObjectItems(TextDeserializer(), JsonDeserializer())
    (batch,) = items.batches([message(b'{"a": [1, null]}', b"k"), message(None)], None)
    assert isinstance(batch, list)
    assert [(one.key, one.value) for one in batch] == [("k", {"a": [1, None]}), (None, None)]


# --- bad keys, and none ---


@pytest.mark.parametrize("whole", [RecordItems, ObjectItems])
def test_a_bad_key_is_bad_and_a_missing_one_is_not(whole: Any) -> None:
    more = {"prefix": ""} if whole is RecordItems else {}
    messages = [message(b"a", b"k", 0), message(b"b", b"\xff", 1), message(b"c", None, 2)]
    items = whole(TextDeserializer(), TextDeserializer(), **more)
    *_, invalid = items.batches(messages, None)
    (bad,) = invalid.inputs
    assert (bad.text, bad.reason) == (r"b'\xff'", "its key: not UTF-8 text, at byte 1")
    assert (bad.message.offset, bad.message.value) == (1, b"b")


# --- Avro ---


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.none() | st.text(), st.floats())))
def test_avro_columns_agree_with_fastavro(rows: list[tuple[int, str | None, float]]) -> None:
    values = [{"id": one, "name": name, "price": price} for one, name, price in rows]
    data = [written(AVRO, value) for value in values]
    form = AvroDeserializer(json.dumps(AVRO))
    column = form.column(data)
    assert column is not None
    assert repr(column.to_pylist()) == repr([form.read(one) for one in data])


def test_avro_of_many_types_is_read_to_columns() -> None:
    types: list[tuple[str, Any, Any, Any]] = [
        ("flag", "boolean", True, pa.bool_()),
        ("small", "int", 5, pa.int32()),
        ("half", "float", 0.5, pa.float32()),
        ("raw", "bytes", b"\x00", pa.binary()),
        ("four", {"type": "fixed", "name": "Four", "size": 4}, b"abcd", pa.binary(4)),
        ("kind", {"type": "enum", "name": "K", "symbols": ["A", "B"]}, "B", pa.string()),
        ("tags", {"type": "array", "items": "string"}, ["x"], pa.list_(pa.string())),
        ("day", {"type": "int", "logicalType": "date"}, date(2026, 1, 2), pa.date32()),
        (
            "at",
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime(2026, 1, 2, tzinfo=UTC),
            pa.timestamp("ms", "UTC"),
        ),
        (
            "cost",
            {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
            Decimal("12.50"),
            pa.decimal128(6, 2),
        ),
        ("inner", {**AVRO, "name": "In"}, {"id": 1, "name": None, "price": 2.0}, None),
        ("again", "In", {"id": 2, "name": "b", "price": 3.0}, None),
        ("uuid", {"type": "string", "logicalType": "uuid"}, UUID(int=7), pa.string()),
        ("counts", {"type": "map", "values": "long"}, {"a": 1}, None),
    ]
    fields = [{"name": name, "type": kind} for name, kind, _, _ in types]
    schema = {"type": "record", "name": "All", "fields": fields}
    value = {name: one for name, _, one, _ in types}
    form = AvroDeserializer(schema)
    data = written(schema, value)
    assert form.read(data) == value
    column = form.column([data])
    assert column is not None
    assert column.to_pylist() == [{**value, "uuid": str(UUID(int=7)), "counts": [("a", 1)]}]
    for name, _, _, kind in types:
        assert kind is None or column.type.field(name).type == kind


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not Avro of the schema (EOFError)"),
        (written(AVRO, {"id": 1, "name": "a", "price": 1.0}) + b"!", "1 bytes are left over"),
        (None, "there is nothing (a tombstone)"),
    ],
)
def test_bad_avro_is_reported(data: bytes | None, reason: str) -> None:
    good = message(written(AVRO, {"id": 1, "name": "a", "price": 1.0}))
    found, bad = records([good, message(data), good], AvroDeserializer(AVRO))
    assert [one["id"] for one in found] == [1, 1]
    assert len(bad) == 1
    assert reason in bad[0].reason
