"""Databases for the tests of SQL sinks, behind one interface."""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flow.connectors.sink import Sink
from flow.connectors.sql import PostgresSink, SqliteSink
from tests.support.postgres import running_server
from tests.support.writing import RUN, publish


class TestDatabase(ABC):
    """An empty database."""

    __test__ = False

    @abstractmethod
    def sink(self, table: str = "t", **options: Any) -> Any:
        """A sink that writes to one of its tables."""

    @abstractmethod
    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement in a transaction of its own."""

    def rows(self, table: str = "t", columns: str = "*") -> list[tuple[Any, ...]]:
        """Return the rows of a table, sorted by their columns."""
        count = len(columns.split(",")) if columns != "*" else 1
        order = ", ".join(str(number) for number in range(1, count + 1))
        return self.ask(f"SELECT {columns} FROM {table} ORDER BY {order}")


class Sqlite(TestDatabase):
    def __init__(self, path: Path) -> None:
        self.path = path

    def sink(self, table: str = "t", **options: Any) -> Any:
        return SqliteSink(self.path, table, **options)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement).fetchall()


class Postgres(TestDatabase):
    """A schema of its own on the server of the test run, the first on the search path."""

    def __init__(self) -> None:
        self.server = running_server()
        self.schema = f"test_{uuid.uuid4().hex[:12]}"
        self.ask(f"CREATE SCHEMA {self.schema}")

    @property
    def dsn(self) -> str:
        return f"{self.server.dsn} options='-c search_path={self.schema}'"

    def sink(self, table: Any = "t", **options: Any) -> Any:
        return PostgresSink(self.dsn, table, **options)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        import psycopg

        with contextlib.closing(psycopg.connect(self.dsn, autocommit=True)) as connection:
            answer = connection.execute(statement.encode())
            return answer.fetchall() if answer.description else []


@contextlib.contextmanager
def opened(*sinks: Sink[Any], run: str = RUN, resuming: bool = False) -> Iterator[None]:
    """The sinks are open as an engine opens them, all before the first epoch."""
    try:
        for sink in sinks:
            sink.open(run, resuming)
        yield
    finally:
        for sink in sinks:
            sink.close()


def run_epochs(
    sink: Sink[Any], *epochs: Any, first: int = 0, run: str = RUN, **publishing: Any
) -> None:
    """Open a sink, write epochs from a first one on, of a partition each, and close the sink.

    The run resumes if its first epoch is not 0.
    """
    with opened(sink, run=run, resuming=first > 0):
        for number, items in enumerate(epochs, first):
            publish(sink, number, items, run=run, **publishing)


def rows_after(db: TestDatabase, *epochs: Any, columns: str = "*", **options: Any) -> list[Any]:
    """Return the rows of a table after a run of a sink with these epochs."""
    run_epochs(db.sink(**options), *epochs)
    return db.rows(columns=columns)


def ns(*numbers: int) -> list[dict[str, int]]:
    """Records with a column n."""
    return [{"n": number} for number in numbers]


def kn(**numbers: int | None) -> list[dict[str, Any]]:
    """Records with the columns k and n."""
    return [{"k": key, "n": number} for key, number in numbers.items()]


def full(db: TestDatabase, table: str = "t") -> str:
    """Return the name of a table in the table of epochs."""
    return f"{db.schema}.{table}" if isinstance(db, Postgres) else table


def epochs(db: TestDatabase) -> list[tuple[Any, ...]]:
    """Return the rows of the table of epochs."""
    return db.rows("_flow_epochs", "sink, run_id, epoch")


def open_once(*sinks: Any) -> None:
    """Open sinks and close them again."""
    with opened(*sinks):
        pass
