"""`ViewSink`: the newest value of each key, or of each window, as a sink."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import chain
from typing import Any

from typing_extensions import override

from flow.checks import check_choice, check_getter, check_whole
from flow.connectors.sink import Guarantee, OutputContext, Sink, SinkBatch, WriteContext
from flow.connectors.source import Dataset
from flow.connectors.sql.sqlite import SqliteDatabase
from flow.durations import Duration, positive_us
from flow.errors import FlowBuildError, SinkError, printable
from flow.views.rows import By, RowMaker, ViewRow, last_rows
from flow.views.views_file import beside, check_path, opened_for_writing, reason_of
from flow.views.writing import Keep, ViewRun, ViewWriter

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
    entry, and so does a retraction. Values become JSON, by the table in `flow.views.encoding`.

    Of several values of an entry in an epoch, the last one stays. Values of one key have a defined
    order after a keyed step. Without a keyed step, the order across source partitions is arbitrary.

    The entries that an epoch changes are in the memory of the driver, and the cost of an epoch
    follows their number. A run on another checkpoint, and so each batch, replaces all entries as it
    commits its first epoch. A rewind of the checkpoint sets the view back too, when the next run
    starts.

    Args:
        key: for items that are no pairs: a field's path, or a function, that gives the key. The
            value is then the whole item.
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
        named = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.init}
        shown = (f"{name}={value!r}" for name, value in named.items() if name != "by" and value)
        by = [] if self.by == "key" else [f"by={self.by!r}"]
        return f"ViewSink({', '.join([*by, *shown])})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the connection from the copies of workers, which only make rows."""
        return {**self.__dict__, "_open": _Open()}

    @property
    def file(self) -> str | None:
        """The path of the view's file, once a run in this process has opened it."""
        return self._open.file or None

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
