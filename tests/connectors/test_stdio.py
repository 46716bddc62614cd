"""Standard output: text is made in the workers, and printed where the flow was started."""

from __future__ import annotations

import io
import os
import pickle
import sys
from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
from flow import Dataflow
from flow.connectors.sink import Guarantee, WriteContext
from flow.connectors.stdio import StdOutSink
from flow.errors import FlowTypeError, SinkError
from flow.testing import TestDriver, TestingSink, TestingSource


def write(sink: StdOutSink[Any], *batches: Any) -> Any:
    message = sink.write(WriteContext("out", 0, 0, "run"), iter(batches))
    return pickle.loads(pickle.dumps(message))


def test_items_are_printed_when_the_epoch_is_committed(capsys: pytest.CaptureFixture[str]) -> None:
    sink: StdOutSink[Any] = StdOutSink()
    messages = [write(sink, ["a", 1], [None]), write(sink, [("k", 2.5)])]
    assert capsys.readouterr().out == ""
    sink.commit(0, messages)
    assert capsys.readouterr().out == "a\n1\nNone\n('k', 2.5)\n"


def test_records_are_printed_as_dicts_or_by_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    batch = pa.record_batch({"n": [1, 2], "t": ["x", None]})
    for sink in (StdOutSink[Any](), StdOutSink[Any](format=lambda row: row["n"] * 10)):
        sink.commit(0, [write(sink, batch, [{"n": 3}])])
    assert capsys.readouterr().out.splitlines() == [
        *("{'n': 1, 't': 'x'}", "{'n': 2, 't': None}", "{'n': 3}"),
        *("10", "20", "30"),
    ]


def test_an_epoch_without_items_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    sink: StdOutSink[Any] = StdOutSink()
    sink.commit(0, [])
    sink.commit(1, [write(sink)])
    assert capsys.readouterr().out == ""


def test_a_function_that_raises_is_an_error_that_names_the_step_and_the_item() -> None:
    sink: StdOutSink[Any] = StdOutSink(format=lambda item: item["x"])
    with pytest.raises(
        SinkError, match=r"step 'out': format raised KeyError: 'x'\n.*\{'y': 1\}"
    ) as it:
        write(sink, [{"y": 1}])
    assert isinstance(it.value.__cause__, KeyError)


def test_a_replayed_epoch_is_printed_again() -> None:
    assert StdOutSink().guarantee is Guarantee.AT_LEAST_ONCE


def test_characters_that_standard_output_lacks_are_escaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(content, "ascii"))
    sink: StdOutSink[Any] = StdOutSink()
    sink.commit(0, [write(sink, ["\xe9t\xe9", "half \udce9", "plain"])])
    assert content.getvalue() == b"\\xe9t\\xe9\nhalf \\udce9\nplain\n"
    flow = Dataflow("shown")
    shown = op.inspect("see", op.input("in", flow, TestingSource([])))
    op.output("out", shown, TestingSink([]))
    with TestDriver(flow) as driver:
        driver.send("in", ["\xe9"])
    assert content.getvalue().endswith(b"see: '\\xe9'\n")


def test_a_reader_of_standard_output_that_has_ended_is_one_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        sink: StdOutSink[Any] = StdOutSink()
        with pytest.raises(SinkError, match="the program that reads standard output has ended"):
            sink.commit(0, [write(sink, ["a"])])


def test_format_must_be_a_function() -> None:
    with pytest.raises(FlowTypeError, match=r"format must be a function, got str '\{\}'"):
        StdOutSink(format="{}")  # type: ignore[arg-type]
