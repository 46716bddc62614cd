"""Refusal of persisted data in an unknown format: one sentence for every kind."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import flow.operators as op
import flow.views
from flow import Dataflow
from flow.connectors.files.epoch_directory import EpochDirectory
from flow.connectors.files.file_list import FileSummary
from flow.connectors.kafka.topics import Entry
from flow.connectors.sql.sqlite import SqliteSink
from flow.engine.checkpoint.identity import Identity
from flow.engine.checkpoint.stored_log import entries_of, summary_of
from flow.engine.feed.offsets import EpochOffset
from flow.engine.plan.compiler import compile_flow
from flow.engine.progress.stream_progress import StepProgress
from flow.engine.state.segment import Segment
from flow.engine.state.step_state import Header, SegmentedTable
from flow.engine.state.store import MemoryStore
from flow.engine.tables import table_files
from flow.errors import CheckpointError, FlowError, SinkError, SourceError
from flow.keyed.state import DueLimit
from flow.testing import TestingSink, TestingSource
from flow.views.views_file import ViewError, opened_for_writing
from recovery.identity.admitting import admit
from recovery.reading.epoch_state import decode_segment
from recovery.tools.rewinding import _journal


def fingerprint() -> None:
    empty = Dataflow("empty")
    op.output("out", op.input("in", empty, TestingSource([])), TestingSink([]))
    plan = compile_flow(empty)
    kept = admit(None, plan, "ckpt", (), drop_removed=False).kept
    kept["fingerprint"]["format"] = 2
    admit(kept, plan, "ckpt", (), drop_removed=False)


def columnar_segment() -> None:
    store = MemoryStore()
    store.write_header("s", Header.empty().encode())
    store.write_segments("s", {0: b"\x02W"})
    table = SegmentedTable(store, "s", cast("Any", lambda: None))
    table.run(None, cast("Any", SimpleNamespace(end_of_input=True)), DueLimit(0))


def summary_of_files() -> None:
    content = FileSummary().encode()
    FileSummary.decode(content.replace(b'"version": 1', b'"version": 2'))


def output_directory() -> None:
    Path("out").mkdir()
    Path("out/_flow.json").write_text('{"format": 2}')
    EpochDirectory("out").open("run", "append")


def table_of_epochs() -> None:
    with closing(sqlite3.connect("rows.db")) as database:
        database.execute("CREATE TABLE _flow_epochs (sink text, run_id text, epoch bigint)")
    SqliteSink("rows.db", "rows", schema="n bigint").open("run", resuming=False)


def views_file() -> None:
    opened_for_writing("views").close()
    with closing(sqlite3.connect("views")) as database:
        database.execute("PRAGMA user_version = 2")


def read_views() -> None:
    views_file()
    flow.views.open("views")


def write_views() -> None:
    views_file()
    opened_for_writing("views")


IDENTITY = {"version": 2, "flow_id": "f"}
STORAGE = SimpleNamespace(read=lambda _: {"version": 2})
JOURNAL: Any = SimpleNamespace(CHANGE="change.json", root="ckpt", storage=STORAGE)
STATE = "the state of step 's'"
KINDS: dict[str, tuple[Callable[[], object], type[FlowError], str, str]] = {
    "identity": (
        lambda: Identity.from_json(IDENTITY, "ckpt"), CheckpointError, "ckpt/flow.json", "2"),
    "fingerprint": (fingerprint, CheckpointError, "ckpt: the flow's fingerprint", "2"),
    "journal": (lambda: _journal(JOURNAL), CheckpointError, "ckpt/change.json", "2"),
    "offset": (
        lambda: EpochOffset.from_json({"v": 2}), CheckpointError, "the offset of an epoch", "2"),
    "header": (lambda: Header.decode(b"\x02", "s"), CheckpointError, STATE, "2"),
    "empty header": (lambda: Header.decode(b"", "s"), CheckpointError, STATE, "none"),
    "progress": (lambda: StepProgress.decode(b"\x02[]", "s"), CheckpointError, STATE, "2"),
    "segment": (lambda: Segment.decode(b"\x02K", "s"), CheckpointError, STATE, "2"),
    "empty segment": (lambda: Segment.decode(b"", "s"), CheckpointError, STATE, "none"),
    "columnar segment": (columnar_segment, CheckpointError, STATE, "2"),
    "segment in tools": (
        lambda: decode_segment(b"\x02W", 1, 0, "s"), CheckpointError,
        f"{STATE}: segment 0 of shard 1", "2"),
    "page of a log": (
        lambda: entries_of("0.page.json", {"version": 2, "entries": []}), CheckpointError,
        "0.page.json", "2"),
    "summary of a log": (
        lambda: summary_of("1.summary", b"flow summary 2 0 0\n"), CheckpointError,
        "1.summary", "2"),
    "summary of files": (
        summary_of_files, SourceError, "the summary of the files that were read", "2"),
    "file of a table": (
        lambda: table_files.decode("4.whole", b"flow table 2 0 0\n"), CheckpointError,
        "4.whole", "2"),
}  # fmt: skip
SINKS: dict[str, tuple[Callable[[], object], type[FlowError], str, str]] = {
    "output directory": (
        output_directory, SinkError, "out/_flow.json has format 2", "directory"),
    "entry in a topic": (
        lambda: Entry.decoded(b'{"version": 2}'), SinkError,
        "the last epoch of an output has format 2", "topic"),
    "table of epochs": (
        table_of_epochs, SinkError,
        "_flow_epochs has format of the columns epoch, run_id, sink", "table of epochs"),
    "views, read": (read_views, ViewError, "views is no file of views: it has format 2", "file"),
    "views, written": (write_views, SinkError, "it is no file of views: it has format 2", "file"),
}  # fmt: skip


@pytest.mark.parametrize(("read", "error", "what", "found"), KINDS.values(), ids=KINDS)
def test_a_checkpoint_of_an_unknown_format_is_refused(
    read: Callable[[], object], error: type[FlowError], what: str, found: str
) -> None:
    with pytest.raises(error) as caught:
        read()
    assert str(caught.value) == (
        f"{what} has format {found}, and this version reads format 1: run the version that wrote "
        "it, or start anew on another checkpoint"
    )


@pytest.mark.parametrize(("read", "error", "what", "place"), SINKS.values(), ids=SINKS)
def test_output_of_an_unknown_format_is_refused(
    read: Callable[[], object],
    error: type[FlowError],
    what: str,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as caught:
        read()
    assert (
        f"{what}, and this version reads format 1: run the version that wrote it, or start anew on "
        f"another {place}"
    ) in str(caught.value)


def test_a_segment_of_another_kind_is_refused() -> None:
    with pytest.raises(CheckpointError, match="the state of step 's' is no segment of whole keys"):
        Segment.decode(b"\x01W", "s")
