"""Writes of epochs to a view, each in one transaction with the epoch's number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flow.connectors.sql.database import Database, Row
from flow.errors import SinkError
from flow.views.rows import By, ViewRow
from flow.views.views_file import COLUMNS, ViewState, add_view, read_state, write_state


@dataclass(frozen=True)
class Keep:
    """The windows that a view by window keeps.

    Attributes:
        windows: the number of newest windows of each key; ``None`` for all.
        us: windows that closed longer than this before the view's newest window opened are
            removed, in µs; ``None`` for no limit.
    """

    windows: int | None = None
    us: int | None = None


@dataclass(frozen=True)
class ViewRun:
    """The run that writes a view.

    Attributes:
        flow_id: the flow's name.
        run_id: id of the checkpoint.
        writer: id of the sink.
        rewinds: the number of times that the checkpoint was set back.
        last_epoch: the last epoch that the checkpoint has as done.
        keep_epochs: the number of epochs by which the view can be set back; 0 for a run that
            replays no epochs.
    """

    flow_id: str
    run_id: str
    writer: str
    rewinds: int = 0
    last_epoch: int = -1
    keep_epochs: int = 0


@dataclass(frozen=True)
class ViewWriter:
    """A view that a run writes.

    Attributes:
        database: the connection.
        name: the view's name.
        by: the identity of an entry.
        keep: the windows to keep.
        run: the run.
    """

    database: Database
    name: str
    by: By
    keep: Keep
    run: ViewRun

    def open(self) -> ViewState:
        """Claim the view for the run, and undo epochs that the checkpoint has no more.

        An earlier run on the same checkpoint may have committed to the view the epoch after the
        checkpoint's last one, which is then replayed, so the view keeps that epoch.

        Returns:
            The state of the view.

        Raises:
            SinkError: when the view belongs to another flow, or cannot be set back.
        """
        with self.database.transaction():
            state = read_state(self.database.execute, self.name)
            if state is None:
                state = add_view(self.database.execute, self.name, self.run.flow_id, self.by)
            self._check_owner(state)
            state = replace(state, writer=self.run.writer)
            if state.run_id == self.run.run_id and state.epoch is not None:
                was_rewound = state.rewinds != self.run.rewinds
                last = self.run.last_epoch + (0 if was_rewound else 1)
                if state.epoch > last:
                    state = self._set_back(state, last)
                state = replace(state, rewinds=self.run.rewinds)
            write_state(self.database.execute, state)
        return state

    def commit(self, epoch: int, rows: Sequence[ViewRow]) -> None:
        """Write the rows of an epoch and its number in one transaction.

        An epoch that the view has already is undone before it is written again. The first epoch of
        a run on another checkpoint replaces all entries.

        Raises:
            SinkError: when another run writes the view, or the view cannot be set back.
        """
        with self.database.transaction():
            state = read_state(self.database.execute, self.name)
            if state is None or state.writer != self.run.writer:
                raise SinkError(
                    f"view {self.name!r} was opened by another process: run one process on a "
                    "checkpoint, and give each flow a file of its own"
                )
            if state.run_id != self.run.run_id:
                self.database.execute(f"DELETE FROM {state.entries}")
                self.database.execute(f"DELETE FROM {state.undo}")
                state = replace(state, epoch=None, undo_to=epoch - 1)
            elif state.epoch is not None and state.epoch >= epoch:
                state = self._set_back(state, epoch - 1)
            # In the order of the tables, rows of one page follow one another.
            self._write(state, epoch, sorted(rows))
            write_state(self.database.execute, self._after(state, epoch))

    def _after(self, state: ViewState, epoch: int) -> ViewState:
        """Return the state after an epoch, and remove what cannot be undone any more."""
        undo_to = epoch - self.run.keep_epochs
        if state.undo_to is not None:
            undo_to = max(undo_to, state.undo_to)
        self.database.execute(f"DELETE FROM {state.undo} WHERE at_epoch <= ?", (undo_to,))
        return replace(
            state, run_id=self.run.run_id, epoch=epoch, rewinds=self.run.rewinds, undo_to=undo_to
        )

    def _write(self, state: ViewState, epoch: int, rows: Sequence[ViewRow]) -> None:
        repeat = self.database.execute_many
        if self.run.keep_epochs:
            repeat(
                f"INSERT INTO {state.undo} (at_epoch, {COLUMNS}) "
                "SELECT ?, place.key, place.slot, window_id, open_us, close_us, value, epoch "
                "FROM (SELECT ? AS key, ? AS slot) AS place "
                f"LEFT JOIN {state.entries} AS old "
                "ON old.key = place.key AND old.slot = place.slot",
                [(epoch, row.key, row.slot) for row in rows],
            )
        repeat(
            f"DELETE FROM {state.entries} WHERE key = ? AND slot = ? AND (NOT ? OR window_id IS ?)",
            [
                (row.key, row.slot, row.is_retraction, row.window_id)
                for row in rows
                if row.value is None
            ],
        )
        repeat(
            f"INSERT OR REPLACE INTO {state.entries} ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(*row[:6], epoch) for row in rows if row.value is not None],
        )
        if self.keep.windows is not None:
            self._keep_newest(state, epoch, self.keep.windows, sorted({row.key for row in rows}))
        if self.keep.us is not None:
            self._keep_recent(state, epoch, self.keep.us)

    def _keep_newest(self, state: ViewState, epoch: int, count: int, keys: Sequence[str]) -> None:
        """Remove the windows of keys beyond a number of newest ones."""
        condition = (
            f"key = ?1 AND (open_us, slot) < (SELECT open_us, slot FROM {state.entries} "
            "WHERE key = ?1 ORDER BY open_us DESC, slot DESC LIMIT 1 OFFSET ?2)"
        )
        self._remove(state, epoch, condition, [(key, count - 1) for key in keys])

    def _keep_recent(self, state: ViewState, epoch: int, keep_us: int) -> None:
        """Remove the windows that closed long before the newest window opened."""
        ((newest_us,),) = self.database.execute(f"SELECT max(open_us) FROM {state.entries}")
        if newest_us is not None:
            condition = "open_us < ?1 AND close_us < ?1"
            self._remove(state, epoch, condition, [(newest_us - keep_us,)])

    def _remove(
        self, state: ViewState, epoch: int, condition: str, parameters: Sequence[Row]
    ) -> None:
        """Remove the entries of a condition. Entries that the epoch wrote are in `undo` already."""
        if self.run.keep_epochs:
            number = len(parameters[0]) + 1 if parameters else 1
            self.database.execute_many(
                f"INSERT OR IGNORE INTO {state.undo} (at_epoch, {COLUMNS}) "
                f"SELECT ?{number}, {COLUMNS} FROM {state.entries} WHERE {condition}",
                [(*values, epoch) for values in parameters],
            )
        self.database.execute_many(f"DELETE FROM {state.entries} WHERE {condition}", parameters)

    def _set_back(self, state: ViewState, epoch: int) -> ViewState:
        """Return the state of a view as of the end of an earlier epoch, after its entries."""
        if state.undo_to is None or epoch < state.undo_to:
            raise SinkError(
                f"view {self.name!r} holds epochs up to {state.epoch}, and can be set back to "
                f"epoch {state.undo_to}, but the checkpoint was set back to epoch {epoch}: rename "
                "the output, or remove the file of views; the new view then has the keys of later "
                "epochs only. RecoveryConfig(keep_epochs=) sets how far a view can be set back"
            )
        ask = self.database.execute
        undone = ask(
            f"SELECT DISTINCT at_epoch FROM {state.undo} WHERE at_epoch > ? ORDER BY at_epoch DESC",
            (epoch,),
        )
        for parameters in undone:
            ask(
                f"DELETE FROM {state.entries} WHERE (key, slot) IN "
                f"(SELECT key, slot FROM {state.undo} WHERE at_epoch = ?)",
                parameters,
            )
            ask(
                f"INSERT INTO {state.entries} ({COLUMNS}) SELECT {COLUMNS} "
                f"FROM {state.undo} WHERE at_epoch = ? AND value IS NOT NULL",
                parameters,
            )
        ask(f"DELETE FROM {state.undo} WHERE at_epoch > ?", (epoch,))
        return replace(state, epoch=epoch)

    def _check_owner(self, state: ViewState) -> None:
        if state.flow_id != self.run.flow_id:
            raise SinkError(
                f"view {self.name!r} belongs to flow {state.flow_id!r}, not to "
                f"{self.run.flow_id!r}: give each flow a file of its own"
            )
        if state.by != self.by:
            raise SinkError(
                f"view {self.name!r} has an entry for each {state.by}, and the sink has "
                f"by={self.by!r}: rename the output, or remove the file of views"
            )
