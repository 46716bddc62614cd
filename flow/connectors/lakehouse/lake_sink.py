"""Sink that writes a table of a lakehouse: files by the workers, one commit an epoch by the driver.

A commit also keeps the number of its epoch, and the number of rewinds before it, as a part of the
table's state. By them an epoch is known again.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from flow.checks import check_choice, checked_texts
from flow.connectors.formats.columns import (
    Schema,
    as_columns,
    as_schema,
    fit,
    merge_small,
    typed_batches,
    widen,
)
from flow.connectors.lakehouse.lake_place import LakePlace, StoredTypes, with_hidden_options
from flow.connectors.sink import (
    Guarantee,
    OutputContext,
    Sink,
    SinkBatch,
    WriteContext,
    to_record,
)
from flow.errors import FlowBuildError, SinkError, shorten

Mode: TypeAlias = Literal["append", "upsert"]
"""Write mode: rows are added, or replace the rows with the same key."""

AfterRewind: TypeAlias = Literal["refuse", "write"]

MARK = "is_retraction"
"""Column that marks a retraction, in the layout of results of windows."""

DELETED = "_flow_deleted"
"""Column of rows to merge that is true for those to delete."""

_TRIES = 10
_PAUSE = 0.05
"""Seconds before a commit is tried again, doubled each time."""

_LONGEST_PAUSE = 5.0


@dataclass(frozen=True)
class Message:
    """Message of a task: files to append, and rows that the driver is to write.

    Attributes:
        context: position in the output.
        files: data files, as the format has them.
        rows: record batches.
        schemas: the columns of the files and rows.
    """

    context: WriteContext
    files: Sequence[Any] = ()
    rows: Sequence[pa.RecordBatch] = ()
    schemas: Sequence[pa.Schema] = ()


@dataclass(frozen=True)
class LastEpoch:
    """Last epoch of an output that a table has, and the number of rewinds before it."""

    epoch: int
    rewinds: int


@dataclass
class _Run:
    """State of a sink during a run: its id, and the table once it exists."""

    run_id: str = ""
    table: Any = None
    output: OutputContext = field(default_factory=lambda: OutputContext("", ""))


@dataclass(frozen=True, repr=False)
class LakeSink(Sink[Any]):
    """Base of sinks to tables of a lakehouse; see `DeltaSink` for the arguments."""

    _: KW_ONLY
    mode: Mode = "append"
    key: str | Sequence[str] = ("key", "window_id")
    partition_by: str | Sequence[str] = ()
    schema: Schema | None = None
    schema_mode: Literal["merge"] | None = None
    after_rewind: AfterRewind = "refuse"
    _run: _Run = field(default_factory=_Run, init=False, repr=False, compare=False)

    guarantee = Guarantee.EXACTLY_ONCE
    lays_out = True
    TYPES: ClassVar[StoredTypes]

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, get_args(Mode))
        check_choice("after_rewind", self.after_rewind, get_args(AfterRewind))
        if self.schema_mode is not None:
            check_choice("schema_mode", self.schema_mode, ("merge",))
        for name in ("key", "partition_by"):
            given = getattr(self, name)
            names = checked_texts(
                f"{name} must name columns", [given] if isinstance(given, str) else given
            )
            object.__setattr__(self, name, names)
        schema = as_schema(self.schema)
        object.__setattr__(self, "schema", schema and self.TYPES.storable(schema, "schema"))
        needed = (*self.partition_by, *(self.key if self.mode == "upsert" else ()))
        for name in needed if schema is not None else ():
            if name not in schema.names:
                raise FlowBuildError(
                    f"column {name!r} is not in the schema, which has {schema.names}"
                )
        if self.mode == "upsert" and not self.key:
            raise FlowBuildError(
                "key must name the columns that mode='upsert' finds rows by, got none"
            )

    __repr__ = with_hidden_options

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the table from the copies of workers."""
        return {**self.__dict__, "_run": _Run()}

    @property
    def NAMES_FIELDS(self) -> tuple[str, ...]:
        """The arguments that name fields of items."""
        return ("key", "partition_by") if self.mode == "upsert" else ("partition_by",)

    @property
    def _refuses_rewinds(self) -> bool:
        return self.mode == "append" and self.after_rewind == "refuse"

    # --- the format ---

    @property
    @abstractmethod
    def place(self) -> LakePlace:
        """The place of the table."""

    @abstractmethod
    def _columns(self, table: Any) -> pa.Schema:
        """Return the columns of a table; no columns if there is no table."""

    @abstractmethod
    def _partitions(self, table: Any) -> list[str]:
        """Return the columns by whose values the files of a table are divided."""

    def _check_format(self, table: Any) -> None:
        """Raise `SinkError` if the format has a reason not to write to a table."""

    @abstractmethod
    def _create(self, schema: pa.Schema) -> Any:
        """Create the table, or open the one that another program has just created."""

    @abstractmethod
    def _refresh(self, table: Any) -> None:
        """Bring a table to its newest version."""

    @abstractmethod
    def _last_epoch(self, table: Any, output: str) -> LastEpoch | None:
        """Return the last epoch of an output that a table has."""

    @abstractmethod
    def _way_back(self, table: Any, output: str, epoch: int) -> str:
        """Return the call that sets a table back to the end of an epoch, for an error."""

    @abstractmethod
    def _write_files(
        self, table: Any, rows: Iterator[pa.RecordBatch], context: WriteContext
    ) -> Message:
        """Write rows in a task, or pass on those that only the driver can write."""

    @abstractmethod
    def _publish(
        self, table: Any, new: pa.Schema, messages: Sequence[Message], context: WriteContext
    ) -> None:
        """Add columns and the rows of an epoch to a table, in one commit with its number."""

    @abstractmethod
    def _conflicts(self) -> tuple[type[Exception], ...]:
        """Return the exceptions of a commit that another writer was faster with."""

    # --- a run ---

    @override
    def check(self, resuming: bool) -> None:
        with self.place.opened() as table:
            self._checked(table)

    @override
    def attach(self, output: OutputContext) -> None:
        self._run.output = output

    @override
    def open(self, run_id: str, resuming: bool) -> None:
        table = self._checked(self.place.open())
        if table is None and self.schema is not None:
            table = self._create(self.schema)
        self._run.run_id, self._run.table = run_id, table
        if table is not None and self._refuses_rewinds:
            self._check_rewind(table)

    @override
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> Message:
        step_id = context.step_id
        with (
            self.place.opened() as table,
            self.place.explained(f"step {step_id!r}: {self.place} cannot be written to"),
        ):
            known = self._columns(table)
            if self.mode == "upsert":
                rows = list(self._marked(known, batches, step_id))
                return Message(context, rows=rows, schemas=[one.schema for one in rows])
            return self._write_files(table, self._rows(known, batches, step_id), context)

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        found: list[Message] = [one for one in messages if one.files or one.rows]
        if not found:
            return
        context = found[0].context
        problem = f"step {context.step_id!r}: epoch {epoch} cannot be committed to {self.place}"
        with self.place.explained(problem):
            _tried(lambda: self._commit(context, found), self._conflicts())

    @override
    def close(self) -> None:
        if self._run.table is not None:
            self.place.close(self._run.table)
        self._run.run_id, self._run.table = "", None

    # --- rows ---

    def _rows(
        self, known: pa.Schema, batches: Iterable[SinkBatch], step_id: str
    ) -> Iterator[pa.RecordBatch]:
        """Yield items as rows with types of the format."""
        if self.schema is not None:
            for written in merge_small(batches):
                yield as_columns(written, self.schema, step_id)
            return
        for rows in typed_batches(batches, known, step_id):
            yield fit(rows, self.TYPES.storable(rows.schema, step_id), step_id, whole=True)

    def _marked(
        self, known: pa.Schema, batches: Iterable[SinkBatch], step_id: str
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows with a column that marks those to delete."""
        for written in merge_small(batches):
            for rows in self._rows(known, [written], step_id):
                check_has(rows.schema, self.key, "key", step_id)
                if MARK in rows.schema.names and MARK not in known.names and self.schema is None:
                    rows = rows.drop_columns([MARK])
                yield rows.append_column(DELETED, _marks(written))

    def _merged(self, schema: pa.Schema, messages: Sequence[Message], step_id: str) -> pa.Table:
        """Return the last row of each key, with the columns of a schema and `DELETED`."""
        schema = schema.append(pa.field(DELETED, pa.bool_()))
        batches = [batch for message in messages for batch in message.rows]
        rows = pa.Table.from_batches([fit(one, schema, step_id, whole=True) for one in batches])
        for name in self.key:
            column = rows.column(name)
            if column.null_count:
                raise SinkError(
                    f"step {step_id!r}: column {name!r} of the key {tuple(self.key)} has a null, "
                    "which identifies no row: map the items before the output"
                )
            if pa.types.is_floating(column.type):  # -0.0 becomes 0.0, which equals it.
                number, zero = rows.column_names.index(name), pa.scalar(0, column.type)
                rows = rows.set_column(number, rows.schema.field(name), pc.add(column, zero))
        # By numbers, as Arrow takes a name that begins with a period for a path.
        names = list(map(str, range(len(self.key))))
        keys = rows.select(list(self.key)).rename_columns(names)
        numbered = keys.append_column("row", pa.array(np.arange(rows.num_rows)))
        return rows.take(numbered.group_by(names).aggregate([("row", "max")]).column("row_max"))

    # --- commits ---

    def _checked(self, table: Any) -> Any:
        """Return a table that the sink can write to, or raise `SinkError`."""
        if table is None:
            return None
        columns, partitions = self._columns(table).names, self._partitions(table)
        if self.partition_by and list(self.partition_by) != partitions:
            raise SinkError(
                f"{self.place} is partitioned by {partitions}, and not by "
                f"{list(self.partition_by)}: leave out partition_by, or write to another table"
            )
        self._check_format(table)
        for name in self.key if self.mode == "upsert" else ():
            if columns and name not in columns:
                raise SinkError(
                    f"{self.place} has no column {name!r} of the key {self.key}, its columns are "
                    f"{shorten(columns)}: name others by key=, or write to another table"
                )
        return table

    def _commit(self, context: WriteContext, messages: Sequence[Message]) -> None:
        """Commit an epoch to the newest version of the table, unless it is there."""
        table = self._run.table = self._run.table or self.place.open()
        if table is not None:
            self._refresh(table)
            done = self._last_epoch(table, output_of(context))
            if done is not None and done.epoch >= context.epoch:
                # A checkpoint that was put back from a copy has earlier epochs, with other rows.
                if done.epoch == context.epoch and done.rewinds >= context.rewinds:
                    return
                if self._refuses_rewinds:
                    raise SinkError(self._set_back_problem(table, context, context.epoch - 1))
        known, step_id = self._columns(table), context.step_id
        schema = known
        for one in (one for message in messages for one in message.schemas):
            schema = widen(schema, one, known.names, step_id)
        columns = [one for one in schema if one.name != DELETED]
        schema = self.TYPES.storable(pa.schema(columns), step_id)
        self._run.table = table = table or self._create(schema)
        there = self._columns(table).names
        new = [one for one in schema if one.name not in there]
        if new and self.schema_mode != "merge":
            raise SinkError(
                f"step {step_id!r}: {self.place} has no column {new[0].name!r}, its columns are "
                f"{shorten(there)}: pass schema_mode='merge' to add it, give the sink a schema, or "
                "map the items before the output"
            )
        self._publish(table, pa.schema(new), messages, context)

    # --- rewinds ---

    def _check_rewind(self, table: Any) -> None:
        """Raise `SinkError` if the table has epochs that a rewind of the checkpoint has undone."""
        output = self._run.output
        if output.checkpoint is None:
            return
        last, rewinds = output.checkpoint.last_epoch, output.checkpoint.rewinds
        context = WriteContext(output.step_id, last, 0, self._run.run_id, rewinds)
        done = self._last_epoch(table, output_of(context))
        if done is not None and done.epoch > last and done.rewinds < rewinds:
            raise SinkError(self._set_back_problem(table, context, last))

    def _set_back_problem(self, table: Any, context: WriteContext, last: int) -> str:
        output = output_of(context)
        done = self._last_epoch(table, output)
        return (
            f"step {context.step_id!r}: {self.place} holds rows up to epoch "
            f"{done and done.epoch} of this run, which was set back to epoch {last}: rows "
            "would be doubled, or left out. Either write to another table; or remove the rows of "
            f"later epochs, by {self._way_back(table, output, last)} if no other program has "
            "written since, and start the flow with after_rewind='write'. With mode='upsert' rows "
            "that are written again replace themselves"
        )


def output_of(context: WriteContext) -> str:
    """Return the id of an output of a run, as the commits of its epochs name it."""
    return f"{context.run_id}/{context.step_id}"


def _tried(commit: Callable[[], None], conflicts: tuple[type[Exception], ...]) -> None:
    """Commit, again if another writer was faster with a commit that is in the way."""
    for attempt in range(_TRIES):
        try:
            commit()
            return
        except conflicts:
            if attempt == _TRIES - 1:
                raise
        time.sleep(min(_PAUSE * 2**attempt, _LONGEST_PAUSE))


def check_has(schema: pa.Schema, names: Iterable[str], parameter: str, step_id: str) -> None:
    """Raise a `SinkError` if rows lack a column that a parameter names."""
    for name in names:
        if name not in schema.names:
            raise SinkError(
                f"step {step_id!r}: no item has a field {name!r}, which {parameter} names; the "
                f"fields are {shorten(schema.names)}: map the items before the output"
            )


def _marks(written: SinkBatch) -> Any:
    """Return a column that is true for retractions."""
    if isinstance(written, list):
        return pa.array([to_record(item).get(MARK) is True for item in written], pa.bool_())
    if MARK not in written.schema.names:
        return pa.repeat(pa.scalar(False), written.num_rows)
    return pc.fill_null(written.column(MARK), False)
