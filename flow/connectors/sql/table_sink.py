"""Base of the sinks that write tables: rows made in the workers, and transactions on the driver."""

from __future__ import annotations

import contextlib
import functools
import pickle
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import pyarrow as pa
from typing_extensions import override

from flow.checks import call_text, check_choice, given_arguments
from flow.columns.record_batches import rows_as_dicts
from flow.connectors.formats.columns import Schema, as_schema, column_of
from flow.connectors.sink import Guarantee, Sink, SinkBatch, WriteContext, to_record
from flow.connectors.sql.database import (
    Change,
    Database,
    Dialect,
    Entry,
    Ledger,
    Row,
    RowGroup,
    Statements,
    TableName,
    Todo,
    ValueConverter,
)
from flow.errors import FlowBuildError, FlowTypeError, SinkError, shorten, step_error

CHUNK_ROWS = 5_000
"""Rows in memory at a time while an epoch is written, beside their pickled form."""

_Shape: TypeAlias = "tuple[Change, tuple[str, ...]]"

_Record: TypeAlias = Mapping[Any, Any]

_FIX = "give its column a type that holds it, or map the items before the output"

_REFUSED = (TypeError, ValueError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Delete:
    """Item that deletes a row, for sinks with ``mode="upsert"``.

    A window with ``emit="update"`` can retract results: map the records of `flow.operators.records`
    whose ``is_retraction`` is True to this. The value of a ``(key, value)`` pair may be a `Delete`.

    Args:
        record: record with the columns of the sink's key; other fields are ignored.

    >>> Delete({"key": "LHR", "hour": 3}).record["hour"]
    3
    """

    record: Any


@dataclass(frozen=True)
class Chunk:
    """Rows of one partition and epoch, pickled.

    Attributes:
        step_id: id of the output's step.
        count: number of rows.
        rewinds: the number of times that the run was set back, see `WriteContext`.
        content: the rows, pickled, so that one chunk at a time is in memory as objects.
    """

    step_id: str
    count: int
    rewinds: int
    content: bytes

    def unpack(self) -> list[RowGroup]:
        """Return the rows, in order."""
        return [RowGroup(*one) for one in pickle.loads(self.content)]


@dataclass(frozen=True)
class RowMaker:
    """Conversion of one worker's items to rows.

    Attributes:
        context: position in the output.
        convert: function that turns a value into the database driver's form.
        key: columns of the key; empty if rows are only inserted.
        numbers: the columns of a schema whose values a database might round.
    """

    context: WriteContext
    convert: ValueConverter
    key: tuple[str, ...]
    numbers: Sequence[Any]

    def chunks(self, batches: Iterable[SinkBatch]) -> Iterator[Chunk]:
        """Yield the items as chunks, in order."""
        rows = self._rows(batches)
        while some := list(islice(rows, CHUNK_ROWS)):
            for column in self.numbers:
                values = [record.get(column.name) for *_, record in some]
                fitted = column_of(column.name, values, column.type, self.context.step_id, _FIX)
                if pa.types.is_decimal(column.type):  # Equal numbers have one text, as a key.
                    fits = zip(some, map(self.convert, fitted.to_pylist()), strict=True)
                    some = [_with(*one, column.name, text) for one, text in fits]
            yield self._pack(some)

    def _rows(self, batches: Iterable[SinkBatch]) -> Iterator[tuple[_Shape, Row, _Record]]:
        known: dict[tuple[Change, tuple[Any, ...]], _Shape] = {}
        for item in _items(batches):
            change, record = self._change_of(item)
            names = tuple(record)
            shape = known.get((change, names))
            if shape is None:
                self._check_columns(names, item)
                # Sorted, so that records with the same fields in another order share a group.
                shape = known[change, names] = (change, tuple(sorted(names)))
            yield shape, self._row(record, shape[1]), record

    def _change_of(self, item: Any) -> tuple[Change, _Record]:
        match item:
            case dict():
                return Change.PUT, item
            case (str(key), Delete(record)):
                record = to_record((key, record))
            case Delete(record):
                record = to_record(record)
            case _:
                return Change.PUT, to_record(item)
        if not self.key:
            problem = "a Delete needs a sink with mode='upsert', whose key identifies the row"
            raise step_error(self.context.step_id, problem, item=item)
        self._check_columns(tuple(record), item)
        return Change.DELETE, {name: record[name] for name in self.key}

    def _check_columns(self, names: tuple[Any, ...], item: Any) -> None:
        problem = ""
        strange = [name for name in names if not isinstance(name, str)]
        missing = [name for name in self.key if name not in names]
        if not names:
            problem = "the record has no field to write"
        elif strange:
            problem = f"names of columns must be text, got {shorten(strange[0])}"
        elif missing:
            problem = f"the record lacks column {missing[0]!r} of the key {self.key}"
        if problem:
            raise step_error(self.context.step_id, problem, item=item)

    def _row(self, record: _Record, columns: tuple[str, ...]) -> Row:
        try:
            row = tuple(map(self.convert, map(record.__getitem__, columns)))
        except _REFUSED:
            self._explain(record)
            raise
        if self.key and any(record[name] is None for name in self.key):
            problem = f"a column of the key {self.key} is None, which identifies no row"
            raise step_error(self.context.step_id, problem, item=record)
        return row

    def _explain(self, record: _Record) -> None:
        for name, value in record.items():
            try:
                self.convert(value)
            except _REFUSED as error:
                raise SinkError(
                    f"step {self.context.step_id!r}: column {name!r} cannot hold "
                    f"{type(value).__name__} {shorten(value)}: {error}"
                ) from error

    def _pack(self, shaped: list[tuple[_Shape, Row, _Record]]) -> Chunk:
        groups = [
            (change, columns, [row for _, row, _ in some])
            for (change, columns), some in groupby(shaped, itemgetter(0))
        ]
        context, content = self.context, pickle.dumps(groups, 5)
        return Chunk(context.step_id, len(shaped), context.rewinds, content)


def _with(
    shape: _Shape, row: Row, record: _Record, name: str, value: Any
) -> tuple[_Shape, Row, _Record]:
    """Return a row with another value of a column, if it has the column."""
    pairs = zip(shape[1], row, strict=True)
    return shape, tuple(value if column == name else old for column, old in pairs), record


def _items(batches: Iterable[SinkBatch]) -> Iterator[Any]:
    for batch in batches:
        if isinstance(batch, list):
            yield from batch
        else:
            for start in range(0, batch.num_rows, CHUNK_ROWS):
                yield from rows_as_dicts(batch.slice(start, CHUNK_ROWS))


Mode: TypeAlias = Literal["insert", "upsert"]
"""Write mode: rows are added, or replace the rows with the same key."""


@dataclass(frozen=True)
class _Run:
    """State of a sink that is open."""

    database: Database
    statements: Statements
    columns: tuple[str, ...]
    ledger: Ledger
    writer: str


@dataclass(frozen=True)
class TableSink(Sink[Any]):
    """Base of the sinks that write tables, which describe the arguments."""

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("key",)

    _: KW_ONLY
    mode: Mode = "insert"
    key: str | Sequence[str] = ()
    schema: Schema | str | None = None
    # At most one run: a list, as the sink itself is frozen.
    _runs: list[_Run] = field(default_factory=list, init=False, repr=False, compare=False)

    guarantee = Guarantee.EXACTLY_ONCE
    lays_out = True
    dialect: ClassVar[Dialect]

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, get_args(Mode))
        key = (self.key,) if isinstance(self.key, str) else self.key
        object.__setattr__(self, "key", _as_names("key", key))
        object.__setattr__(self, "schema", _as_columns(self.schema, self.dialect))
        self._check_combination()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the connection from the copies of workers, which only make rows."""
        return {**self.__dict__, "_runs": []}

    def __repr__(self) -> str:
        return call_text(self, self.arguments())

    @override
    def check(self, resuming: bool) -> None:
        opening = self._explained(f"{self} cannot be opened")
        with opening, contextlib.closing(self.connect()) as database:
            if self.schema is None and database.find_table(self.table_name()) is None:
                raise self._missing()

    @override
    def open(self, run_id: str, resuming: bool) -> None:
        if self._runs:
            raise SinkError(
                f"{self} is the sink of several outputs: merge their streams before one output, or "
                "give each output a sink and a table of its own"
            )
        with self._explained(f"{self} cannot be opened"):
            database = self.connect()
            try:
                with database.transaction():
                    run = self._set_up(database, run_id)
            except BaseException:
                database.close()
                raise
        self._runs.append(run)

    @override
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> list[Chunk]:
        columns = self.schema if isinstance(self.schema, pa.Schema) else ()
        is_number = (pa.types.is_floating, pa.types.is_decimal)
        numbers = [column for column in columns if any(test(column.type) for test in is_number)]
        maker = RowMaker(context, self.dialect.convert, tuple(self.key), numbers)
        return list(maker.chunks(batches))

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        if not self._runs:
            raise SinkError(f"{self} is not open")
        (run,) = self._runs
        chunks: list[Chunk] = [chunk for message in messages for chunk in message]
        step = f"step {chunks[0].step_id!r}: " if chunks else ""
        what = f"{step}epoch {epoch} could not be written to {self}"
        with self._explained(what), run.database.transaction():
            entry = self._locked_entry(run)
            count = sum(chunk.count for chunk in chunks)
            rewinds = max((chunk.rewinds for chunk in chunks), default=0)
            todo = entry.todo(epoch, count, rewinds, replaces=self.mode == "upsert")
            if todo is Todo.REFUSE:
                raise SinkError(step + self._set_back_problem(run, entry, epoch, count))
            if todo is Todo.WRITE:
                for chunk in chunks:
                    self._write_chunk(run, chunk)
                run.ledger.update(run.database, Entry(epoch, count, rewinds, entry.writer))

    @override
    def close(self) -> None:
        while self._runs:
            self._runs.pop().database.close()

    @abstractmethod
    def __str__(self) -> str:
        """Return the table and its database, as errors show them."""

    @abstractmethod
    def connect(self) -> Database:
        """Return a new connection to the database."""

    @abstractmethod
    def table_name(self) -> TableName:
        """Return the name of the table in its parts."""

    @abstractmethod
    def epochs_table(self, table: TableName) -> TableName:
        """Return the name of the table of epochs, given the full name of the table."""

    @abstractmethod
    def driver_errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions of the database's driver."""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that differ from their defaults, without secrets."""
        return given_arguments(self)

    def explanation(self, error: Exception) -> str:
        """Return the text of a driver's error, without secrets."""
        return "\n".join([str(error).strip(), *getattr(error, "__notes__", [])])

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except self.driver_errors() as error:
            text = self.explanation(error)
            # Tracebacks show a cause with its own text, which may hold a secret.
            cause = error if str(error).strip() in text else None
            raise SinkError(f"{what}: {text}") from cause

    def _set_up(self, database: Database, run_id: str) -> _Run:
        database.set_up_alone()
        table = database.find_table(self.table_name()) or self._create(database)
        statements = Statements(self.dialect, table)
        columns = tuple(database.columns_of(table))
        for name in self.key:
            if name not in columns:
                raise SinkError(
                    f"{self} has no column {name!r}, its columns are {shorten(list(columns))}: "
                    "add it to the table, or name another one"
                )
        if self.key:
            self._check_key(database, statements)
        ledger = Ledger(self.dialect, self.epochs_table(table), ".".join(table), run_id)
        ledger.make(database)
        writer = uuid.uuid4().hex
        ledger.claim(database, writer)
        return _Run(database, statements, columns, ledger, writer)

    def _create(self, database: Database) -> TableName:
        if self.schema is None:
            raise self._missing()
        statements = Statements(self.dialect, self.table_name())
        columns: Any = self.schema
        database.execute(statements.create(columns, tuple(self.key)))
        return database.find_table(self.table_name()) or self.table_name()

    def _missing(self) -> SinkError:
        fix = "create it, or give the sink a schema to create it from"
        return SinkError(f"{self} does not exist: {fix}")

    def _check_key(self, database: Database, statements: Statements) -> None:
        try:
            database.execute(statements.check_key(tuple(self.key)))
        except self.driver_errors() as error:
            raise SinkError(
                f"{self} cannot be written with mode='upsert': a primary key or a unique index on "
                f"exactly its key columns {self.key} is needed ({self.explanation(error)})"
            ) from error

    def _locked_entry(self, run: _Run) -> Entry:
        entry = run.ledger.read(run.database)
        if entry is None or entry.writer != run.writer:
            raise SinkError(
                f"{self} was opened for the same run by another output of the flow, or by another "
                "process on the same checkpoint: merge the streams of the outputs or give each a "
                "table of its own, and run one process on a checkpoint"
            )
        return entry

    def _write_chunk(self, run: _Run, chunk: Chunk) -> None:
        rows = chunk.unpack()
        for name in dict.fromkeys(name for group in rows for name in group.columns):
            if name not in run.columns:
                raise SinkError(
                    f"step {chunk.step_id!r}: {self} has no column {name!r}, its columns are "
                    f"{shorten(list(run.columns))}: map the items to records with these names "
                    "(op.records makes records of the results of windows), or add the column to "
                    "the table"
                )
        if self.mode == "insert":
            run.database.load(run.statements.table, rows)
        else:
            self._change(run, rows)

    def _change(self, run: _Run, rows: Sequence[RowGroup]) -> None:
        """Upsert and delete rows by their key."""
        key = tuple(self.key)

        @functools.cache
        def statement(change: Change, columns: tuple[str, ...]) -> str:
            if change is Change.DELETE:
                return run.statements.delete(columns)
            return run.statements.upsert(columns, key)

        run.database.execute_in_turn(
            (statement(group.change, group.columns), group.rows) for group in rows
        )

    def _set_back_problem(self, run: _Run, entry: Entry, epoch: int, count: int) -> str:
        found = f"rows of this run up to epoch {entry.epoch}, and the run was set back to {epoch}"
        if entry.epoch == epoch and entry.row_count != count:
            found = f"{entry.row_count} rows of epoch {epoch} of this run, which has {count} now"
        return (
            f"{self} holds {found}: rows would be doubled, or left out. Either write to "
            f"another table; or delete the rows that epochs from {epoch} on have written, run the "
            f"statement\n  {run.ledger.delete_statement()}\nand start the flow again. With "
            "mode='upsert' rows that are written again replace themselves"
        )

    def _check_combination(self) -> None:
        """Raise a `FlowBuildError` for arguments that exclude each other."""
        if (self.mode == "upsert") != bool(self.key):
            raise FlowBuildError(
                f"key names the columns that mode='upsert' finds rows by: give both or neither, "
                f"got mode={self.mode!r} and key={shorten(self.key)}"
            )
        names = getattr(self.schema, "names", self.key)
        for name in self.key:
            if name not in names:
                raise FlowBuildError(f"key: {name!r} is not in the schema, which has {names}")


def check_table_name(parts: tuple[object, ...]) -> None:
    """Raise unless all parts of a table's name can be names."""
    for part in parts:
        if not isinstance(part, str) or not part or "\0" in part:
            raise FlowTypeError(f"table must be a table's name, got {shorten(part)}")


def _as_names(parameter: str, names: object) -> tuple[str, ...]:
    listed = tuple(names) if isinstance(names, (list, tuple)) else (names,)
    for name in listed:
        if not isinstance(name, str) or not name or "\0" in name:
            raise FlowTypeError(f"{parameter} must name columns, got {shorten(names)}")
    if len(set(listed)) < len(listed):
        raise FlowBuildError(f"{parameter} must name each column once, got {shorten(names)}")
    return listed


def _as_columns(schema: object, dialect: Dialect) -> Any:
    if isinstance(schema, str):
        if not schema.strip():
            raise FlowBuildError("schema must have columns, got empty text")
        return schema
    checked = as_schema(schema)
    for column in () if checked is None else checked:
        if dialect.column_type(column.type) is None:
            raise FlowBuildError(
                f"schema: column {column.name!r} is {column.type}, which has no SQL type "
                "(a timestamp needs a time zone): choose another type, or write the schema "
                "as SQL text"
            )
    return checked
