"""`ViewSink`: a sink of the newest value of each key or window, and the writes of its epochs.

Each epoch is written in one transaction with its number.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import chain
from operator import itemgetter
from typing import Any, ClassVar

from typing_extensions import override

from flow.checks import call_text, check_choice, check_getter, check_whole, given_arguments
from flow.connectors.sink import Guarantee, OutputContext, Sink, SinkBatch, WriteContext
from flow.connectors.source import Dataset
from flow.connectors.sql.database import Database, Row
from flow.connectors.sql.sqlite import SqliteDatabase
from flow.durations import Duration, positive_us
from flow.errors import FlowBuildError, SinkError, printable
from flow.views.view_rows import By, RowMaker, ViewRow, last_rows
from flow.views.views_file import (
    COLUMNS,
    ViewState,
    add_view,
    beside,
    check_path,
    opened_for_writing,
    read_state,
    reason_of,
    write_state,
)

logger = logging.getLogger("flow")


@dataclass
class _Open:
    """Mutable state of a sink, which is frozen: its output, and the view while a run writes it."""

    output: OutputContext | None = None
    database: SqliteDatabase | None = None
    writer: ViewWriter | None = None
    file: str = ""


@dataclass(frozen=True, repr=False)
class ViewSink(Sink[Any]):
    """Sink that keeps the newest value of each key, or of each window, for readers, exactly once.

    The view has the name of the output's step, and is in an SQLite file beside the checkpoint.
    `flow.views.open` reads it, also while the flow runs. A reader sees whole committed epochs only,
    and each answer names its epoch.

    Items are ``(key, value)`` pairs with text as key. A value that is the result of a windowing
    step, ``(metadata, value)``, is stored with the window's bounds. The value ``None`` removes the
    entry, and so does a retraction. Values become JSON, by the table in `flow.views.view_rows`.

    Of several values of an entry in an epoch, the last one stays. Values of one key have a defined
    order after a keyed step. Without a keyed step, the order across source partitions is arbitrary.

    The entries that an epoch changes are in the memory of the driver, and the cost of an epoch
    follows their number. A run on another checkpoint, and so each batch, replaces all entries as it
    commits its first epoch. A rewind of the checkpoint sets the view back too, when the next run
    starts.

    Args:
        key: for items that are no pairs: a field's path, as in `flow.operators.key_on`, or a
            function, that gives the key. The value is then the whole item.
        by: ``"key"`` for an entry of each key; ``"window"`` for an entry of each window of a key,
            by the window's id.
        keep: with ``by="window"``, the windows to keep: a number of newest windows for each key, or
            a duration: windows that closed longer than this before the newest window of the view
            opened are removed. By default, all windows stay.
        path: the SQLite file, on a local disk. Needed for a run without a checkpoint, and for a
            checkpoint on another file system. Several outputs of a flow may share a file.

    Raises:
        FlowBuildError: an argument is wrong.
        SinkError: when the flow runs: the file cannot be used, or belongs to something else.
        StepError: when the flow runs: an item has no key, or a value has no form in JSON.

    >>> ViewSink(by="window", keep="7d")
    ViewSink(by='window', keep='7d')
    """

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("key",)

    _: KW_ONLY
    key: str | Callable[[Any], str] | None = None
    by: By = "key"
    keep: int | Duration | None = None
    path: str | os.PathLike[str] | None = None
    _open: _Open = field(default_factory=_Open, init=False, repr=False, compare=False)

    guarantee = Guarantee.EXACTLY_ONCE

    def __post_init__(self) -> None:
        check_choice("ViewSink: by", self.by, ("key", "window"))
        if self.key is not None:
            check_getter("ViewSink: key", self.key, "user.id")
        if self.keep is not None and self.by != "window":
            raise FlowBuildError(
                f"ViewSink: keep={self.keep!r} limits windows, which by='key' has not: use "
                "by='window', or leave out keep"
            )
        self.kept()
        if self.path is not None:
            object.__setattr__(self, "path", check_path("ViewSink", self.path))

    def __repr__(self) -> str:
        return call_text(self, given_arguments(self))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the connection from the copies of workers, which only make rows."""
        return {**self.__dict__, "_open": _Open()}

    @property
    def file(self) -> str | None:
        """The path of the view's file, once it is opened or located in this process."""
        return self._open.file or None

    def locate(self, checkpoint: str) -> None:
        """Set the path of the file, which another process opens.

        Args:
            checkpoint: the directory of the run's checkpoint.
        """
        self._open.file = beside(checkpoint) if self.path is None else os.path.abspath(self.path)

    def kept(self) -> Keep:
        """Return the windows to keep.

        Raises:
            FlowBuildError: when `keep` is neither a positive number nor a positive duration.
        """
        if self.keep is None:
            return Keep()
        if isinstance(self.keep, (int, float)):
            check_whole("ViewSink: keep", self.keep, 1)
            return Keep(windows=int(self.keep))
        return Keep(us=positive_us(self.keep, "ViewSink: keep"))

    @override
    def datasets(self) -> Sequence[Dataset]:
        file = self.file if self.path is None else os.path.abspath(self.path)
        return () if file is None else (Dataset("file", file),)

    @override
    def attach(self, output: OutputContext) -> None:
        if self._open.output is not None:
            raise SinkError(
                f"{self!r} is the sink of several outputs: give each output a sink of its own"
            )
        self._open.output = output

    @override
    def open(self, run_id: str, resuming: bool) -> None:
        output = self._open.output
        if output is None:
            raise SinkError(
                f"{self!r} does not know its output: a sink that wraps it must pass on attach()"
            )
        file = self._open.file = self._file_of(output)
        with self._explained("cannot be opened"):
            database = self._open.database = opened_for_writing(file)
            name, run = output.step_id, _run_of(output, run_id)
            writer = ViewWriter(database, name, self.by, self.kept(), run)
            state = writer.open()
        if resuming and run.last_epoch >= 0:
            _warn_of_gaps(name, file, state.epoch if state.run_id == run_id else None, run)
        self._open.writer = writer

    @override
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> list[ViewRow]:
        return RowMaker(context.step_id, self.by, self.key).rows(batches)

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        writer = self._open.writer
        if writer is None:
            raise SinkError(f"{self!r} is not open")
        rows = messages[0] if len(messages) == 1 else last_rows(chain.from_iterable(messages))
        with self._explained(f"could not take epoch {epoch}"):
            writer.commit(epoch, rows)

    @override
    def close(self) -> None:
        opened, database = self._open, self._open.database
        opened.output = opened.database = opened.writer = None
        if database is not None:
            database.close()

    def _file_of(self, output: OutputContext) -> str:
        if self.path is not None:
            return os.path.abspath(self.path)
        checkpoint = output.checkpoint
        fix = "give the sink a file on a local disk, ViewSink(path=...)"
        if checkpoint is None:
            raise SinkError(
                f"step {output.step_id!r}: a view is beside the checkpoint, and this run has none: "
                f"{fix}, or run with recovery="
            )
        if checkpoint.directory is None:
            raise SinkError(
                f"step {output.step_id!r}: a view is beside the checkpoint, but SQLite needs a "
                f"local disk, and {checkpoint.root} is on another file system: {fix}"
            )
        return beside(checkpoint.directory)

    @contextlib.contextmanager
    def _explained(self, problem: str) -> Iterator[None]:
        """Raise an error of the database, or of a view, as a `SinkError` with step and file."""
        output = self._open.output
        step = f"step {output.step_id!r}: " if output is not None else ""
        try:
            yield
        except SinkError as error:
            raise SinkError(f"{step}{self._open.file}: {error}") from error.__cause__
        except (sqlite3.Error, OSError) as error:
            reason = reason_of(error)
            raise SinkError(f"{step}{self._open.file} {problem}: {reason}") from error


def _run_of(output: OutputContext, run_id: str) -> ViewRun:
    ids, checkpoint = (output.flow_id, run_id, uuid.uuid4().hex), output.checkpoint
    if checkpoint is None:
        return ViewRun(*ids)
    keep_epochs = max(1, checkpoint.keep_epochs)
    return ViewRun(*ids, checkpoint.rewinds, checkpoint.last_epoch, keep_epochs)


def _warn_of_gaps(name: str, file: str, epoch: int | None, run: ViewRun) -> None:
    """Log a warning if a view lacks epochs that the checkpoint has as done."""
    if epoch is None:
        problem = f"it has the keys of epochs from {run.last_epoch + 1} on only"
    elif epoch < run.last_epoch:
        problem = f"it lacks the epochs from {epoch + 1} to {run.last_epoch}"
    else:
        return
    logger.warning("step %r: view in %s: %s", name, printable(file), problem)


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
        """Claim the view for the run, and undo epochs that the checkpoint no longer has.

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
            self._write(state, epoch, sorted(rows, key=itemgetter(0, 1)))
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
                f"INSERT OR IGNORE INTO {state.undo} (at_epoch, {COLUMNS}) "
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
