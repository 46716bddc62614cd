"""Table of epochs: the last epoch that each run has written to each table.

The table is in the database of the data, and is changed in the transaction of an epoch's rows::

    _flow_epochs
      sink          run_id   epoch   row_count   rewinds   marked_since   writer
      public.hours  1a2b…    41      96          0         0              9f8e…

`epoch` is the last epoch that wrote rows, and `row_count` the number of its rows. `rewinds` is the
number of times that the run had been set back before, which distinguishes epochs of equal number.
Rows of the epoch `marked_since` and of later epochs have the number of their epoch. `writer`
identifies the sink that opened the table last for this run. Writes of any other sink for the run
are refused, so that two outputs, or two processes, do not confuse their epochs.

The columns are the format of the table: a table of other columns is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from flow.connectors.sql.database import Database, Dialect, Statements, TableName, quoted_table
from flow.errors import SinkError
from flow.format_version import unknown_format

EPOCHS_TABLE = "_flow_epochs"
_COLUMNS = {"sink", "run_id", "epoch", "row_count", "rewinds", "marked_since", "writer"}


class Todo(Enum):
    """Work to do for an epoch.

    Attributes:
        NOTHING: none: the epoch was written before, or has no rows.
        WRITE: write its rows.
        REPLACE: remove the rows of this epoch and later ones, then write.
        REFUSE: fail: rows of this epoch or of later epochs are in the table, without a mark that
            distinguishes them from other rows.
    """

    NOTHING = "nothing"
    WRITE = "write"
    REPLACE = "replace"
    REFUSE = "refuse"


class Repeating(Enum):
    """Effect of writing the rows of an epoch twice.

    Attributes:
        DOUBLES: the rows are in the table twice.
        MARKED: the rows are in the table twice, with the number of their epoch.
        HARMLESS: the rows replace themselves.
    """

    DOUBLES = "doubles"
    MARKED = "marked"
    HARMLESS = "harmless"


@dataclass(frozen=True)
class Entry:
    """Last epoch of a run; the module describes the fields."""

    epoch: int | None
    row_count: int | None
    rewinds: int | None
    marked_since: int | None
    writer: str

    def todo(self, epoch: int, row_count: int, rewinds: int, repeating: Repeating) -> Todo:
        """Return the work to do for an epoch, given its number of rows and the run's rewinds.

        >>> Entry(None, None, None, None, "").todo(0, 9, 0, Repeating.DOUBLES)
        <Todo.WRITE: 'write'>
        >>> Entry(7, 9, 0, None, "").todo(7, 9, 0, Repeating.DOUBLES)
        <Todo.NOTHING: 'nothing'>
        >>> Entry(7, 9, 0, None, "").todo(7, 9, 1, Repeating.DOUBLES)
        <Todo.REFUSE: 'refuse'>
        >>> Entry(7, 9, 0, 3, "").todo(5, 9, 1, Repeating.MARKED)
        <Todo.REPLACE: 'replace'>
        """
        if self.epoch is None or self.epoch < epoch:
            return Todo.WRITE if row_count else Todo.NOTHING
        if repeating is Repeating.HARMLESS:
            return Todo.WRITE
        marked = self.marked_since is not None and self.marked_since <= epoch
        if repeating is Repeating.MARKED and marked:
            return Todo.REPLACE
        # A replay after a crash has the same items. After a rewind the epoch may have other items,
        # which would be lost if the epoch counted as written.
        last = (self.epoch, self.row_count, self.rewinds or 0)
        return Todo.NOTHING if last == (epoch, row_count, rewinds) else Todo.REFUSE

    def after(self, epoch: int, row_count: int, rewinds: int, repeating: Repeating) -> Entry:
        """Return the entry after an epoch was written."""
        return Entry(epoch, row_count, rewinds, self._marked_after(repeating), self.writer)

    def _marked_after(self, repeating: Repeating) -> int | None:
        """Return the first epoch from which on all rows are marked, after another epoch."""
        if repeating is not Repeating.MARKED:
            return None
        if self.marked_since is not None:
            return self.marked_since
        return 0 if self.epoch is None else self.epoch + 1


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
            database.ask(
                f"CREATE TABLE {quoted_table(self.table)} (sink text NOT NULL, "
                "run_id text NOT NULL, epoch bigint, row_count bigint, rewinds bigint, "
                "marked_since bigint, writer text NOT NULL, PRIMARY KEY (sink, run_id))"
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
            f"SELECT epoch, row_count, rewinds, marked_since, writer "
            f"FROM {quoted_table(self.table)} WHERE sink = {self.dialect.placeholder(1)} "
            f"AND run_id = {self.dialect.placeholder(2)}{self.dialect.row_lock}"
        )
        found = database.ask(statement, (self.sink, self.run_id))
        return Entry(*found[0]) if found else None

    def update(self, database: Database, entry: Entry) -> None:
        """Record that an epoch is written."""
        self._put(database, vars(entry))

    def _put(self, database: Database, values: Mapping[str, Any]) -> None:
        """Write values of the entry, which is added if there is none."""
        row = {"sink": self.sink, "run_id": self.run_id, **values}
        statement = Statements(self.dialect, self.table).upsert(tuple(row), ("sink", "run_id"))
        database.repeat(statement, [tuple(row.values())])

    def delete_statement(self) -> str:
        """Return the statement that deletes the entry, as text for an error."""
        sink, run_id = (value.replace("'", "''") for value in (self.sink, self.run_id))
        condition = f"WHERE sink = '{sink}' AND run_id = '{run_id}'"
        return f"DELETE FROM {quoted_table(self.table)} {condition}"
