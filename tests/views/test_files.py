"""Files of views: damaged, foreign, shared, removed, and read while a run writes."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from flow.connectors.sink import CheckpointContext, OutputContext, WriteContext
from flow.errors import SinkError
from flow.views import Page, ViewError, ViewSink, open
from flow.views.views_file import asking, reason_of
from tests.support.views import ViewRuns, hour


@pytest.fixture
def runs(tmp_path: Path) -> ViewRuns:
    return ViewRuns(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "views.sqlite"


def foreign(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE customers (name TEXT)")
    database.close()


def newer(file: Path) -> None:
    ViewRuns(file.parent).epoch([("ann", 1)])
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("PRAGMA user_version = 2")
    database.close()


def no_database(file: Path) -> None:
    file.write_bytes(b"no database, and long enough to be read as one" * 100)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (foreign, "is no file of views: it is the database of another program"),
        (newer, "is no file of views: it has format 2, and this version reads format 1"),
        (no_database, "file is not a database; move the file aside"),
    ],
)
def test_a_file_of_something_else_is_refused_and_stays(
    make: object, problem: str, runs: ViewRuns, file: Path
) -> None:
    assert callable(make)
    make(file)
    before = file.read_bytes()
    with pytest.raises(ViewError, match=problem):
        open(file)
    with pytest.raises(SinkError, match=rf"step 'totals': .*views\.sqlite.*{problem}"):
        runs.start()
    assert file.read_bytes() == before


def test_a_damaged_file_is_an_error_with_the_remedy(runs: ViewRuns, file: Path) -> None:
    runs.epoch([(f"key {n}", "x" * 500) for n in range(200)])
    runs.stop()
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    file.write_bytes(content)
    with pytest.raises(ViewError, match="put the file back from a copy, or move it aside"):
        open(file)["totals"].range()
    with pytest.raises(SinkError, match=r"step 'totals': .*put the file back from a copy"):
        runs.epoch([("key 5", 1)])


@pytest.mark.parametrize(
    ("column", "value"),
    [("value", "{"), ("value", b"\xff"), ("value", "[" * 99_999), ("open_us", "noon")],
)
def test_a_damaged_entry_is_an_error_that_names_file_and_key(
    column: str, value: object, runs: ViewRuns, file: Path
) -> None:
    runs.options = {"by": "window"}
    runs.epoch([("ann", (hour(1), 1))])
    runs.stop()
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(f"UPDATE entries_1 SET {column} = ?", (value,))
    with pytest.raises(
        ViewError, match=r"views\.sqlite cannot be read: .* key 'ann'.*put the file"
    ):
        open(file)["totals"].range()


def names_beside(file: Path) -> list[str]:
    return sorted(path.name for path in file.parent.glob(f"{file.name}*"))


def test_a_reader_makes_no_files_and_notes_a_run_that_changes_the_file_meanwhile(
    runs: ViewRuns, file: Path
) -> None:
    runs.epoch([("ann", 1)])
    assert runs.view.get("ann").value == 1
    assert names_beside(file) == [f"views.sqlite{end}" for end in ("", "-shm", "-wal")]
    runs.stop()
    view = open(file)["totals"]
    assert (view.get("ann").value, names_beside(file)) == (1, ["views.sqlite"])

    def read_as_a_run_starts() -> None:
        with asking(str(file)):
            runs.epoch([("ann", 2)])
            runs.stop()

    with pytest.raises(ViewError, match="was changed by a run that started as it was read"):
        read_as_a_run_starts()
    assert view.get("ann").value == 2


def test_files_that_another_user_left_are_an_error_with_the_remedy() -> None:
    error = sqlite3.OperationalError("attempt to write a readonly database")
    error.sqlite_errorcode = sqlite3.SQLITE_READONLY
    assert reason_of(error).endswith("that end in -wal and -shm: give them to that user")


def test_the_log_shrinks_once_a_reader_with_an_open_transaction_has_gone(
    runs: ViewRuns, file: Path
) -> None:
    log = file.with_name("views.sqlite-wal")
    runs.epoch([("ann", "")])
    with closing(sqlite3.connect(file)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM views").fetchall()
        for number in range(12):
            runs.epoch([(f"key {n}", f"{number}" * 5_000) for n in range(200)])
        assert log.stat().st_size > 10 << 20
    for _ in range(2):
        runs.epoch([("ann", "")])
    assert log.stat().st_size <= 4 << 20


def test_a_file_that_no_run_has_opened_has_no_views(file: Path) -> None:
    file.touch()
    with pytest.raises(ViewError, match="has no views yet"):
        open(file)


def test_a_file_that_is_removed_while_the_flow_runs_is_an_error(runs: ViewRuns, file: Path) -> None:
    runs.epoch([("ann", 1)])
    file.unlink()
    with pytest.raises(SinkError, match="was removed or replaced while the flow ran"):
        runs.epoch([("ann", 2)])


def test_a_view_of_another_flow_or_kind_is_refused(runs: ViewRuns, tmp_path: Path) -> None:
    runs.epoch([("ann", 1)])
    runs.options = {"by": "window"}
    with pytest.raises(SinkError, match="has an entry for each key, and the sink has by='window'"):
        runs.start()
    sink = ViewSink(path=tmp_path / "views.sqlite")
    sink.attach(OutputContext("another", "totals"))
    with pytest.raises(SinkError, match="belongs to flow 'flow', not to 'another'"):
        sink.open("run", False)
    sink.close()
    assert runs.view.get("ann").value == 1


def test_several_outputs_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "shared.sqlite"
    for name, keys in (("one", "ab"), ("two", "bc")):
        sink = ViewSink(path=path)
        sink.attach(OutputContext("flow", name))
        sink.open("run", False)
        rows = sink.write(WriteContext(name, 0, 0, "run"), iter([[(key, name) for key in keys]]))
        sink.commit(0, [rows])
        sink.close()
    views = open(path)
    assert views.names() == ("one", "two")
    assert [entry.value for entry in views["one"].range().entries] == ["one", "one"]
    assert [entry.key for entry in views["two"].range().entries] == ["b", "c"]


def test_a_sink_of_two_outputs_is_refused() -> None:
    sink = ViewSink()
    sink.attach(OutputContext("flow", "one"))
    with pytest.raises(SinkError, match="is the sink of several outputs"):
        sink.attach(OutputContext("flow", "two"))


def test_a_sink_within_another_that_keeps_the_output_to_itself_is_an_error() -> None:
    with pytest.raises(SinkError, match=r"a sink that wraps it must pass on attach"):
        ViewSink().open("run", False)


@pytest.mark.parametrize(
    ("checkpoint", "problem"),
    [
        (None, "a view is beside the checkpoint, and this run has none"),
        (
            CheckpointContext("s3a://bucket/flow", None),
            "SQLite needs a local disk, and s3a://bucket/flow is on another file system",
        ),
    ],
)
def test_a_run_without_a_local_checkpoint_needs_a_path(
    checkpoint: CheckpointContext | None, problem: str, tmp_path: Path
) -> None:
    sink = ViewSink()
    sink.attach(OutputContext("flow", "totals", checkpoint))
    with pytest.raises(SinkError, match=rf"step 'totals': .*{problem}.*ViewSink\(path="):
        sink.open("run", False)
    sink.close()
    with_path = ViewSink(path=tmp_path / "views.sqlite")
    with_path.attach(OutputContext("flow", "totals", checkpoint))
    with_path.open("run", False)
    with_path.close()


def test_a_missing_folder_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    sink = ViewSink(path=tmp_path / "missing" / "views.sqlite")
    sink.attach(OutputContext("flow", "totals"))
    with pytest.raises(SinkError, match="the directory must exist, and be writable"):
        sink.open("run", False)
    sink.close()


def test_readers_see_whole_epochs_while_a_run_writes(runs: ViewRuns) -> None:
    """Every key of an epoch has the epoch's number as its value."""
    keys = [f"key {n}" for n in range(100)]
    runs.epoch([(key, 0) for key in keys])
    view, done = runs.view, threading.Event()

    def read() -> list[Page]:
        pages: list[Page] = []
        while not done.is_set():
            pages.append(view.range(limit=None))
        return pages

    with ThreadPoolExecutor(2) as readers:
        reading = [readers.submit(read) for _ in range(2)]
        for number in range(1, 20):
            runs.epoch([(key, number) for key in keys])
        done.set()
    pages = [page for one in reading for page in one.result()]
    assert all({entry.value for entry in page.entries} == {page.epoch} for page in pages)
    assert len({page.epoch for page in pages}) > 3
