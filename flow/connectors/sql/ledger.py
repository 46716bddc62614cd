"""The table of epochs: how far each run has written to each table.

It lies beside the data, in the same database, and is changed in the same transaction::

    _flow_epochs
      sink          run_id   epoch   row_count   rewinds   marked_since   writer
      public.hours  1a2b…    41      96          0         0              9f8e…

`epoch` is the last one that wrote rows, and `row_count` how many; `rewinds` is how often the run
had been set back by then, which tells the epoch from another of the same number. Rows of epochs
from `marked_since` on carry the number of their epoch. `writer` is who opened the table last for
this run: what anyone else wants to write for the same run is refused, so that two outputs, or two
processes, cannot take each other's epochs for their own.

A table that was made without the column `rewinds` gets it when a sink is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flow.connectors.sql.database import Database
from flow.connectors.sql.statements import Dialect, TableName, quoted_table

EPOCHS_TABLE = "_flow_epochs"


class Todo(Enum):
    """What there is to do for an epoch.

    Attributes:
        NOTHING: it was written before, or has no rows.
        WRITE: write its rows.
        REPLACE: remove the rows of this epoch and of later ones, then write.
        REFUSE: its rows, or those of later epochs, are there, and cannot be told from others.
    """

    NOTHING = "nothing"
    WRITE = "write"
    REPLACE = "replace"
    REFUSE = "refuse"


class Repeating(Enum):
    """What writing rows once more does.

    Attributes:
        DOUBLES: they are there twice.
        MARKED: they are there twice, but carry the number of their epoch.
        HARMLESS: they take the place of themselves.
    """

    DOUBLES = "doubles"
    MARKED = "marked"
    HARMLESS = "harmless"


@dataclass(frozen=True)
class Entry:
    """What the table says of a run; all are described in the module."""

    epoch: int | None
    row_count: int | None
    rewinds: int | None
    marked_since: int | None
    writer: str

    def todo(self, epoch: int, row_count: int, rewinds: int, repeating: Repeating) -> Todo:
        """What there is to do for an epoch with so many rows, of a run set back so many times.

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
        # After a crash an epoch is run again with the same items. One that was set back to is cut
        # anew, and to leave out what it has would lose that.
        there = (self.epoch, self.row_count, self.rewinds or 0)
        return Todo.NOTHING if there == (epoch, row_count, rewinds) else Todo.REFUSE

    def after(self, epoch: int, row_count: int, rewinds: int, repeating: Repeating) -> Entry:
        """The entry once an epoch is written."""
        return Entry(epoch, row_count, rewinds, self._marked_after(repeating), self.writer)

    def _marked_after(self, repeating: Repeating) -> int | None:
        """From which epoch on all rows are marked, once another one is written."""
        if repeating is not Repeating.MARKED:
            return None
        if self.marked_since is not None:
            return self.marked_since
        return 0 if self.epoch is None else self.epoch + 1


@dataclass(frozen=True)
class Ledger:
    """The entry of one sink in one run.

    Attributes:
        dialect: how the database talks.
        table: the table of epochs.
        sink: the name of the table that is written to, in full.
        run_id: the run.
    """

    dialect: Dialect
    table: TableName
    sink: str
    run_id: str

    def make(self, database: Database) -> None:
        """Make the table of epochs if there is none, and the columns that one from before lacks."""
        # Not IF NOT EXISTS, which asks for the right to create even where there is nothing to do.
        if database.find_table(self.table) is None:
            database.ask(
                f"CREATE TABLE {quoted_table(self.table)} (sink text NOT NULL, "
                "run_id text NOT NULL, epoch bigint, row_count bigint, rewinds bigint, "
                "marked_since bigint, writer text NOT NULL, PRIMARY KEY (sink, run_id))"
            )
        elif "rewinds" not in database.columns_of(self.table):
            database.ask(f"ALTER TABLE {quoted_table(self.table)} ADD COLUMN rewinds bigint")

    def claim(self, database: Database, writer: str) -> None:
        """Become the one who writes."""
        statement = (
            f"INSERT INTO {quoted_table(self.table)} (sink, run_id, writer) "
            f"VALUES ({self._places(3)}) "
            "ON CONFLICT (sink, run_id) DO UPDATE SET writer = excluded.writer"
        )
        database.repeat(statement, [(self.sink, self.run_id, writer)])

    def read(self, database: Database) -> Entry | None:
        """The entry, locked until the transaction ends."""
        statement = (
            f"SELECT epoch, row_count, rewinds, marked_since, writer "
            f"FROM {quoted_table(self.table)} WHERE sink = {self.dialect.placeholder(1)} "
            f"AND run_id = {self.dialect.placeholder(2)}{self.dialect.row_lock}"
        )
        found = database.ask(statement, (self.sink, self.run_id))
        return Entry(*found[0]) if found else None

    def update(self, database: Database, entry: Entry) -> None:
        """Note that an epoch is written."""
        place = self.dialect.placeholder
        statement = (
            f"UPDATE {quoted_table(self.table)} "
            f"SET epoch = {place(1)}, row_count = {place(2)}, rewinds = {place(3)}, "
            f"marked_since = {place(4)} WHERE sink = {place(5)} AND run_id = {place(6)}"
        )
        values = (entry.epoch, entry.row_count, entry.rewinds, entry.marked_since)
        database.repeat(statement, [(*values, self.sink, self.run_id)])

    def forgetting(self) -> str:
        """The statement by which a user makes the run start afresh, as text to be shown."""
        sink, run_id = (value.replace("'", "''") for value in (self.sink, self.run_id))
        where = f"WHERE sink = '{sink}' AND run_id = '{run_id}'"
        return f"DELETE FROM {quoted_table(self.table)} {where}"

    def _places(self, count: int) -> str:
        return ", ".join(map(self.dialect.placeholder, range(1, count + 1)))
