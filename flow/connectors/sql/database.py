"""Databases as the sinks use them: the dialect of SQL, statements, and the connection.

In statements names are quoted, and all values are parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa

from flow.connectors.sql.rows import Row, RowGroup, ValueConverter

TableName: TypeAlias = tuple[str, ...]
"""Name of a table: its schema, if it has one, and its own name."""


@dataclass(frozen=True)
class Dialect:
    """Differences between databases.

    Attributes:
        convert: conversion of values to the database driver's form.
        placeholder: function of the number of a parameter, from 1, that returns its placeholder.
        column_types: SQL types, each with the tests of the pyarrow types that have it; a field
            of the pyarrow type stands in braces.
        row_lock: clause that locks the rows of a query until the transaction ends.
        table_options: options of new tables.
    """

    convert: ValueConverter
    placeholder: Callable[[int], str]
    column_types: Mapping[str, Sequence[Callable[[Any], bool]]]
    row_lock: str = ""
    table_options: str = ""

    def placeholders(self, count: int) -> str:
        """Return the placeholders of parameters, as a list in SQL."""
        return ", ".join(map(self.placeholder, range(1, count + 1)))

    def column_type(self, kind: Any) -> str | None:
        """Return the SQL type of a pyarrow type; ``None`` if there is none."""
        if pa.types.is_dictionary(kind):
            return self.column_type(kind.value_type)
        for name, tests in self.column_types.items():
            if any(is_kind(kind) for is_kind in tests):
                return name.format(kind)
        return None


def quoted(name: str) -> str:
    """Return a name in quotes, valid with any characters.

    >>> print(quoted("per cent"), quoted('5" wide'))
    "per cent" "5"" wide"
    """
    return '"' + name.replace('"', '""') + '"'


def quoted_table(table: TableName) -> str:
    """Return the name of a table in quotes."""
    return ".".join(map(quoted, table))


@dataclass(frozen=True)
class Statements:
    """Statements about one table."""

    dialect: Dialect
    table: TableName

    def create(
        self, columns: pa.Schema | str, key: Sequence[str], epoch_columns: Sequence[str]
    ) -> str:
        """Return the statement that creates the table.

        Args:
            columns: columns with types of pyarrow, or as SQL text.
            key: primary key; ignored if `columns` is text, which holds its own.
            epoch_columns: columns of the run and the epoch, which are added.
        """
        kinds = (pa.string(), pa.int64())
        marks = [
            f"{quoted(name)} {self.dialect.column_type(kind)}"
            for name, kind in zip(epoch_columns, kinds, strict=False)
        ]
        if isinstance(columns, str):
            # The text may end with constraints, after which no column can stand.
            return f"CREATE TABLE {self._name} ({', '.join([*marks, columns])})"
        lines = [*map(self._column, columns), *marks]
        if key:
            lines.append(f"PRIMARY KEY ({_quoted_list(key)})")
        options = self.dialect.table_options
        return f"CREATE TABLE {self._name} ({', '.join(lines)}) {options}".rstrip()

    def insert(self, columns: Sequence[str], clause: str = "") -> str:
        """Return the statement that adds a row, with a clause before the values."""
        values = self.dialect.placeholders(len(columns))
        return f"INSERT INTO {self._name} ({_quoted_list(columns)}) {clause}VALUES ({values})"

    def upsert(self, columns: Sequence[str], key: Sequence[str]) -> str:
        """Return the statement that adds a row, or changes the one with its key."""
        changed = [quoted(name) for name in columns if name not in key]
        change = ", ".join(f"{name} = excluded.{name}" for name in changed)
        action = f"UPDATE SET {change}" if changed else "NOTHING"
        return f"{self.insert(columns)} ON CONFLICT ({_quoted_list(key)}) DO {action}"

    def check_key(self, key: Sequence[str]) -> str:
        """Return a statement that fails if the columns are no unique key; it writes nothing."""
        nulls = ", ".join("NULL" for _ in key)
        return (
            f"EXPLAIN INSERT INTO {self._name} ({_quoted_list(key)}) VALUES ({nulls}) "
            f"ON CONFLICT ({_quoted_list(key)}) DO NOTHING"
        )

    def delete(self, key: Sequence[str]) -> str:
        """Return the statement that deletes the row with a key."""
        found = [
            f"{quoted(name)} = {self.dialect.placeholder(number)}"
            for number, name in enumerate(key, 1)
        ]
        return f"DELETE FROM {self._name} WHERE {' AND '.join(found)}"

    def delete_epochs(self, run_column: str, epoch_column: str) -> str:
        """Return the statement that deletes the rows of a run from an epoch on."""
        run, epoch = self.dialect.placeholder(1), self.dialect.placeholder(2)
        return (
            f"DELETE FROM {self._name} "
            f"WHERE {quoted(run_column)} = {run} AND {quoted(epoch_column)} >= {epoch}"
        )

    @property
    def _name(self) -> str:
        return quoted_table(self.table)

    def _column(self, field: Any) -> str:
        kind = self.dialect.column_type(field.type)
        return f"{quoted(field.name)} {kind}{'' if field.nullable else ' NOT NULL'}"


def _quoted_list(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))


class Database(ABC):
    """Connection to a database, used by one thread at a time, not always the same."""

    dialect: ClassVar[Dialect]

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

    def load(self, table: TableName, rows: Sequence[RowGroup]) -> None:
        """Insert rows in order, in the fastest way of this database."""
        self.insert(table, rows)

    def insert(self, table: TableName, rows: Sequence[RowGroup], clause: str = "") -> None:
        """Insert rows in order, with a clause before the values."""
        statements = Statements(self.dialect, table)
        insert = cache(lambda columns: statements.insert(columns, clause))
        self.repeat_in_turn((insert(group.columns), group.rows) for group in rows)

    @abstractmethod
    def find_table(self, table: TableName) -> TableName | None:
        """Return the full name of a table; ``None`` if it does not exist."""

    @abstractmethod
    def columns_of(self, table: TableName) -> list[str]:
        """Return the names of a table's columns."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""
