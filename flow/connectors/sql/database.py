"""Databases as the sinks use them: values, the dialect of SQL, statements and the connection.

In statements names are quoted, and all values are parameters. The table of epochs has the last
epoch that each run has written to each table. It is in the database of the data, and is changed in
the transaction of an epoch's rows::

    _flow_epochs
      sink          run_id   epoch   row_count   rewinds   writer
      public.hours  1a2b…    41      96          0         9f8e…

`epoch` is the last epoch that wrote rows, and `row_count` the number of its rows. `rewinds` is the
number of times that the run had been set back before, which distinguishes epochs of equal number.
`writer` identifies the sink that opened the table last for this run. Writes of any other sink for
the run are refused, so that two outputs, or two processes, do not confuse their epochs.

The columns are the format of the table: a table of other columns is refused.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from flow.connectors.formats.json_encoding import json_text, naive_problem, plain
from flow.errors import SinkError
from flow.format_version import unknown_format

ValueConverter: TypeAlias = Callable[[Any], Any]
"""Conversion of a value to a database driver's form; raises ValueError or TypeError."""

_BITS = 63


def by_type(own: Mapping[type, ValueConverter]) -> ValueConverter:
    """Return a converter of all values, given a database's own converters of some types.

    Values of other types are first laid out as in JSON lines: enums become their values, and
    dataclasses, sets and tuples become dicts and lists.

    Args:
        own: converter of each type, beside or in place of those that databases share; a subclass
            comes before its base.
    """
    converters = {**own, **_SHARED, **own}

    def convert(value: Any) -> Any:
        converter = converters.get(type(value))
        if converter is not None:
            return converter(value)
        if isinstance(value, (np.datetime64, np.timedelta64)):
            raise TypeError("map it to an aware datetime, or to a timedelta")
        laid_out = plain(value)
        for kind, converter in converters.items():
            if isinstance(laid_out, kind):
                return converter(laid_out)
        raise TypeError("no column can hold it: map it to text, numbers, lists or dicts")

    return convert


def unchanged(value: Any) -> Any:
    """Return the value itself."""
    return value


def int64(value: int) -> int:
    """Return a whole number if it fits 64 bits, the widest integer type of a database."""
    if not -(1 << _BITS) <= value < 1 << _BITS:
        raise ValueError("it exceeds 64 bits: map it to a Decimal or to text")
    return int(value)


def finite_float(value: float) -> float:
    """Return a float if it is finite, as databases differ on other floats."""
    if not math.isfinite(value):
        raise ValueError("it is not a finite number: map it to None or to text")
    return float(value)


def decimal_text(value: Decimal) -> str:
    """Return all digits of a decimal number."""
    if not value.is_finite():
        raise ValueError("it is not a finite number: map it to None or to text")
    return str(value)


def utf8_text(value: str) -> str:
    """Return a text if it can be encoded as UTF-8."""
    if not value.isascii():
        value.encode()
    return value


def to_utc(value: datetime) -> datetime:
    """Return an aware datetime in UTC."""
    if value != value:  # NaT of pandas is an instance of datetime.
        raise ValueError("it is not a time: map it to None")
    if value.utcoffset() is None:
        raise ValueError(naive_problem("it"))
    return value.astimezone(UTC)


_SHARED: dict[type, ValueConverter] = {
    type(None): unchanged,
    int: int64,
    float: finite_float,
    str: utf8_text,
    bytes: unchanged,
    bytearray: bytes,
    memoryview: bytes,
    date: date.isoformat,
    time: time.isoformat,
    Decimal: decimal_text,
    dict: json_text,
    list: json_text,
}

Row: TypeAlias = tuple[Any, ...]


class Change(Enum):
    """Change of a row."""

    PUT = "put"
    DELETE = "delete"


class RowGroup(NamedTuple):
    """Consecutive rows with the same columns and the same change.

    Attributes:
        change: change of the rows.
        columns: names of their columns.
        rows: the rows.
    """

    change: Change
    columns: tuple[str, ...]
    rows: list[Row]


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

    def create(self, columns: pa.Schema | str, key: Sequence[str]) -> str:
        """Return the statement that creates the table.

        Args:
            columns: columns with types of pyarrow, or as SQL text.
            key: primary key; ignored if `columns` is text, which holds its own.
        """
        if isinstance(columns, str):
            return f"CREATE TABLE {self._name} ({columns})"
        lines = list(map(self._column, columns))
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
    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a statement and return its rows."""

    @abstractmethod
    def execute_many(self, statement: str, rows: Iterable[Row]) -> None:
        """Run a statement for each row of parameters, in order."""

    @abstractmethod
    def execute_in_turn(self, work: Iterable[tuple[str, Sequence[Row]]]) -> None:
        """Run statements in order, each for several rows of parameters."""

    def load(self, table: TableName, rows: Sequence[RowGroup]) -> None:
        """Insert rows in order, in the fastest way of this database."""
        self.insert(table, rows)

    def insert(self, table: TableName, rows: Sequence[RowGroup], clause: str = "") -> None:
        """Insert rows in order, with a clause before the values."""
        statements = Statements(self.dialect, table)
        insert = cache(lambda columns: statements.insert(columns, clause))
        self.execute_in_turn((insert(group.columns), group.rows) for group in rows)

    @abstractmethod
    def find_table(self, table: TableName) -> TableName | None:
        """Return the full name of a table; ``None`` if it does not exist."""

    @abstractmethod
    def columns_of(self, table: TableName) -> list[str]:
        """Return the names of a table's columns."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


EPOCHS_TABLE = "_flow_epochs"

_COLUMNS = {"sink", "run_id", "epoch", "row_count", "rewinds", "writer"}


class Todo(Enum):
    """Work to do for an epoch.

    Attributes:
        NOTHING: none: the epoch was written before, or has no rows.
        WRITE: write its rows.
        REFUSE: fail: rows of this epoch or of later epochs are in the table.
    """

    NOTHING = "nothing"
    WRITE = "write"
    REFUSE = "refuse"


@dataclass(frozen=True)
class Entry:
    """Last epoch of a run; the module describes the fields."""

    epoch: int | None
    row_count: int | None
    rewinds: int | None
    writer: str

    def todo(self, epoch: int, row_count: int, rewinds: int, replaces: bool) -> Todo:
        """Return the work to do for an epoch.

        Args:
            epoch: the epoch.
            row_count: its number of rows.
            rewinds: the number of times that the run has been set back.
            replaces: True if rows that are written again replace themselves.

        >>> Entry(None, None, None, "").todo(0, 9, 0, replaces=False)
        <Todo.WRITE: 'write'>
        >>> Entry(7, 9, 0, "").todo(7, 9, 0, replaces=False)
        <Todo.NOTHING: 'nothing'>
        >>> Entry(7, 9, 0, "").todo(7, 9, 1, replaces=False)
        <Todo.REFUSE: 'refuse'>
        """
        if self.epoch is None or self.epoch < epoch:
            return Todo.WRITE if row_count else Todo.NOTHING
        if replaces:
            return Todo.WRITE
        # A replay after a crash has the same items. After a rewind the epoch may have other items,
        # which would be lost if the epoch counted as written.
        last = (self.epoch, self.row_count, self.rewinds or 0)
        return Todo.NOTHING if last == (epoch, row_count, rewinds) else Todo.REFUSE


@dataclass(frozen=True)
class Ledger:
    """Entry of one sink and one run in the table of epochs.

    Attributes:
        dialect: SQL dialect of the database.
        table: name of the table of epochs.
        sink: full name of the table that the sink writes to.
        run_id: id of the run.
    """

    dialect: Dialect
    table: TableName
    sink: str
    run_id: str

    def make(self, database: Database) -> None:
        """Create the table of epochs, or check its columns.

        Raises:
            SinkError: the table has other columns.
        """
        # IF NOT EXISTS would need the right to create tables even if the table exists.
        if database.find_table(self.table) is None:
            database.execute(
                f"CREATE TABLE {quoted_table(self.table)} (sink text NOT NULL, "
                "run_id text NOT NULL, epoch bigint, row_count bigint, rewinds bigint, "
                "writer text NOT NULL, PRIMARY KEY (sink, run_id))"
            )
            return
        columns = set(database.columns_of(self.table))
        if columns != _COLUMNS:
            found = f"of the columns {', '.join(sorted(columns))}"
            raise SinkError(unknown_format(".".join(self.table), found, "table of epochs"))

    def claim(self, database: Database, writer: str) -> None:
        """Record `writer` as the only sink that may write for the run."""
        self._put(database, {"writer": writer})

    def read(self, database: Database) -> Entry | None:
        """Return the entry, locked until the transaction ends; `None` if there is none."""
        statement = (
            "SELECT epoch, row_count, rewinds, writer "
            f"FROM {quoted_table(self.table)} WHERE sink = {self.dialect.placeholder(1)} "
            f"AND run_id = {self.dialect.placeholder(2)}{self.dialect.row_lock}"
        )
        found = database.execute(statement, (self.sink, self.run_id))
        return Entry(*found[0]) if found else None

    def update(self, database: Database, entry: Entry) -> None:
        """Record that an epoch is written."""
        self._put(database, vars(entry))

    def _put(self, database: Database, values: Mapping[str, Any]) -> None:
        """Write values of the entry, which is added if there is none."""
        row = {"sink": self.sink, "run_id": self.run_id, **values}
        statement = Statements(self.dialect, self.table).upsert(tuple(row), ("sink", "run_id"))
        database.execute_many(statement, [tuple(row.values())])

    def delete_statement(self) -> str:
        """Return the statement that deletes the entry, as text for an error."""
        sink, run_id = (value.replace("'", "''") for value in (self.sink, self.run_id))
        condition = f"WHERE sink = '{sink}' AND run_id = '{run_id}'"
        return f"DELETE FROM {quoted_table(self.table)} {condition}"
