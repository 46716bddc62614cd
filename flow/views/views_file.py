"""The SQLite file of a flow's views: its place, its tables, and their states.

The journal of the file is a write-ahead log: a reader sees the last committed transaction, whatever
is written meanwhile, and neither waits for the other.

One file holds the views of a flow's outputs::

    views      number  name    flow_id  by      run_id  epoch  rewinds  undo_to  writer
               1       hourly  flights  window  1a2b…   41     0        0        9f8e…
    entries_1  key  slot  window_id  open_us  close_us  value  epoch
    undo_1     at_epoch  key  slot  window_id  open_us  close_us  value  epoch

`epoch` of a view is its last committed epoch. `entries_<n>` has the newest value of each key or
window as JSON, with the epoch that wrote the value. `undo_<n>` has the entries that an epoch
replaced, as they were before; a null value stands for an entry that did not exist. So the view can
be set back to each epoch from `undo_to` on. `writer` identifies the sink that may write the view.

The cost of an epoch follows the entries that it changes. Times are int64 µs since the Unix epoch.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

from flow.connectors.sql.database import Row
from flow.connectors.sql.sqlite import SqliteDatabase
from flow.errors import FlowBuildError, FlowError, FlowTypeError, SinkError, shorten
from flow.format_version import VERSION, unknown_format
from flow.views.view_rows import By

APPLICATION_ID = 0x666C7776
"""The mark of a file of views in the header of an SQLite file: ``flwv``."""

COLUMNS = "key, slot, window_id, open_us, close_us, value, epoch"
"""The columns of a table of entries, for statements."""

Ask: TypeAlias = Callable[..., list[Row]]
"""A function that runs a statement with its parameters, and returns its rows."""


class ViewError(FlowError, RuntimeError):
    """A file of views that cannot be read."""


class DamagedEntryError(sqlite3.DatabaseError):
    """An entry that SQLite can read, and that no run has written."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


@dataclass(frozen=True)
class ViewState:
    """The row of a view in the table of views; the module describes the fields."""

    number: int
    name: str
    flow_id: str
    by: By
    run_id: str | None = None
    epoch: int | None = None
    rewinds: int = 0
    undo_to: int | None = None
    writer: str = ""

    @property
    def entries(self) -> str:
        """The name of the table of entries."""
        return f"entries_{self.number}"

    @property
    def undo(self) -> str:
        """The name of the table of replaced entries."""
        return f"undo_{self.number}"


_FIELDS = ", ".join(ViewState.__dataclass_fields__)


def make_schema(ask: Ask) -> None:
    """Create the table of views in an empty database."""
    ask(
        "CREATE TABLE views (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, "
        "flow_id TEXT NOT NULL, by TEXT NOT NULL, run_id TEXT, epoch INTEGER, "
        "rewinds INTEGER NOT NULL, undo_to INTEGER, writer TEXT NOT NULL)"
    )
    ask(f"PRAGMA application_id = {APPLICATION_ID}")
    ask(f"PRAGMA user_version = {VERSION}")


def format_problem(ask: Ask) -> str | None:
    """Return the reason why a database is no file of views; ``None`` if it is one.

    An empty database is none either.
    """
    ((mark,),) = ask("PRAGMA application_id")
    ((version,),) = ask("PRAGMA user_version")
    if mark != APPLICATION_ID:
        return "it is the database of another program"
    return None if version == VERSION else unknown_format("it", version, "file")


def is_empty(ask: Ask) -> bool:
    """Return True if a database has no tables."""
    return not ask("SELECT 1 FROM sqlite_master LIMIT 1")


def add_view(ask: Ask, name: str, flow_id: str, by: By) -> ViewState:
    """Add a view, with its tables."""
    ((number,),) = ask("SELECT coalesce(max(number), 0) + 1 FROM views")
    state = ViewState(number, name, flow_id, by)
    values = "window_id INTEGER, open_us INTEGER, close_us INTEGER"
    ask(
        f"CREATE TABLE {state.entries} (key TEXT NOT NULL, slot INTEGER NOT NULL, {values}, "
        "value TEXT NOT NULL, epoch INTEGER NOT NULL, PRIMARY KEY (key, slot)) WITHOUT ROWID"
    )
    ask(
        f"CREATE TABLE {state.undo} (at_epoch INTEGER NOT NULL, key TEXT NOT NULL, "
        f"slot INTEGER NOT NULL, {values}, value TEXT, epoch INTEGER, "
        "PRIMARY KEY (at_epoch, key, slot)) WITHOUT ROWID"
    )
    if by == "window":
        ask(f"CREATE INDEX times_{number} ON {state.entries} (open_us, key, slot)")
        ask(f"CREATE INDEX windows_{number} ON {state.entries} (key, open_us, slot)")
    places = ", ".join("?" for _ in ViewState.__dataclass_fields__)
    ask(f"INSERT INTO views ({_FIELDS}) VALUES ({places})", tuple(vars(state).values()))
    return state


def read_state(ask: Ask, name: str) -> ViewState | None:
    """Return the state of a view; ``None`` if the file does not have the view."""
    found = ask(f"SELECT {_FIELDS} FROM views WHERE name = ?", (name,))
    return ViewState(*found[0]) if found else None


def write_state(ask: Ask, state: ViewState) -> None:
    """Replace the state of a view."""
    ask(
        "UPDATE views SET run_id = ?, epoch = ?, rewinds = ?, undo_to = ?, writer = ? "
        "WHERE number = ?",
        (state.run_id, state.epoch, state.rewinds, state.undo_to, state.writer, state.number),
    )


def view_names(ask: Ask) -> tuple[str, ...]:
    """Return the names of the views of a file, sorted."""
    return tuple(name for (name,) in ask("SELECT name FROM views ORDER BY name"))


VIEWS_FILE = "views.sqlite"
"""The name of the file of views in the directory of a checkpoint."""

_BUSY_SECONDS = 10.0
"""Time to wait for a lock, which a reader needs only while a writer opens or closes the file."""


_CACHE_KIB = 32 << 10
"""The most memory for pages of the file while a run writes it, in KiB."""

_LOG_BYTES = 4 << 20
"""The size of the write-ahead log after a reader has gone that held it back, in bytes."""


def check_path(what: str, path: object) -> str:
    """Return a local path as text.

    Raises:
        FlowBuildError: when it is no local path.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise FlowTypeError(f"{what}: path must be text or a pathlib.Path, got {shorten(path)}")
    if text in ("", ":memory:") or "\0" in text or "://" in text:
        raise FlowBuildError(f"{what}: path must be a path on a local disk, got {text!r}")
    return text


def file_of(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a file of views, given itself or the directory of a checkpoint.

    Raises:
        FlowBuildError: when it is no local path.
    """
    text = check_path("flow.views.open", path)
    return os.path.abspath(beside(text) if os.path.isdir(text) else text)


def beside(directory: str) -> str:
    """Return the file of views of a checkpoint."""
    return os.path.join(directory, VIEWS_FILE)


@contextlib.contextmanager
def asking(file: str) -> Iterator[Ask]:
    """Yield a function that asks a new connection, within one read transaction.

    A reader makes no files: if no log is beside the file, no run has the file open, and the file
    alone is read. The logs of another user would stop the next run.

    Raises:
        ViewError: when the file is missing, damaged, or no file of views, or when a run that has
            started meanwhile has changed it.
    """
    if not os.path.exists(file):
        raise ViewError(f"there is no file {file}: a flow with a ViewSink makes it when it starts")
    try:
        before, is_idle = _state_of(file), not os.path.exists(f"{file}-wal")
        uri = f"file:{quote(file)}?mode=ro{'&immutable=1' if is_idle else ''}"
        connection = sqlite3.connect(uri, timeout=_BUSY_SECONDS, isolation_level=None, uri=True)

        def ask(*asked: Any) -> list[Row]:
            return connection.execute(*asked).fetchall()

        with contextlib.closing(connection):
            ask("BEGIN")
            if is_empty(ask):
                raise ViewError(f"{file} has no views yet: the flow has not started")
            problem = format_problem(ask)
            if problem is not None:
                raise ViewError(f"{file} is no file of views: {problem}")
            yield ask
        if is_idle and _state_of(file) != before:
            raise ViewError(f"{file} was changed by a run that started as it was read: read again")
    except (sqlite3.Error, OSError) as error:
        raise ViewError(f"{file} cannot be read: {reason_of(error)}") from error


def _state_of(file: str) -> tuple[int, ...]:
    """Return numbers that differ after a change of a file."""
    found = os.stat(file)
    return found.st_ino, found.st_size, found.st_mtime_ns


def opened_for_writing(file: str) -> SqliteDatabase:
    """Open or create a file of views; ``:memory:`` for a test.

    Raises:
        SinkError: when the file is of another program, or of another format.
        sqlite3.Error: when the file cannot be opened.
    """
    database = SqliteDatabase(file)
    try:
        database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        database.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        if is_empty(database.execute):
            # The journal cannot change within a transaction.
            database.execute("PRAGMA journal_mode = WAL")
        with database.transaction():
            if is_empty(database.execute):
                make_schema(database.execute)
        problem = format_problem(database.execute)
        if problem is not None:
            raise SinkError(f"it is no file of views: {problem}. Give ViewSink another path")
    except BaseException:
        database.close()
        raise
    return database


def reason_of(error: Exception) -> str:
    """Return the problem of a failed statement, with the remedy."""
    code = getattr(error, "sqlite_errorcode", None)
    remedy = "" if code is None else _REMEDIES.get(code & 0xFF, "")
    return f"{error}{remedy}"


_REMEDIES = {
    sqlite3.SQLITE_FULL: "; make room there and run the flow again",
    sqlite3.SQLITE_NOTADB: "; move the file aside, or give another path",
    sqlite3.SQLITE_CORRUPT: (
        "; put the file back from a copy, or move it aside: the flow then makes a new one, which "
        "has the keys of later epochs only"
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "; the directory must exist, and be writable for the run, as SQLite keeps a log beside the "
        "file"
    ),
    sqlite3.SQLITE_READONLY: (
        "; the user of the run must be able to write to the file, and to those beside it that end "
        "in -wal and -shm: give them to that user"
    ),
}
"""The remedy of each kind of error, by SQLite's primary code."""
