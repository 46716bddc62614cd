"""The table of epochs: how far each run has written to each table.

It lies beside the data, in the same database, and is changed in the same transaction::

    _flow_epochs
      sink          run_id   epoch   row_count   row_digest   marked_since   writer
      public.hours  1a2b…    41      96          5c6d…        0              9f8e…

`epoch` is the last one that wrote rows, and `row_count` how many; `row_digest` tells them from as
many others. Rows of epochs from `marked_since` on carry the number of their epoch. `writer` is who
opened the table last for this run: what anyone else wants to write for the same run is refused, so
that two outputs, or two processes, cannot take each other's epochs for their own.

A table that was made before there were digests gets the column when a sink is opened, unless it
belongs to someone else. Where there is no digest, as many rows are taken for the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from flow.connectors.sql.content import Content
from flow.connectors.sql.database import Database
from flow.connectors.sql.statements import Dialect, TableName, quoted_table

EPOCHS_TABLE = "_flow_epochs"
_DIGEST = "row_digest"


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
    row_digest: str | None
    marked_since: int | None
    writer: str

    def todo(self, epoch: int, content: Content, repeating: Repeating) -> Todo:
        """What there is to do for an epoch with such rows.

        >>> rows, others = Content(9, "5c6d"), Content(9, "7e8f")
        >>> Entry(None, None, None, None, "").todo(0, rows, Repeating.DOUBLES)
        <Todo.WRITE: 'write'>
        >>> Entry(7, 9, "5c6d", None, "").todo(7, rows, Repeating.DOUBLES)
        <Todo.NOTHING: 'nothing'>
        >>> Entry(7, 9, "5c6d", None, "").todo(7, others, Repeating.DOUBLES)
        <Todo.REFUSE: 'refuse'>
        >>> Entry(7, 9, "5c6d", 3, "").todo(5, rows, Repeating.MARKED)
        <Todo.REPLACE: 'replace'>
        """
        if self.epoch is None or self.epoch < epoch:
            return Todo.WRITE if content.count else Todo.NOTHING
        if repeating is Repeating.HARMLESS:
            return Todo.WRITE
        marked = self.marked_since is not None and self.marked_since <= epoch
        if repeating is Repeating.MARKED and marked:
            return Todo.REPLACE
        return Todo.NOTHING if self._holds(epoch, content) else Todo.REFUSE

    def after(self, epoch: int, content: Content, repeating: Repeating) -> Entry:
        """The entry once an epoch is written."""
        marked_since = self._marked_after(repeating)
        return Entry(epoch, content.count, content.digest, marked_since, self.writer)

    def _holds(self, epoch: int, content: Content) -> bool:
        """Whether these very rows were written.

        After a crash an epoch is run again with the same items. One that was set back to is cut
        anew, and to leave out what it has else would lose that.
        """
        same = self.row_digest in (None, content.digest)
        return same and (self.epoch, self.row_count) == (epoch, content.count)

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
        keeps_digests: whether the table of epochs has a column for them.
    """

    dialect: Dialect
    table: TableName
    sink: str
    run_id: str
    keeps_digests: bool = True

    def made(self, database: Database) -> Ledger:
        """The ledger with its table of epochs, which is made if there is none."""
        # Not IF NOT EXISTS, which asks for the right to create even where there is nothing to do.
        if database.find_table(self.table) is None:
            database.ask(
                f"CREATE TABLE {quoted_table(self.table)} (sink text NOT NULL, "
                f"run_id text NOT NULL, epoch bigint, row_count bigint, {_DIGEST} text, "
                "marked_since bigint, writer text NOT NULL, PRIMARY KEY (sink, run_id))"
            )
        elif _DIGEST not in database.columns_of(self.table):
            if not database.may_alter(self.table):
                return replace(self, keeps_digests=False)
            database.ask(f"ALTER TABLE {quoted_table(self.table)} ADD COLUMN {_DIGEST} text")
        return self

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
        digest = _DIGEST if self.keeps_digests else "NULL"
        statement = (
            f"SELECT epoch, row_count, {digest}, marked_since, writer "
            f"FROM {quoted_table(self.table)} WHERE sink = {self.dialect.placeholder(1)} "
            f"AND run_id = {self.dialect.placeholder(2)}{self.dialect.row_lock}"
        )
        found = database.ask(statement, (self.sink, self.run_id))
        return Entry(*found[0]) if found else None

    def update(self, database: Database, entry: Entry) -> None:
        """Note that an epoch is written."""
        values: dict[str, int | str | None] = {
            "epoch": entry.epoch,
            "row_count": entry.row_count,
            "marked_since": entry.marked_since,
        }
        if self.keeps_digests:
            values[_DIGEST] = entry.row_digest
        place = self.dialect.placeholder
        changes = ", ".join(f"{name} = {place(at)}" for at, name in enumerate(values, 1))
        statement = (
            f"UPDATE {quoted_table(self.table)} SET {changes} "
            f"WHERE sink = {place(len(values) + 1)} AND run_id = {place(len(values) + 2)}"
        )
        database.repeat(statement, [(*values.values(), self.sink, self.run_id)])

    def forgetting(self) -> str:
        """The statement by which a user makes the run start afresh, as text to be shown."""
        return f"DELETE FROM {quoted_table(self.table)} {self._where()}"

    def trusting(self) -> str:
        """The statement by which a user has as many rows taken for the same ones."""
        return f"UPDATE {quoted_table(self.table)} SET {_DIGEST} = NULL {self._where()}"

    def _where(self) -> str:
        sink, run_id = (value.replace("'", "''") for value in (self.sink, self.run_id))
        return f"WHERE sink = '{sink}' AND run_id = '{run_id}'"

    def _places(self, count: int) -> str:
        return ", ".join(map(self.dialect.placeholder, range(1, count + 1)))
