"""Sink that writes tables of Delta Lake: files by the workers, one commit an epoch by the driver.

A commit of an epoch has two application transactions of Delta, each an id with a number: that of
the output, with the number of the epoch, and one with the number of rewinds. The newest numbers are
part of the table's state, also after the log was shortened, and by them an epoch is known again.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from flow.connectors.delta.table import (
    TYPES,
    TablePlace,
    as_table_uri,
    columns_of,
    partition_text,
    statistics,
)
from flow.connectors.files.file_sinks import write_parquet
from flow.connectors.files.filesystems import datasets_of_files
from flow.connectors.formats.columns import fit
from flow.connectors.formats.partition_columns import groups_of
from flow.connectors.lakehouse.lake_place import as_options
from flow.connectors.lakehouse.lake_sink import (
    DELETED,
    LakeSink,
    LastEpoch,
    Message,
    check_has,
    output_of,
)
from flow.connectors.sink import WriteContext
from flow.connectors.source import Dataset
from flow.errors import SinkError

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable


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


@dataclass(frozen=True, repr=False)
class DeltaSink(LakeSink):
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
    storage_options: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)

    TYPES = TYPES

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "uri", as_table_uri(self.uri))
        object.__setattr__(
            self, "storage_options", as_options("storage_options", self.storage_options)
        )

    @property
    def place(self) -> TablePlace:
        """The place of the table."""
        return TablePlace(str(self.uri), self.storage_options, SinkError)

    @override
    def datasets(self) -> Sequence[Dataset]:
        return datasets_of_files([str(self.uri)])

    # --- files ---

    def _partitions(self, table: DeltaTable | None) -> list[str]:
        if table is None:
            return list(self.partition_by)
        return list(table.metadata().partition_columns)

    def _write_files(
        self, table: DeltaTable | None, rows: Iterator[pa.RecordBatch], context: WriteContext
    ) -> Message:
        files = list(self._files(rows, self._partitions(table), context.step_id))
        return Message(context, files, schemas=[one.schema for one in files])

    def _files(
        self, rows: Iterator[pa.RecordBatch], partitions: Sequence[str], step_id: str
    ) -> Iterator[DataFile]:
        if not partitions:
            for schema, same in groupby(rows, lambda batch: batch.schema):
                yield self._write_file(schema, same, {})
            return
        parts: dict[Any, list[pa.RecordBatch]] = {}
        for batch in rows:
            check_has(batch.schema, partitions, "partition_by", step_id)
            keys = [batch.column(name) for name in partitions]
            inside = [name for name in batch.schema.names if name not in partitions]
            for values, part in groups_of(batch, keys, inside):
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

    # --- the format ---

    def _columns(self, table: DeltaTable | None) -> pa.Schema:
        return columns_of(table)

    def _check_format(self, table: DeltaTable) -> None:
        if self.mode == "append" and _has_checks(table):
            raise SinkError(
                f"{self.place} checks or computes values (constraints, invariants or generated "
                "columns), which mode='append' does not: remove them, or pass mode='upsert'"
            )

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

    def _refresh(self, table: DeltaTable) -> None:
        table.update_incremental()

    def _last_epoch(self, table: DeltaTable, output: str) -> LastEpoch | None:
        epoch, rewinds = map(table.transaction_version, _ids(output))
        return None if epoch is None else LastEpoch(epoch, rewinds or 0)

    def _way_back(self, table: DeltaTable, output: str, epoch: int) -> str:
        found = (one for one in table.history() if one.get("flow_output") == output)
        version = next((one["version"] for one in found if one["flow_epoch"] <= epoch), None)
        how = f"DeltaTable.restore({version})" if version is not None else "DeltaTable.delete"
        return f"{how} of deltalake"

    def _conflicts(self) -> tuple[type[Exception], ...]:
        from deltalake.exceptions import CommitFailedError

        return (CommitFailedError,)

    def _publish(
        self, table: DeltaTable, new: pa.Schema, messages: Sequence[Message], context: WriteContext
    ) -> None:
        from deltalake import Schema as DeltaSchema

        if new.names:
            table.alter.add_columns(DeltaSchema.from_arrow(new).fields)
            table.update_incremental()
        if self.mode == "upsert":
            self._merge(table, messages, context)
        else:
            self._append(table, messages, context)

    def _append(
        self, table: DeltaTable, messages: Sequence[Message], context: WriteContext
    ) -> None:
        from deltalake.transaction import AddAction

        schema, now_ms = columns_of(table), int(time.time() * 1000)
        files = [
            self._aligned(one, schema, context) for message in messages for one in message.files
        ]
        actions = [
            AddAction(one.path, one.size, one.values, now_ms, True, one.statistics) for one in files
        ]
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            self._partitions(table),
            commit_properties=_numbers(context),
        )

    def _aligned(self, file: DataFile, schema: pa.Schema, context: WriteContext) -> DataFile:
        """Return a file with the types of the table: it is written again if it has others."""
        wanted = pa.schema([schema.field(name) for name in file.schema.names])
        if wanted.types == file.schema.types:
            return file
        with self.place.filesystem().open_input_file(file.path) as stream:
            batches = pq.ParquetFile(stream).iter_batches()
            step_id = context.step_id
            inside = pa.schema([one for one in wanted if one.name not in file.values])
            rows = (fit(batch, inside, step_id, whole=True) for batch in batches)
            return self._write_file(wanted, rows, file.values)

    def _merge(self, table: DeltaTable, messages: Sequence[Message], context: WriteContext) -> None:
        known = columns_of(table)
        rows = self._merged(known, messages, context.step_id)
        same = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in self.key)
        values = {_quoted(name): f"s.{_quoted(name)}" for name in known.names}
        table.merge(
            rows,
            same,
            source_alias="s",
            target_alias="t",
            streamed_exec=False,
            commit_properties=_numbers(context),
        ).when_matched_delete(f"s.{DELETED}").when_matched_update(values).when_not_matched_insert(
            values, predicate=f"NOT s.{DELETED}"
        ).execute()


def _ids(output: str) -> tuple[str, str]:
    """Return the ids of the application transactions of an output: its epochs, and rewinds."""
    return output, f"{output}/rewinds"


def _numbers(context: WriteContext) -> CommitProperties:
    """Return the numbers that the commit of an epoch adds to the table."""
    from deltalake import CommitProperties, Transaction

    output, numbers = output_of(context), (context.epoch, context.rewinds)
    return CommitProperties(
        custom_metadata={"flow_output": output, "flow_epoch": context.epoch},
        app_transactions=[Transaction(*pair) for pair in zip(_ids(output), numbers, strict=True)],
    )


def _has_checks(table: DeltaTable) -> bool:
    """Return True if a table has rules for values, which only deltalake's own writers apply."""
    rules = ("delta.invariants", "delta.generationExpression", "delta.identity.")
    named = any(name.startswith("delta.constraints.") for name in table.metadata().configuration)
    return named or any(rule in table.schema().to_json() for rule in rules)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
