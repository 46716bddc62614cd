"""SQL statements of the sinks: names are quoted, and all values are parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from flow.connectors.sql.values import ValueConverter

TableName: TypeAlias = tuple[str, ...]
"""Name of a table: its schema, if it has one, and its own name."""


class Dialect(ABC):
    """Differences between databases."""

    row_lock = ""
    table_options = ""

    @abstractmethod
    def value_converter(self) -> ValueConverter:
        """Return the conversion of values to the database driver's form."""

    @abstractmethod
    def placeholder(self, number: int) -> str:
        """Return the placeholder of a parameter; the first has number 1."""

    @abstractmethod
    def column_type(self, kind: Any) -> str | None:
        """Return the SQL type of a pyarrow type; ``None`` if there is none."""


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
        placeholders = ", ".join(map(self.dialect.placeholder, range(1, len(columns) + 1)))
        return f"INSERT INTO {self._name} ({_quoted_list(columns)}) {clause}VALUES ({placeholders})"

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
