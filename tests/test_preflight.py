"""The checks of a flow's borders before Spark starts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSource, ParquetSink, TextSink
from flow.connectors.sink import Sink
from flow.connectors.source import Source
from flow.connectors.sql import SqliteSink
from flow.connectors.then import Then
from flow.errors import CheckpointError, FlowBuildError, FlowError, SinkError, SourceError
from flow.testing import TestingSink, TestingSource
from recovery import RecoveryConfig


class SparkStarted(Exception):
    """The end of a run at the start of its session."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a file of records, without Spark."""

    def start(*_: Any) -> None:
        raise SparkStarted

    monkeypatch.setattr("flow.execution.session_for", start)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text('{"a": 1}\n')
    return tmp_path


def a_flow(source: Source[Any], *sinks: Sink[Any], flow_id: str = "f") -> Dataflow:
    flow = Dataflow(flow_id)
    stream = op.input("in", flow, source)
    for number, sink in enumerate(sinks):
        op.output(f"out{number}", stream, sink)
    return flow


NOTHING = JsonLinesSource("nothing/*.jsonl")
RECORDS = JsonLinesSource("in.jsonl")
FAULTS: dict[str, tuple[Callable[[], Dataflow], type[FlowError], str]] = {
    "no folder": (
        lambda: a_flow(NOTHING, TestingSink([])),
        SourceError,
        "step 'in': no file matches 'nothing/[*].jsonl'",
    ),
    "no file": (
        lambda: a_flow(JsonLinesSource(["in.jsonl", "*.json"]), TestingSink([])),
        SourceError,
        "step 'in': no file matches '[*].json'",
    ),
    "no folder to follow": (
        lambda: a_flow(JsonLinesSource("nothing/", follow=True), TestingSink([])),
        SourceError,
        "step 'in': no file matches 'nothing/'",
    ),
    "no history": (
        lambda: a_flow(Then(NOTHING, TestingSource([])), TestingSink([])),
        SourceError,
        "step 'in': no file matches 'nothing/[*].jsonl'",
    ),
    "a file as a folder": (
        lambda: a_flow(RECORDS, ParquetSink("in.jsonl")),
        SinkError,
        "step 'out0': .*in.jsonl is a file: path must name a directory",
    ),
    "a folder in a file": (
        lambda: a_flow(RECORDS, TextSink("in.jsonl/out")),
        SinkError,
        "step 'out0': in.jsonl/out cannot be opened for writing",
    ),
    "files of others": (
        lambda: a_flow(RECORDS, TextSink(".")),
        SinkError,
        "step 'out0': .* holds 'in.jsonl', which no flow wrote",
    ),
    "a database without a folder": (
        lambda: a_flow(RECORDS, SqliteSink("nothing/x.db", "t")),
        SinkError,
        "step 'out0': table 't' of nothing/x.db cannot be opened",
    ),
    "a database without the table": (
        lambda: a_flow(RECORDS, SqliteSink("x.db", "t")),
        SinkError,
        "step 'out0': table 't' of x.db does not exist: create it, or give the sink a schema",
    ),
    "one folder for two outputs": (
        lambda: a_flow(RECORDS, TextSink("out"), ParquetSink("./out")),
        FlowBuildError,
        "steps 'out0' and 'out1' both write to",
    ),
}


@pytest.mark.parametrize(("flow", "error", "message"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found_before_spark_starts(
    flow: Callable[[], Dataflow], error: type[FlowError], message: str
) -> None:
    before = sorted(Path.cwd().iterdir())
    with pytest.raises(error, match=message):
        run(flow())
    assert sorted(Path.cwd().iterdir()) == before


def test_a_folder_that_is_not_writable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)  # Root may write everywhere.
    with pytest.raises(SinkError, match=r"out cannot be opened .* this user may not write"):
        run(a_flow(RECORDS, TextSink("out")))


def test_a_batch_without_an_end_is_refused() -> None:
    with pytest.raises(FlowBuildError, match=r"step 'in': .* has no end, and a batch needs one"):
        run(a_flow(JsonLinesSource(".", follow=True), TestingSink([])), engine="batch")


def test_a_checkpoint_of_another_flow_is_refused(folder: Path) -> None:
    content = {
        **{"version": 1, "flow_id": "g", "run_id": "r", "shards": 4, "partitions": 2},
        **{"generation": 0, "first_epoch": 0, "start": None, "begun": None, "recovery": None},
        **{"dropping": [], "rewinds": 0, "earlier": [], "undone": [], "spark_version": "4.3.0"},
        **{"adapter": "transformWithState", "state_format": 2},
    }
    (folder / "cp").mkdir()
    (folder / "cp" / "flow.json").write_text(json.dumps(content))
    flow = a_flow(NOTHING, TestingSink([]))
    with pytest.raises(CheckpointError, match="cp is the checkpoint of flow 'g', not of 'f'"):
        run(flow, recovery=RecoveryConfig("cp"))
    with pytest.raises(SparkStarted):  # A run that continues may find its files removed.
        run(a_flow(NOTHING, TestingSink([]), flow_id="g"), recovery=RecoveryConfig("cp"))


def test_checks_change_nothing_that_others_made(folder: Path) -> None:
    (folder / "out").mkdir()
    sqlite3.connect("x.db").execute("CREATE TABLE t (a INTEGER)").connection.close()
    before = (folder / "x.db").read_bytes()
    for _ in range(2):
        with pytest.raises(SparkStarted):
            run(a_flow(RECORDS, TextSink("out"), SqliteSink("x.db", "t")))
    assert (folder / "x.db").read_bytes() == before
    assert not list((folder / "out").iterdir())
