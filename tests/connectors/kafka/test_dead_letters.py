"""Dead letters: encoding and delivery of late and broken items."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, FlowBuildError
from flow.connectors.files import JsonLinesSink
from flow.connectors.formats.json_encoding import instant_text
from flow.connectors.kafka import BadMessage, KafkaMessage, KafkaSink
from flow.connectors.kafka.messages import KafkaRecord
from flow.connectors.source import BadInput
from flow.operators.dead_letters import dead_letter, dead_letters
from flow.testing import TestDriver, TestingSource

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SINK = KafkaSink("nowhere:1", "dead")


def message(key: Any, value: Any) -> KafkaMessage:
    return KafkaMessage(key, value, "orders", 3, 17, NOON, "create", (("trace", b"1"),))


COORDINATES = [("flow.topic", "orders"), ("flow.partition", "3"), ("flow.offset", "17")]


def flow_over(items: list[Any], sink: KafkaSink = SINK) -> Dataflow:
    """Texts become numbers of seconds, which are summed up minute by minute."""
    flow = Dataflow("sums")
    texts = op.input("in", flow, TestingSource(items))
    numbers = op.try_map("parse", texts, int)
    sums = win.sum_window(
        "sums",
        op.key_on("by_parity", numbers.ok, lambda number: "odd" if number % 2 else "even"),
        win.EventClock(float, wait_for_system_duration="0s"),
        win.TumblingWindower(length="1m", align_to=datetime(1970, 1, 1, tzinfo=UTC)),
    )
    op.output("out", op.map("show", sums.down, str), sink)
    dead_letters("dead", sums.late, numbers.errors, sink=sink)
    return flow


def test_late_and_broken_items_have_their_reason() -> None:
    """
    even   0 ··· 100 · 20 (late for 00:00-01:00 by 80 s)          x is no number
    """
    with TestDriver(flow_over([]), now="2024-05-01T00:00:00Z") as driver:
        driver.send("in", ["100", "20", "x"])
        driver.end()
        late, broken = sorted(driver.received("dead"), key=lambda one: str(one.value))
    assert late == KafkaRecord(
        20,
        "even",
        [
            ("flow.step", "sums"),
            ("flow.reason", "late"),
            ("flow.late_by", "80.0"),
            ("flow.timestamp", "1970-01-01T00:00:20Z"),
            ("flow.watermark", "1970-01-01T00:01:40Z"),
            ("flow.window_open", "1970-01-01T00:00:00Z"),
            ("flow.window_close", "1970-01-01T00:01:00Z"),
            ("flow.window_ids", "0"),
        ],
    )
    reason = "ValueError: invalid literal for int() with base 10: 'x'"
    assert broken == KafkaRecord("x", None, [("flow.step", "parse"), ("flow.reason", reason)])


def test_a_message_keeps_its_content_and_records_its_origin() -> None:
    made = dead_letter("parse", ("ann", op.ItemError(message(b"k", b"v"), "parse", KeyError("a"))))
    reason = [("flow.step", "parse"), ("flow.reason", "KeyError: 'a'")]
    assert made == KafkaRecord(b"v", b"k", [("trace", b"1"), *reason, *COORDINATES], NOON)


def test_an_unreadable_message_keeps_its_content() -> None:
    bad = BadMessage("orders[3]@17", "{", "not JSON", message(None, b"{"))
    why = [("flow.step", "in"), ("flow.reason", "not JSON"), ("flow.where", "orders[3]@17")]
    assert dead_letter("in", bad) == KafkaRecord(
        b"{", None, [("trace", b"1"), *why, *COORDINATES], NOON
    )


def test_a_record_read_from_kafka_leaves_out_the_metadata() -> None:
    record = {
        "n": 1,
        "key": b"k",
        "topic": "orders",
        "partition": 3,
        "offset": 17,
        "timestamp": NOON,
        "timestamp_type": "create",
        "headers": [{"name": "trace", "value": b"1"}],
    }
    made = dead_letter("any", ("by", record))
    headers = [("trace", b"1"), ("flow.step", "any"), *COORDINATES]
    assert made == KafkaRecord({"n": 1}, b"k", headers, NOON)


def test_unreadable_input_records_its_place() -> None:
    made = dead_letter("in", BadInput("a.jsonl, line 3", "{", "not JSON"))
    headers = [("flow.step", "in"), ("flow.reason", "not JSON"), ("flow.where", "a.jsonl, line 3")]
    assert made == KafkaRecord("{", None, headers)


def test_other_items_record_their_step_and_keep_their_key() -> None:
    assert dead_letter("odd", ("k", {"n": 1})) == KafkaRecord({"n": 1}, "k", [("flow.step", "odd")])


def test_text_is_written_unchanged() -> None:
    made = dead_letter("any", message("k", "é"))
    assert (made.key, made.value) == (b"k", "é".encode())
    half_a_pair = BadMessage("here", "", "\ud83d", message(None, "\ud83d"))
    made = dead_letter("any", half_a_pair)
    assert (made.value, dict(made.headers)["flow.reason"]) == (b"?", "?")


class Unencodable:
    """Object that no format can encode, and whose representation is no valid text."""

    def __repr__(self) -> str:
        return "Odd(\udcff)"


@pytest.mark.parametrize(
    ("key", "value", "as_key", "as_value", "forms"),
    [
        ({"id": 7}, {"n": 1}, b'{"id": 7}', {"n": 1}, {"flow.key_as": "json"}),
        (1.5, Unencodable(), b"1.5", b"Odd(?)", {"flow.key_as": "json", "flow.value_as": "repr"}),
        (7, {"n": Unencodable()}, 7, b"{'n': Odd(?)}", {"flow.value_as": "repr"}),
        (b"\xff", b"\xff", b"\xff", b"\xff", {}),
    ],
)
def test_items_without_an_encoding_are_written_as_text(
    key: Any, value: Any, as_key: Any, as_value: Any, forms: dict[str, str]
) -> None:
    made = dead_letter("any", message(key, value))
    assert (made.key, made.value) == (as_key, as_value)
    assert {name: text for name, text in made.headers if name.endswith("_as")} == forms
    encoding = SINK.encoding
    (batch,) = encoding.encoded([[made]], "dead")
    assert batch.num_rows == 1


@pytest.mark.parametrize("millis", [0, -1_000])
def test_a_time_that_cannot_be_written_is_a_header(millis: int) -> None:
    time = datetime.fromtimestamp(millis / 1000, UTC)
    made = dead_letter("any", replace(message(None, b"v"), timestamp=time))
    assert made.timestamp is None
    assert ("flow.message_time", instant_text(time)) in list(made.headers)
    first = datetime.fromtimestamp(0.001, UTC)
    assert dead_letter("any", replace(message(None, b"v"), timestamp=first)).timestamp == first


def test_another_sink_is_refused() -> None:
    flow = Dataflow("f")
    items = op.input("in", flow, TestingSource([1]))
    with pytest.raises(FlowBuildError, match="step 'dead': sink must be a KafkaSink"):
        dead_letters("dead", items, sink=JsonLinesSink("x"))  # type: ignore[arg-type]
