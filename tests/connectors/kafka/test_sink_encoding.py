"""Encoding of items as messages by a `KafkaSink`, one by one and in columns, without a broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow import FlowBuildError, SinkError, StepError
from flow.connectors.kafka import Avro, KafkaMessage, KafkaRecord, KafkaSink
from flow.connectors.sink import SinkBatch, WriteContext
from flow.instants import from_us
from flow_windowing import WindowMetadata
from tests.support.sampling import sampled

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
NAIVE = NOON.replace(tzinfo=None)
NOON_MS = 1_714_564_800_000
WINDOW = WindowMetadata(3, NOON, NOON + timedelta(hours=1))


@dataclass(frozen=True)
class Message:
    """A message as it is handed to the client."""

    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def messages(written: SinkBatch, **options: Any) -> list[Message]:
    """Return the messages that the workers encode for a batch."""
    sink = KafkaSink("nowhere:1", "t", **options)
    chunks = sink.write(WriteContext("out", 0, 0, "run"), iter([written]))
    rows = [row for chunk in chunks for row in chunk.batch().to_pylist()]
    return [
        Message(
            row["key"],
            row["value"],
            row["timestamp"],
            tuple((one["name"], one["value"]) for one in row["headers"] or ()),
        )
        for row in rows
    ]


def records(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_a_pair_becomes_its_key_and_a_json_object() -> None:
    assert messages([("LHR", {"flights": 3}), ("JFK", 4)]) == [
        Message(b"LHR", b'{"flights": 3}'),
        Message(b"JFK", b'{"value": 4}'),
    ]


def test_the_key_of_a_record_comes_from_its_column() -> None:
    assert messages([{"key": "a", "n": 1}, {"n": 2}]) == [
        Message(b"a", b'{"n": 1}'),
        Message(None, b'{"n": 2}'),
    ]


def test_a_windows_result_becomes_the_window_and_its_values() -> None:
    assert messages([("LHR", (WINDOW, {"flights": 3}))]) == [
        Message(
            b"LHR",
            b'{"window_id": 3, "open_time": "2024-05-01T12:00:00Z", '
            b'"close_time": "2024-05-01T13:00:00Z", "merged_ids": [], "is_retraction": false, '
            b'"flights": 3}',
        )
    ]


def test_a_timestamp_column_of_instants_is_the_messages_time() -> None:
    window = WindowMetadata(3, NOON, NOON, timestamp=NOON)
    assert [one.timestamp for one in messages([("a", (window, 1))])] == [NOON_MS]
    assert [one.timestamp for one in messages([{"timestamp": 5}, {"timestamp": "noon"}])] == [
        None,
        None,
    ]
    assert messages(records(timestamp=[NOON, None]))[0].timestamp == NOON_MS
    assert messages(records(timestamp=[5]))[0].timestamp is None


def test_all_four_parts_can_be_chosen_by_path() -> None:
    item = {"id": "a", "at": {"time": NOON}, "body": {"n": 1}, "unit": "m"}
    chosen = {"key": "id", "value": "body", "timestamp": "at.time", "headers": {"u": "unit"}}
    assert messages([item], **chosen) == [Message(b"a", b'{"n": 1}', NOON_MS, (("u", b"m"),))]


def test_all_four_parts_can_be_chosen_by_function() -> None:
    assert messages(
        [("a", 5)],
        key=lambda item: item[0] * 2,
        value=lambda item: item[1] + 1,
        timestamp=lambda item: 1.5,
        headers=lambda item: [("n", item[1]), ("n", None), ("raw", b"\0"), ("at", NOON)],
    ) == [
        Message(
            b"aa",
            b"6",
            1500,
            (("n", b"5"), ("n", None), ("raw", b"\0"), ("at", b'"2024-05-01T12:00:00Z"')),
        )
    ]


def test_a_chosen_key_stays_in_the_value() -> None:
    assert messages([{"key": 1, "id": "a"}], key="id") == [Message(b"a", b'{"key": 1, "id": "a"}')]
    assert messages(records(key=[1], id=["a"]), key="id") == [
        Message(b"a", b'{"key": 1, "id": "a"}')
    ]


def test_a_kafka_record_sets_all_parts() -> None:
    record = KafkaRecord({"n": 1}, key="k", headers={"h": "x"}, timestamp=NOON)
    assert messages([record], key="nothing", value="nothing") == [
        Message(b"k", b'{"n": 1}', NOON_MS, (("h", b"x"),))
    ]


def test_a_read_message_is_written_unchanged() -> None:
    read = KafkaMessage(b"k", b"{}", "t", 3, 7, NOON, "create", (("h", None), ("h", b"x")))
    assert messages([read], key="offset") == [
        Message(b"k", b"{}", NOON_MS, (("h", None), ("h", b"x")))
    ]


@pytest.mark.parametrize("format", ["json", "text", "bytes"])
def test_bytes_are_written_unchanged_and_none_is_a_tombstone(format: Any) -> None:
    made = messages([KafkaRecord(b"\xff", key=b"\0"), KafkaRecord(None)], value_format=format)
    assert made == [Message(b"\0", b"\xff"), Message(None, None)]
    chosen = {"value": "v", "value_format": format}
    for kind in (pa.binary(), pa.large_binary(), pa.binary(1)):
        written = messages(records(v=pa.array([b"\xff", None], kind)), **chosen)
        assert [one.value for one in written] == [b"\xff", None]


def test_text_and_bytes_formats_write_the_only_field() -> None:
    assert messages([("a", "hé")], value_format="text") == [Message(b"a", "hé".encode())]
    assert messages(["plain"], value_format="text") == [Message(None, b"plain")]
    assert messages(records(key=["a"], value=["x"]), value_format="text") == [Message(b"a", b"x")]
    assert messages([b"raw"], value_format="bytes") == [Message(None, b"raw")]


def test_keys_are_text_and_whole_numbers_are_digits() -> None:
    assert messages([{"key": 7}])[0].key == b"7"
    assert messages(records(key=[7, None]))[0].key == b"7"
    assert messages([{"key": (1, 2)}], key_format="json")[0].key == b"[1, 2]"


SCHEMA = {
    "type": "record",
    "name": "Sum",
    "fields": [
        {"name": "sum", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}


@pytest.mark.parametrize("schema", [SCHEMA, json.dumps(SCHEMA)])
def test_avro_can_be_read_by_an_avro_reader(schema: Any) -> None:
    import io

    batch = records(key=["a"], sum=[7], at=[NOON])
    for written in ([("a", {"sum": 7, "at": NOON})], batch):
        (made,) = messages(written, value_format=Avro(schema))
        read = fastavro.schemaless_reader(io.BytesIO(made.value or b""), SCHEMA, None)
        assert (made.key, read) == (b"a", {"sum": 7, "at": NOON})


ODD_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "text": (pa.string(), ODD_TEXT),
    "large": (pa.large_string(), ODD_TEXT),
    "word": (pa.dictionary(pa.int32(), pa.string()), ODD_TEXT),
    "whole": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.uint8(), st.integers(0, 255)),
    "number": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "short": (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    "truth": (pa.bool_(), st.booleans()),
    "at": (pa.timestamp("us", "Europe/Berlin"), st.integers(-(10**15), 4 * 10**15).map(from_us)),
    "day": (pa.date32(), st.dates(date(1, 1, 1))),
    "price": (pa.decimal128(9, 2), st.decimals(-9999, 9999, places=2)),
    "ids": (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=2)),
    "inner": (pa.struct([("a", pa.string())]), st.fixed_dictionaries({"a": ODD_TEXT})),
    "took": (pa.duration("us"), st.timedeltas(timedelta(0), timedelta(days=9))),
}


def in_utc(value: Any) -> Any:
    """Objects that came from columns of another zone, as the columns are written."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def parsed(made: list[Message]) -> list[str]:
    """The values that JSON texts hold: a number may be written in several ways."""
    return [repr(json.loads(one.value or b"")) for one in made]


@sampled(100, by_default=30)
@given(st.data())
def test_columns_and_their_records_give_the_same_json(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True, min_size=1))
    count = data.draw(st.integers(1, 4))
    columns = {
        name: pa.array(
            data.draw(st.lists(st.none() | VALUES[name][1], min_size=count, max_size=count)),
            VALUES[name][0],
        )
        for name in names
    }
    batch = pa.RecordBatch.from_pydict(columns)
    rows = [{name: in_utc(value) for name, value in row.items()} for row in batch.to_pylist()]
    assert parsed(messages(batch)) == parsed(messages(rows))


def test_columns_are_encoded_as_a_whole() -> None:
    assert KafkaSink("s:1", "t", key="a", value="b", timestamp="c").lays_out
    assert not KafkaSink("s:1", "t", key=str).lays_out
    assert not KafkaSink("s:1", "t", headers={"a": "b"}).lays_out


@pytest.mark.parametrize(
    ("written", "options", "message"),
    [
        ([object()], {}, "step 'out': the value cannot be written as JSON: TypeError"),
        ([{"n": float("nan")}], {}, "step 'out': the value cannot be written as JSON: ValueError"),
        (records(n=[float("inf")]), {}, "field 'n' (double) cannot be written as JSON"),
        (records(t=pa.array([0], pa.timestamp("us"))), {}, "field 't' (timestamp[us]) cannot be"),
        (records(b=[b"x"]), {}, "field 'b' (binary) cannot be written as JSON"),
        ([{"a": 1}], {"key": "b"}, "step 'out': no message can be made of the item: KeyError"),
        (records(a=[1]), {"key": "a.b"}, "step 'out': key='a.b' is not a field of the records"),
        ([{"a": 1}], {"value": lambda item: 1 / 0}, "ZeroDivisionError: division by zero"),
        ([3.5], {"value_format": "text"}, "the value cannot be written as text: TypeError: it is"),
        (["x"], {"value_format": "bytes"}, "the value cannot be written as bytes: TypeError"),
        (records(v=[1.5]), {"value": "v", "value_format": "text"}, "cannot be written as text"),
        ([{"a": 1, "b": 2}], {"value_format": "text"}, "name the field that is the value"),
        (records(a=[1], b=[2]), {"value_format": "text"}, "such as value='a'"),
        ([{"sum": "x"}], {"value_format": Avro(SCHEMA)}, "the value cannot be written as Avro"),
        ([{}], {"value_format": Avro(SCHEMA)}, "the value cannot be written as Avro"),
        ([{"v": 1, "t": NAIVE}], {"value": "v", "timestamp": "t"}, "timestamp cannot"),
        ([{"t": 0}], {"timestamp": "t"}, "the timestamp 0 must be after 1970-01-01T00:00:00Z"),
        (records(t=[-1]), {"timestamp": "t"}, "the timestamp -1 must be after"),
        (records(timestamp=[datetime(1969, 1, 1, tzinfo=UTC)]), {}, "must be after 1970-01-01"),
        ([KafkaRecord(1, headers=[1])], {}, "headers must be pairs of a name and a value"),
        ([KafkaRecord(1, headers={2: 1})], {}, "a header's name must be text, got 2"),
    ],
)
def test_a_message_that_cannot_be_encoded_names_the_step(
    written: SinkBatch, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((SinkError, StepError)) as caught:
        messages(written, **options)
    assert message in str(caught.value)
    assert "step 'out'" in str(caught.value)


def test_secrets_are_hidden_and_not_sent_to_encoding_workers() -> None:
    import pickle

    secrets = {"sasl.password": "s3cr3t", "my.plugin.token": "s3cr3t", "linger.ms": 7}
    sink = KafkaSink("s:1", "t", properties=secrets)
    assert repr(sink) == (
        "KafkaSink('s:1', 't', properties={'sasl.password': '***', 'my.plugin.token': '***', "
        "'linger.ms': 7})"
    )
    assert b"s3cr3t" not in pickle.dumps(sink)
    once_more = KafkaSink("s:1", "t", properties=secrets, guarantee="at least once")
    assert b"s3cr3t" in pickle.dumps(once_more)
    assert repr(once_more).startswith("KafkaSink('s:1', 't', guarantee='at least once', prop")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KafkaSink("", "t"), "servers"),
        (lambda: KafkaSink("s:1", ""), "topic must be text, got ''"),
        (lambda: KafkaSink("s:1", "t", key=5), "key must be the path of a field or a function"),
        (lambda: KafkaSink("s:1", "t", headers=["a"]), "headers must map names to fields"),
        (lambda: KafkaSink("s:1", "t", headers={"a": 5}), "header 'a' must be the path"),
        (lambda: KafkaSink("s:1", "t", key_format="xml"), "key_format must be 'json', 'text'"),
        (lambda: KafkaSink("s:1", "t", value_format=None), "value_format must be 'json', 'text'"),
        (lambda: KafkaSink("s:1", "t", guarantee="maybe"), "guarantee must be 'exactly once' or"),
        (lambda: KafkaSink("s:1", "t", after_rewind="maybe"), "after_rewind must be 'refuse' or"),
        (lambda: KafkaSink("s:1", "t", partitions=0), "partitions must be a whole number of at"),
        (lambda: KafkaSink("s:1", "t", properties={"transactional.id": "x"}), "cannot be"),
        (lambda: KafkaSink("s:1", "t", properties={"a": object()}), "properties"),
        (lambda: KafkaSink("s:1", "t", properties="a=b"), "properties must map"),
        (lambda: Avro("{"), "not an Avro schema"),
        (lambda: Avro({"type": "recrod"}), "not an Avro schema"),
        (lambda: Avro(5), "an Avro schema must be JSON text, or"),
    ],
)
def test_invalid_arguments_of_sinks_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(FlowBuildError) as caught:
        make()
    assert message in str(caught.value)
