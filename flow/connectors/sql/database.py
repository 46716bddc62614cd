"""Connection to a database, as the sinks use it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from flow.connectors.sql.rows import Row, RowGroup
from flow.connectors.sql.statements import TableName


class Database(ABC):
    """Connection to a database, used by one thread at a time, not always the same."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Return a context that commits its statements; an exception rolls them back.

        A connection that was lost since the last transaction is opened again. Its loss inside the
        context is an error.
        """

    @abstractmethod
    def set_up_alone(self) -> None:
        """Lock out other flows that create tables, until the transaction ends."""

    @abstractmethod
    def ask(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a statement and return its rows."""

    @abstractmethod
    def repeat(self, statement: str, rows: Iterable[Row]) -> None:
        """Run a statement for each row of parameters, in order."""

    @abstractmethod
    def repeat_in_turn(self, work: Iterable[tuple[str, Sequence[Row]]]) -> None:
        """Run statements in order, each for several rows of parameters."""

    @abstractmethod
    def load(self, table: TableName, rows: Sequence[RowGroup]) -> None:
        """Insert rows in order, in the fastest way of this database."""

    @abstractmethod
    def find_table(self, table: TableName) -> TableName | None:
        """Return the full name of a table; ``None`` if it does not exist."""

    @abstractmethod
    def columns_of(self, table: TableName) -> list[str]:
        """Return the names of a table's columns."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""
