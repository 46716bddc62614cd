"""Sink that writes tables of Delta Lake: files by the workers, one commit an epoch by the driver.

A commit of an epoch has two application transactions of Delta, each an id with a number: that of
the output, with the number of the epoch, and one with the number of rewinds. The newest numbers are
part of the table's state, also after the log was shortened, and by them an epoch is known again.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from typing_extensions import override

from flow.checks import check_choice, checked_texts
from flow.connectors.delta.table import (
    TablePlace,
    as_options,
    as_table_uri,
    columns_of,
    groups_of,
    partition_text,
    statistics,
    storable,
    with_hidden_options,
)
from flow.connectors.files.file_sinks import write_parquet
from flow.connectors.files.filesystems import datasets_of_files
from flow.connectors.formats.columns import (
    Schema,
    as_columns,
    as_schema,
    fit,
    merge_small,
    typed_batches,
    widen,
)
from flow.connectors.sink import (
    Guarantee,
    OutputContext,
    Sink,
    SinkBatch,
    WriteContext,
    to_record,
)
from flow.connectors.source import Dataset
from flow.errors import FlowBuildError, SinkError, shorten

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

Mode: TypeAlias = Literal["append", "upsert"]
"""Write mode: rows are added, or replace the rows with the same key."""

AfterRewind: TypeAlias = Literal["refuse", "write"]

MARK = "is_retraction"
"""Column that marks a retraction, in the layout of results of windows."""

_DELETED = "_flow_deleted"
_TRIES = 10
_PAUSE = 0.05
"""Seconds before a commit is tried again, doubled each time."""

_LONGEST_PAUSE = 5.0


@dataclass(frozen=True)
class DataFile:
    """A Parquet file that a task has written, before its commit.

    Attributes:
        path: name of the file in the table.
        size: size in bytes.
        schema: columns of the rows; the file lacks those of partitions.
        values: the value of each partition column, as the log has it.
        statistics: statistics as the log has them.
    """

    path: str
    size: int
    schema: pa.Schema
    values: Mapping[str, str | None]
    statistics: str


@dataclass(frozen=True)
class Message:
    """Message of a task: files to append, or rows to merge.

    Attributes:
        context: position in the output.
        files: data files.
        rows: record batches.
    """

    context: WriteContext
    files: Sequence[DataFile] = ()
    rows: Sequence[pa.RecordBatch] = ()


@dataclass
class _Run:
    """State of a sink during a run: its id, and the table once it exists."""

    run_id: str = ""
    table: DeltaTable | None = None
    output: OutputContext = field(default_factory=lambda: OutputContext("", ""))


@dataclass(frozen=True, repr=False)
class DeltaSink(Sink[Any]):
    """Sink that writes rows to a table of Delta Lake, exactly once.

    Items are laid out by `flow.connectors.sink.to_record`; results of windows have the columns
    ``key``, ``window_id``, ``open_time``, ``close_time``, ``merged_ids``, ``is_retraction`` and
    those of the result. An epoch is one commit, in which the table also keeps the number of the
    epoch: a replay changes nothing. Other programs may write to the table, compact and vacuum it
    meanwhile; a commit that another writer was faster with is tried again.

    With ``mode="append"`` the workers write Parquet files, and the process that started the flow
    commits them. With ``mode="upsert"`` this process merges an epoch's rows into the table: a row
    replaces the row with its key, and a retraction, a record with a true `is_retraction`, deletes
    it; a new table has no column of that name. The last record of a key in an epoch counts. A merge
    rewrites the files that may have a key of the epoch in them: ``docs/reference/delta.md`` has the
    cost.

    Args:
        uri: the directory of the table, a path or a URI, such as ``s3://lake/hours``.
        mode: ``"append"`` or ``"upsert"``.
        key: the columns that identify a row, for ``mode="upsert"``.
        partition_by: the columns by whose values the files of a new table are divided.
        schema: the columns to write, as a `pyarrow.Schema` or a mapping of names to pyarrow types;
            by default those of the table, or of the items of the first epoch. A missing field is
            null, other fields are ignored.
        schema_mode: ``"merge"`` adds fields that the table lacks as columns; by default, such a
            field is an error.
        storage_options: options of the store by their names in deltalake, such as
            ``{"AWS_REGION": ...}``; the values are never shown.
        after_rewind: action if the run was set back (``python -m recovery rewind``) before epochs
            that are in the table. ``"refuse"`` fails, and says how to remove them; ``"write"``
            writes them again. With ``mode="upsert"`` they are always written, and replace
            themselves.

    Raises:
        EnvironmentProblem: when the flow runs, the package deltalake is not installed.
        SinkError: when the flow runs: the table cannot be written, or a value does not fit.

    >>> DeltaSink("/lake/hours", mode="upsert", storage_options={"AWS_SECRET_ACCESS_KEY": "s3cr3t"})
    DeltaSink('/lake/hours', mode='upsert', storage_options={'AWS_SECRET_ACCESS_KEY': '***'})
    """

    uri: str | os.PathLike[str]
    _: KW_ONLY
    mode: Mode = "append"
    key: str | Sequence[str] = ("key", "window_id")
    partition_by: str | Sequence[str] = ()
    schema: Schema | None = None
    schema_mode: Literal["merge"] | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, hash=False)
    after_rewind: AfterRewind = "refuse"
    _run: _Run = field(default_factory=_Run, init=False, repr=False, compare=False)

    guarantee = Guarantee.EXACTLY_ONCE
    lays_out = True

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
        object.__setattr__(self, "uri", as_table_uri(self.uri))
        object.__setattr__(self, "storage_options", as_options(self.storage_options))
        schema = as_schema(self.schema)
        object.__setattr__(self, "schema", schema and storable(schema, "schema"))
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

    @property
    def place(self) -> TablePlace:
        """The place of the table."""
        return TablePlace(str(self.uri), self.storage_options, SinkError)

    @override
    def datasets(self) -> Sequence[Dataset]:
        return datasets_of_files([str(self.uri)])

    @override
    def check(self, resuming: bool) -> None:
        self._checked(self.place.open())

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
        table, step_id = self.place.open(), context.step_id
        with self.place.explained(f"step {step_id!r}: {self.place} cannot be written to"):
            known = columns_of(table)
            if self.mode == "upsert":
                return Message(context, rows=list(self._marked(known, batches, step_id)))
            rows = self._rows(known, batches, step_id)
            return Message(context, list(self._files(rows, self._partitions(table), step_id)))

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        found: list[Message] = [one for one in messages if one.files or one.rows]
        if not found:
            return
        output = _Output(found[0].context)
        problem = (
            f"step {output.context.step_id!r}: epoch {epoch} cannot be committed to {self.place}"
        )
        with self.place.explained(problem):
            _tried(lambda: self._commit(output, found))

    @override
    def close(self) -> None:
        self._run.run_id, self._run.table = "", None

    # --- rows ---

    def _rows(
        self, known: pa.Schema, batches: Iterable[SinkBatch], step_id: str
    ) -> Iterator[pa.RecordBatch]:
        """Yield items as rows with types of Delta."""
        if self.schema is not None:
            for written in merge_small(batches):
                yield as_columns(written, self.schema, step_id)
            return
        for rows in typed_batches(batches, known, step_id):
            yield fit(rows, storable(rows.schema, step_id), step_id, whole=True)

    def _partitions(self, table: DeltaTable | None) -> list[str]:
        if table is None:
            return list(self.partition_by)
        return list(table.metadata().partition_columns)

    def _files(
        self, rows: Iterator[pa.RecordBatch], partitions: Sequence[str], step_id: str
    ) -> Iterator[DataFile]:
        if not partitions:
            for schema, same in groupby(rows, lambda batch: batch.schema):
                yield self._write_file(schema, same, {})
            return
        parts: dict[Any, list[pa.RecordBatch]] = {}
        for batch in rows:
            _check_has(batch.schema, partitions, "partition_by", step_id)
            for values, part in groups_of(batch, partitions):
                texts = tuple(zip(partitions, map(partition_text, values), strict=True))
                parts.setdefault((batch.schema, texts), []).append(part)
        for (schema, texts), batches in parts.items():
            yield self._write_file(schema, batches, dict(texts))

    def _write_file(
        self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], values: Mapping[str, str | None]
    ) -> DataFile:
        name, filesystem = f"part-{uuid.uuid4().hex}.parquet", self.place.filesystem()
        inside = pa.schema([one for one in schema if one.name not in values])
        with filesystem.open_output_stream(name, compression=None) as stream:
            metadata = write_parquet(stream, inside, batches)
            size = stream.tell()
        return DataFile(name, size, schema, values, statistics(metadata, inside))

    def _marked(
        self, known: pa.Schema, batches: Iterable[SinkBatch], step_id: str
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows with a column that marks those to delete."""
        for written in merge_small(batches):
            for rows in self._rows(known, [written], step_id):
                _check_has(rows.schema, self.key, "key", step_id)
                if MARK in rows.schema.names and MARK not in known.names and self.schema is None:
                    rows = rows.drop_columns([MARK])
                yield rows.append_column(_DELETED, _marks(written))

    # --- commits ---

    def _create(self, schema: pa.Schema) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake import Schema as DeltaSchema

        with self.place.explained(f"{self.place} cannot be created"):
            return DeltaTable.create(
                str(self.uri),
                DeltaSchema.from_arrow(schema),
                mode="ignore",
                partition_by=list(self.partition_by),
                storage_options=dict(self.storage_options),
            )

    def _checked(self, table: DeltaTable | None) -> DeltaTable | None:
        """Return a table that the sink can write to, or raise `SinkError`."""
        if table is None:
            return None
        columns, partitions = columns_of(table).names, table.metadata().partition_columns
        if self.partition_by and list(self.partition_by) != partitions:
            raise SinkError(
                f"{self.place} is partitioned by {partitions}, and not by "
                f"{list(self.partition_by)}: leave out partition_by, or write to another table"
            )
        if self.mode == "append" and _has_checks(table):
            raise SinkError(
                f"{self.place} checks or computes values (constraints, invariants or generated "
                "columns), which mode='append' does not: remove them, or pass mode='upsert'"
            )
        for name in self.key if self.mode == "upsert" else ():
            if columns and name not in columns:
                raise SinkError(
                    f"{self.place} has no column {name!r} of the key {self.key}, its columns are "
                    f"{shorten(columns)}: name others by key=, or write to another table"
                )
        return table

    def _commit(self, output: _Output, messages: Sequence[Message]) -> None:
        """Commit an epoch to the newest version of the table, unless it is there."""
        table = self._run.table or self.place.open()
        if table is not None:
            table.update_incremental()
            done = output.last_epoch(table)
            if done is not None and done >= output.context.epoch:
                if output.rewinds(table) >= output.context.rewinds:
                    return
                if self._refuses_rewinds:
                    raise SinkError(self._set_back_problem(table, output, output.context.epoch - 1))
        known, step_id = columns_of(table), output.context.step_id
        schema = known
        for one in (one for message in messages for one in (*message.files, *message.rows)):
            schema = widen(schema, one.schema, known.names, step_id)
        schema = storable(pa.schema([one for one in schema if one.name != _DELETED]), step_id)
        self._run.table = table = table or self._create(schema)
        self._add_columns(table, schema, step_id)
        if self.mode == "upsert":
            self._merge(table, messages, output)
        else:
            self._append(table, messages, output)

    def _add_columns(self, table: DeltaTable, schema: pa.Schema, step_id: str) -> None:
        from deltalake import Schema as DeltaSchema

        known = columns_of(table).names
        new = [one for one in schema if one.name not in known]
        if new and self.schema_mode != "merge":
            raise SinkError(
                f"step {step_id!r}: {self.place} has no column {new[0].name!r}, its columns are "
                f"{shorten(known)}: pass schema_mode='merge' to add it, give the sink a schema, or "
                "map the items before the output"
            )
        if new:
            table.alter.add_columns(DeltaSchema.from_arrow(pa.schema(new)).fields)
            table.update_incremental()

    def _append(self, table: DeltaTable, messages: Sequence[Message], output: _Output) -> None:
        from deltalake.transaction import AddAction

        schema, now_ms = columns_of(table), int(time.time() * 1000)
        files = [
            self._aligned(one, schema, output) for message in messages for one in message.files
        ]
        actions = [
            AddAction(one.path, one.size, one.values, now_ms, True, one.statistics) for one in files
        ]
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            self._partitions(table),
            commit_properties=output.properties(),
        )

    def _aligned(self, file: DataFile, schema: pa.Schema, output: _Output) -> DataFile:
        """Return a file with the types of the table: it is written again if it has others."""
        wanted = pa.schema([schema.field(name) for name in file.schema.names])
        if wanted.types == file.schema.types:
            return file
        with self.place.filesystem().open_input_file(file.path) as stream:
            batches = pq.ParquetFile(stream).iter_batches()
            step_id = output.context.step_id
            inside = pa.schema([one for one in wanted if one.name not in file.values])
            rows = (fit(batch, inside, step_id, whole=True) for batch in batches)
            return self._write_file(wanted, rows, file.values)

    def _merge(self, table: DeltaTable, messages: Sequence[Message], output: _Output) -> None:
        step_id, known = output.context.step_id, columns_of(table)
        schema = known.append(pa.field(_DELETED, pa.bool_()))
        batches = [batch for message in messages for batch in message.rows]
        fitted = [fit(batch, schema, step_id, whole=True) for batch in batches]
        rows = _last_of_keys(pa.Table.from_batches(fitted), self.key, step_id)
        same = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in self.key)
        values = {_quoted(name): f"s.{_quoted(name)}" for name in known.names}
        table.merge(
            rows,
            same,
            source_alias="s",
            target_alias="t",
            streamed_exec=False,
            commit_properties=output.properties(),
        ).when_matched_delete(f"s.{_DELETED}").when_matched_update(values).when_not_matched_insert(
            values, predicate=f"NOT s.{_DELETED}"
        ).execute()

    # --- rewinds ---

    def _check_rewind(self, table: DeltaTable) -> None:
        """Raise `SinkError` if the table has epochs that a rewind of the checkpoint has undone."""
        output = self._run.output
        if output.checkpoint is None:
            return
        last, rewinds = output.checkpoint.last_epoch, output.checkpoint.rewinds
        context = WriteContext(output.step_id, last, 0, self._run.run_id, rewinds)
        own = _Output(context)
        if (own.last_epoch(table) or -1) > last and own.rewinds(table) < rewinds:
            raise SinkError(self._set_back_problem(table, own, last))

    def _set_back_problem(self, table: DeltaTable, output: _Output, last: int) -> str:
        version = output.version_of(table, last)
        how = f"DeltaTable.restore({version})" if version is not None else "DeltaTable.delete"
        return (
            f"step {output.context.step_id!r}: {self.place} holds rows up to epoch "
            f"{output.last_epoch(table)} of this run, which was set back to epoch {last}: rows "
            "would be doubled, or left out. Either write to another table; or remove the rows of "
            f"later epochs, by {how} of deltalake if no other program has written since, and "
            "start the flow with after_rewind='write'. With mode='upsert' rows that are written "
            "again replace themselves"
        )


@dataclass(frozen=True)
class _Output:
    """An output of a run, as the commits of its epochs name it."""

    context: WriteContext

    @property
    def _ids(self) -> tuple[str, str]:
        own = f"{self.context.run_id}/{self.context.step_id}"
        return own, f"{own}/rewinds"

    def last_epoch(self, table: DeltaTable) -> int | None:
        """Return the last epoch that the table has of the output."""
        return cast("int | None", table.transaction_version(self._ids[0]))

    def rewinds(self, table: DeltaTable) -> int:
        """Return the number of rewinds before that epoch."""
        return table.transaction_version(self._ids[1]) or 0

    def version_of(self, table: DeltaTable, epoch: int) -> int | None:
        """Return the table's version after an epoch; ``None`` if the log no longer has it."""
        found = (one for one in table.history() if one.get("flow_output") == self._ids[0])
        return next((one["version"] for one in found if one["flow_epoch"] <= epoch), None)

    def properties(self) -> CommitProperties:
        """Return the numbers that the commit of an epoch adds to the table."""
        from deltalake import CommitProperties, Transaction

        numbers = self.context.epoch, self.context.rewinds
        return CommitProperties(
            custom_metadata={"flow_output": self._ids[0], "flow_epoch": self.context.epoch},
            app_transactions=[Transaction(*pair) for pair in zip(self._ids, numbers, strict=True)],
        )


def _tried(commit: Callable[[], None]) -> None:
    """Commit, again if another writer was faster with a commit that is in the way."""
    from deltalake.exceptions import CommitFailedError

    for attempt in range(_TRIES):
        try:
            commit()
            return
        except CommitFailedError:
            if attempt == _TRIES - 1:
                raise
        time.sleep(min(_PAUSE * 2**attempt, _LONGEST_PAUSE))


def _has_checks(table: DeltaTable) -> bool:
    """Return True if a table has rules for values, which only deltalake's own writers apply."""
    rules = ("delta.invariants", "delta.generationExpression", "delta.identity.")
    named = any(name.startswith("delta.constraints.") for name in table.metadata().configuration)
    return named or any(rule in table.schema().to_json() for rule in rules)


def _check_has(schema: pa.Schema, names: Iterable[str], parameter: str, step_id: str) -> None:
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


def _last_of_keys(rows: pa.Table, key: Sequence[str], step_id: str) -> pa.Table:
    """Return the last row of each key."""
    for name in key:
        if rows.column(name).null_count:
            raise SinkError(
                f"step {step_id!r}: column {name!r} of the key {tuple(key)} has a null, which "
                "identifies no row: map the items before the output"
            )
    numbers = pa.array(np.arange(rows.num_rows))
    grouped = rows.select(list(key)).append_column("", numbers).group_by(list(key))
    return rows.take(grouped.aggregate([("", "max")]).column("_max"))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
