"""One connection to a database, as the sinks use it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from flow.connectors.sql.rows import Alike, Row
from flow.connectors.sql.statements import TableName


class Database(ABC):
    """A connection; it is used by one thread at a time, not always the same."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """All that is done inside, or nothing: an exception rolls it back.

        A connection that was lost since the last transaction is made anew; one that is lost inside
        is an error.
        """

    @abstractmethod
    def set_up_alone(self) -> None:
        """Keep other flows from making tables until the transaction ends."""

    @abstractmethod
    def ask(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a statement and return its rows."""

    @abstractmethod
    def repeat(self, statement: str, rows: Iterable[Row]) -> None:
        """Run a statement for each row of parameters, in order."""

    @abstractmethod
    def repeat_in_turn(self, work: Iterable[tuple[str, Sequence[Row]]]) -> None:
        """Run statements one after the other, each for some rows of parameters, in order."""

    @abstractmethod
    def load(self, table: TableName, rows: Sequence[Alike]) -> None:
        """Insert rows in order, as fast as this database can."""

    @abstractmethod
    def find_table(self, table: TableName) -> TableName | None:
        """A table's name in full, however it was written; ``None`` if there is no such table."""

    @abstractmethod
    def columns_of(self, table: TableName) -> list[str]:
        """The names of a table's columns."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection."""
