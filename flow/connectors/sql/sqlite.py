"""Sink of SQLite, a file on the driver's machine."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pyarrow import types
from typing_extensions import override

from flow.columns.arrow_types import is_instant
from flow.connectors.source import Dataset
from flow.connectors.sql.database import (
    EPOCHS_TABLE,
    Database,
    Dialect,
    Row,
    TableName,
    by_type,
    quoted_table,
    to_utc,
)
from flow.connectors.sql.table_sink import TableSink, check_table_name
from flow.errors import FlowBuildError, FlowTypeError, SinkError, shorten

BUSY_SECONDS = 60.0
"""Time to wait while another process writes to the same file."""


def _instant(value: datetime) -> str:
    text = to_utc(value).isoformat(timespec="microseconds")
    return text.removesuffix("+00:00") + "Z"


_DIALECT = Dialect(
    convert=by_type({bool: int, datetime: _instant, timedelta: timedelta.total_seconds}),
    placeholder=lambda number: "?",  # noqa: ARG005
    column_types={
        "INTEGER": (types.is_boolean, types.is_integer),
        "REAL": (types.is_floating, types.is_duration),
        "BLOB": (types.is_binary, types.is_large_binary, types.is_fixed_size_binary),
        "TEXT": (
            *(types.is_string, types.is_large_string, types.is_decimal, types.is_nested),
            *(types.is_date, types.is_time, is_instant),
        ),
    },
    # STRICT refuses text in a column of numbers; versions before 3.37 store any value.
    table_options="STRICT" if sqlite3.sqlite_version_info >= (3, 37) else "",
)


@dataclass(frozen=True, repr=False)
class SqliteSink(TableSink):
    """Sink that writes records to a table of an SQLite database, exactly once.

    `flow.connectors.sink.to_record` makes a row of an item: the fields of a mapping or a dataclass;
    for a result of a window ``key``, ``window_id``, ``open_time``, ``close_time``, ``merged_ids``,
    ``is_retraction`` and each result by its name, or ``value``. A column that a row lacks gets the
    table's default, or keeps its value in a row with the same key; a field that is no column is an
    error. To choose columns, map the records of `flow.operators.records`, as in the example.

    The rows of an epoch and its number are written in one transaction on the driver. So a reader
    sees an epoch as a whole or not at all, and a replayed epoch is not written twice. The table
    ``_flow_epochs`` in the same file holds the numbers and must stay there. Another run, with a
    checkpoint of its own, may add rows to the same table. The rows of an epoch are in the memory of
    the driver, so the sink is for results, not for a large input in one epoch.

    Datetimes become text in UTC with microseconds, such as ``2013-01-01T05:00:00.000000Z``, which
    sorts by time. Dates become ISO 8601 text, decimals text, durations seconds, booleans 0 and 1,
    and dicts, lists and similar values JSON.

    Args:
        path: file of the database; created if missing.
        table: name of the table.
        mode: ``"insert"`` adds a row for each item; ``"upsert"`` replaces the row with the same
            key, if there is one. Use ``"upsert"`` for results with ``emit="update"``, and `Delete`
            items to remove rows.
        key: columns of the key with ``mode="upsert"``; they must be the table's primary key or
            have a unique index.
        schema: columns with which a missing table is created: a `pyarrow.Schema`, a mapping of
            names to pyarrow types, or SQL text such as ``"key TEXT PRIMARY KEY, total REAL"``. An
            existing table stays as it is. A number that a pyarrow type would change is an error.

    Raises:
        FlowBuildError: arguments do not fit each other.
        SinkError: when the flow runs: the file or the table cannot be used, the table refuses a
            row, or a value has no form in SQL, such as naive datetimes, floats that are not finite,
            and whole numbers beyond 64 bits.
        StepError: when the flow runs, an item has no fields, or lacks a column of the key.

    >>> import flow.operators as op
    >>> def hours(totals):
    ...     chosen = lambda row: {name: row[name] for name in ("key", "open_time", "total")}
    ...     rows = op.map("chosen", op.records("rows", totals), chosen)
    ...     sink = SqliteSink("out.db", "hours", mode="upsert", key=("key", "open_time"))
    ...     op.output("out", rows, sink)
    """

    path: str | os.PathLike[str]
    table: str
    _file: str = field(init=False, repr=False, compare=False)

    dialect = _DIALECT

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.path, (str, os.PathLike)):
            raise FlowTypeError(f"path must be a file's path, got {shorten(self.path)}")
        object.__setattr__(self, "path", os.fspath(self.path))
        if self.path in ("", ":memory:"):
            raise FlowBuildError(
                f"path must be a file's path, got {self.path!r}: a database in memory would be "
                "gone when the run ends"
            )
        check_table_name((self.table,))
        object.__setattr__(self, "_file", os.path.abspath(self.path))

    def __str__(self) -> str:
        return f"table {self.table!r} of {self.path}"

    @override
    def datasets(self) -> Sequence[Dataset]:
        return (Dataset("file", self._file),)

    @override
    def check(self, resuming: bool) -> None:
        is_new = not os.path.exists(self._file)
        try:
            super().check(resuming)
        finally:
            # SQLite makes an empty file as it opens a database, and a check leaves none.
            with contextlib.suppress(OSError):
                if is_new and not os.path.getsize(self._file):
                    os.unlink(self._file)

    @override
    def connect(self) -> Database:
        return SqliteDatabase(self._file)

    @override
    def table_name(self) -> TableName:
        return (self.table,)

    @override
    def epochs_table(self, table: TableName) -> TableName:
        return (EPOCHS_TABLE,)

    @override
    def explanation(self, error: Exception) -> str:
        explanation = super().explanation(error)
        full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        return f"{explanation}; make room there and run the flow again" if full else explanation

    @override
    def driver_errors(self) -> tuple[type[Exception], ...]:
        return (sqlite3.Error,)


class SqliteDatabase(Database):
    """Connection to the file of a database."""

    dialect = _DIALECT

    def __init__(self, file: str) -> None:
        # Epochs are committed by another thread than the one that opens the sink.
        self._connection = sqlite3.connect(
            file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        # Spark commits the epoch after this transaction, so it must be on the disk.
        self._connection.execute("PRAGMA synchronous = FULL")
        self._file, self._identity = file, _identity_of(file)

    @override
    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self._check_file()
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                self._check_file()
            raise

    def _check_file(self) -> None:
        """Check that the path still names the file of this connection.

        Raises:
            SinkError: when the file was removed or replaced.
        """
        if _identity_of(self._file) != self._identity:
            raise SinkError(
                f"{self._file} was removed or replaced while the flow ran, and with it the rows "
                "that the flow had written there: put it back from a copy, and run the flow "
                "again; without a copy the flow continues in a new file, which lacks those epochs"
            )

    @override
    def set_up_alone(self) -> None:
        """Do nothing, as only one transaction writes at a time."""

    @override
    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return self._connection.execute(statement, parameters).fetchall()

    @override
    def execute_many(self, statement: str, rows: Iterable[Row]) -> None:
        last: Row = ()

        def noted() -> Iterator[Row]:
            nonlocal last
            for row in rows:
                last = row
                yield row

        try:
            self._connection.executemany(statement, noted())
        except sqlite3.Error as error:
            error.add_note(f"  row: {shorten(last)}")
            raise

    @override
    def execute_in_turn(self, work: Iterable[tuple[str, Sequence[Row]]]) -> None:
        for statement, rows in work:
            self.execute_many(statement, rows)

    @override
    def find_table(self, table: TableName) -> TableName | None:
        statement = (
            "SELECT name FROM sqlite_master "
            "WHERE type IN ('table', 'view') AND name = ? COLLATE NOCASE"
        )
        found = self.execute(statement, table)
        return found[0] if found else None

    @override
    def columns_of(self, table: TableName) -> list[str]:
        found = self._connection.execute(f"SELECT * FROM {quoted_table(table)} LIMIT 0")
        return [column[0] for column in found.description]

    @override
    def close(self) -> None:
        self._connection.close()


def _identity_of(file: str) -> tuple[int, int] | None:
    """Return the identity of a file among others of the same name; ``None`` without a file."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
