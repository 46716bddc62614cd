"""The SQLite file of a flow's views: its place, its format, and connections to it.

The journal of the file is a write-ahead log: a reader sees the last committed transaction, whatever
is written meanwhile, and neither waits for the other.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from flow.connectors.sql.sqlite import SqliteDatabase
from flow.errors import FlowBuildError, FlowTypeError, SinkError, shorten
from flow.views.errors import UnknownViewError, ViewError
from flow.views.reading import View
from flow.views.tables import Ask, format_problem, is_empty, make_schema, read_state, view_names

VIEWS_FILE = "views.sqlite"
"""The name of the file of views in the directory of a checkpoint."""

_BUSY_SECONDS = 10.0
"""Time to wait for a lock, which a reader needs only while a writer opens or closes the file."""


@dataclass(frozen=True)
class Views:
    """The views of a flow, in one file; any thread may read.

    Attributes:
        path: the file.

    Example:
        >>> import tempfile, flow.operators as op
        >>> from flow import Dataflow
        >>> from flow.testing import TestDriver
        >>> from flow.views import ViewSink
        >>> flow = Dataflow("example")
        >>> visits = op.input("visits", flow, [])
        >>> op.output("last", visits, ViewSink())
        >>> driver = TestDriver(flow)
        >>> driver.send("visits", [("ann", 3), ("bob", 5), ("ann", 4)])
        >>> driver.view("last").get("ann").value
        4
    """

    path: str

    def names(self) -> tuple[str, ...]:
        """Return the names of the views, which are those of outputs, sorted.

        Raises:
            ViewError: when the file cannot be read.
        """
        with self._reading() as ask:
            return view_names(ask)

    def __getitem__(self, name: str) -> View:
        """Return the view of an output.

        Raises:
            UnknownViewError: when the file has no view of this name.
            ViewError: when the file cannot be read.
        """
        with self._reading() as ask:
            state = read_state(ask, name)
            if state is None:
                known = ", ".join(map(repr, view_names(ask))) or "none"
                raise UnknownViewError(
                    f"{self.path} has no view {shorten(name)}; its views are: {known}"
                )
        return View(name, state.by, self._reading)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Ask]:
        """Yield a function that asks a new connection, within one read transaction.

        Raises:
            ViewError: when the file is missing, damaged, or no file of views.
        """
        if not os.path.exists(self.path):
            raise ViewError(
                f"there is no file {self.path}: a flow with a ViewSink makes it when it starts"
            )
        try:
            uri = f"file:{quote(self.path)}?mode=ro"
            connection = sqlite3.connect(uri, timeout=_BUSY_SECONDS, isolation_level=None, uri=True)
            with contextlib.closing(connection):
                connection.execute("BEGIN")
                self._check(lambda *asked: connection.execute(*asked).fetchall())
                yield lambda *asked: connection.execute(*asked).fetchall()
        except sqlite3.Error as error:
            raise ViewError(f"{self.path} cannot be read: {reason_of(error)}") from error

    def _check(self, ask: Ask) -> None:
        if is_empty(ask):
            raise ViewError(f"{self.path} has no views yet: the flow has not started")
        problem = format_problem(ask)
        if problem is not None:
            raise ViewError(f"{self.path} is no file of views: {problem}")


_CACHE_KIB = 32 << 10
"""The most memory for pages of the file while a run writes it, in KiB."""


def open(path: str | os.PathLike[str]) -> Views:
    """Open the views of a flow for reading.

    Args:
        path: the directory of the flow's checkpoint, or the file of `ViewSink(path=...)`.

    Raises:
        ViewError: when there is no file of views, or it is damaged.
    """
    text = check_path("flow.views.open", path)
    views = Views(os.path.abspath(beside(text) if os.path.isdir(text) else text))
    views.names()
    return views


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


def beside(directory: str) -> str:
    """Return the file of views of a checkpoint."""
    return os.path.join(directory, VIEWS_FILE)


def opened_for_writing(file: str) -> SqliteDatabase:
    """Open or create a file of views; ``:memory:`` for a test.

    Raises:
        SinkError: when the file is of another program, or of another format.
        sqlite3.Error: when the file cannot be opened.
    """
    database = SqliteDatabase(file)
    try:
        database.ask(f"PRAGMA cache_size = -{_CACHE_KIB}")
        if is_empty(database.ask):
            # The journal cannot change within a transaction.
            database.ask("PRAGMA journal_mode = WAL")
        with database.transaction():
            if is_empty(database.ask):
                make_schema(database.ask)
        problem = format_problem(database.ask)
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
        "; the directory must exist, and be writable for writers and readers of views, as SQLite "
        "keeps a log beside the file"
    ),
}
"""The remedy of each kind of error, by SQLite's primary code."""
