"""The SQL text that the sinks send: names are quoted, and values are only ever parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from flow.connectors.sql.values import Form

TableName: TypeAlias = tuple[str, ...]
"""A table's name: its schema, where it has one, and its own name."""


class Dialect(ABC):
    """What one database says otherwise than another."""

    row_lock = ""
    table_options = ""

    @abstractmethod
    def form(self) -> Form:
        """What makes of a value what the driver is given."""

    @abstractmethod
    def placeholder(self, number: int) -> str:
        """The place of a parameter, the first of which is number 1."""

    @abstractmethod
    def column_type(self, kind: Any) -> str | None:
        """The type of a column for values of a pyarrow type; ``None`` when there is none."""


def quoted(name: str) -> str:
    """A name as SQL has it, whatever characters are in it.

    >>> print(quoted("per cent"), quoted('5" wide'))
    "per cent" "5"" wide"
    """
    return '"' + name.replace('"', '""') + '"'


def quoted_table(table: TableName) -> str:
    """A table's name as SQL has it."""
    return ".".join(map(quoted, table))


@dataclass(frozen=True)
class Statements:
    """The statements about one table."""

    dialect: Dialect
    table: TableName

    def create(
        self, columns: pa.Schema | str, key: Sequence[str], epoch_columns: Sequence[str]
    ) -> str:
        """Make the table.

        Args:
            columns: its columns, with types of pyarrow, or as SQL text.
            key: its primary key; part of the text where there is one.
            epoch_columns: the columns for the run and the epoch, to be added.
        """
        kinds = (pa.string(), pa.int64())
        marks = [
            f"{quoted(name)} {self.dialect.column_type(kind)}"
            for name, kind in zip(epoch_columns, kinds, strict=False)
        ]
        if isinstance(columns, str):
            # The text may end with constraints, which no column can come after.
            return f"CREATE TABLE {self._name} ({', '.join([*marks, columns])})"
        lines = [*map(self._column, columns), *marks]
        if key:
            lines.append(f"PRIMARY KEY ({_list(key)})")
        options = self.dialect.table_options
        return f"CREATE TABLE {self._name} ({', '.join(lines)}) {options}".rstrip()

    def insert(self, columns: Sequence[str], words: str = "") -> str:
        """Add a row; `words` are what a database wants said before the values."""
        places = ", ".join(map(self.dialect.placeholder, range(1, len(columns) + 1)))
        return f"INSERT INTO {self._name} ({_list(columns)}) {words}VALUES ({places})"

    def upsert(self, columns: Sequence[str], key: Sequence[str]) -> str:
        """Add a row, or change the one that has its key."""
        changed = [quoted(name) for name in columns if name not in key]
        change = ", ".join(f"{name} = excluded.{name}" for name in changed)
        action = f"UPDATE SET {change}" if changed else "NOTHING"
        return f"{self.insert(columns)} ON CONFLICT ({_list(key)}) DO {action}"

    def check_key(self, key: Sequence[str]) -> str:
        """Fail, without writing, unless the columns are a key that rows can conflict on."""
        nulls = ", ".join("NULL" for _ in key)
        return (
            f"EXPLAIN INSERT INTO {self._name} ({_list(key)}) VALUES ({nulls}) "
            f"ON CONFLICT ({_list(key)}) DO NOTHING"
        )

    def delete(self, key: Sequence[str]) -> str:
        """Remove the row with a key."""
        found = [
            f"{quoted(name)} = {self.dialect.placeholder(number)}"
            for number, name in enumerate(key, 1)
        ]
        return f"DELETE FROM {self._name} WHERE {' AND '.join(found)}"

    def delete_epochs(self, run_column: str, epoch_column: str) -> str:
        """Remove what a run wrote, in an epoch and all later ones."""
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


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))
