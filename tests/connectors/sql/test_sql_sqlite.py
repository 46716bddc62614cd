"""Features of SQLite alone: a database in a file, with one lock for all of it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flow.connectors.sql import SqliteSink
from flow.errors import FlowBuildError, FlowTypeError, SinkError
from tests.support.databases import Sqlite, ns, opened, rows_after, run_epochs
from tests.support.writing import RUN, publish


@pytest.fixture
def db(tmp_path: Path) -> Sqlite:
    return Sqlite(tmp_path / "out.db")


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sink = SqliteSink("out.db", "t", schema="n INTEGER")
    monkeypatch.chdir("/")
    with opened(sink):
        publish(sink, 0, ns(1))
    assert Sqlite(tmp_path / "out.db").rows() == [(1,)]


def test_a_path_that_cannot_be_opened_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=r"table 't' of /.*/missing/out\.db cannot be opened: "):
        SqliteSink(tmp_path / "missing" / "out.db", "t").open(RUN, False)


def test_a_file_that_is_no_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("mine" * 1000)
    with pytest.raises(SinkError, match=r"notes\.md cannot be opened: file is not a database"):
        SqliteSink(tmp_path / "notes.md", "t", schema="n INTEGER").open(RUN, False)


def test_table_names_ignore_case(db: Sqlite) -> None:
    run_epochs(db.sink("hours", schema="n INTEGER"), [], ns(1))
    run_epochs(db.sink("Hours"), ns(1), first=1)
    assert db.rows("hours") == [(1,)]


def test_a_lock_of_another_program_is_waited_for(db: Sqlite) -> None:
    sink = db.sink(schema="n INTEGER")
    connection = sqlite3.connect(db.path, isolation_level=None, check_same_thread=False)
    with opened(sink), contextlib.closing(connection) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO t VALUES (1)")
        commit = threading.Timer(0.5, other.execute, ["COMMIT"])
        commit.start()
        publish(sink, 0, ns(2))
        commit.join()
    assert db.rows() == [(1,), (2,)]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_removed_or_replaced_during_a_run_is_an_error(replaced: bool, db: Sqlite) -> None:
    sink = db.sink(schema="n INTEGER")
    with opened(sink):
        publish(sink, 0, ns(1))
        db.path.rename(db.path.with_suffix(".old"))
        if replaced:
            shutil.copy(db.path.with_suffix(".old"), db.path)
        with pytest.raises(SinkError, match=r"out\.db was removed or replaced while the flow ran"):
            publish(sink, 1, ns(2))
    assert db.path.exists() == replaced


def test_a_committed_epoch_is_on_the_disk(db: Sqlite) -> None:
    with contextlib.closing(db.sink().connect()) as database:
        full = 2
        assert database.execute("PRAGMA synchronous") == [(full,)]


def test_a_table_made_from_types_is_strict(db: Sqlite) -> None:
    """Else text in a column of numbers would be kept as text, and found much later."""
    with pytest.raises(SinkError, match="cannot store TEXT value in INTEGER column"):
        rows_after(db, [{"n": 1}, {"n": "many"}], schema={"n": pa.int64()})
    assert db.rows() == []


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_database_in_memory_is_an_error(path: str) -> None:
    with pytest.raises(FlowBuildError, match="in memory would be gone when the run ends"):
        SqliteSink(path, "t")


@pytest.mark.parametrize(("path", "table"), [(7, "t"), ("out.db", ""), ("out.db", ("a", "b"))])
def test_arguments_of_the_wrong_type_are_errors(path: Any, table: Any) -> None:
    with pytest.raises(FlowTypeError):
        SqliteSink(path, table)
