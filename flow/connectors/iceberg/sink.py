"""Sink that writes tables of Apache Iceberg: files by the workers, one commit an epoch.

The summary of an epoch's snapshot has the numbers of the epoch and of the rewinds before it. So has
a property of the table, which the same commit sets, as snapshots expire.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from typing_extensions import override

from flow.connectors.iceberg.data_files import replaced_files, write_data_files
from flow.connectors.iceberg.table import (
    TYPES,
    CatalogPlace,
    arrow_columns,
    as_catalog,
    check_table,
    lineage,
)
from flow.connectors.lakehouse.lake_sink import LakeSink, LastEpoch, Message, output_of
from flow.connectors.sink import WriteContext
from flow.connectors.source import Dataset
from flow.errors import SinkError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata

_OUTPUT, _EPOCH, _REWINDS = "flow.output", "flow.epoch", "flow.rewinds"
"""Names in the summaries of snapshots."""

_DONE = "flow.last-epoch."
"""Name of the property of an output, before its id; the value is the epoch and the rewinds."""

_NEW_TABLE = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
}
"""Properties of a new table: an epoch adds a manifest and a metadata file, and would keep all."""


@dataclass(frozen=True)
class WrittenFile:
    """A data file that a task has written, before its commit.

    Attributes:
        file: the file.
        table: id of the table.
        spec: number of the table's partitioning, which a copy of the file does not hold.
    """

    file: DataFile
    table: str
    spec: int


@dataclass(frozen=True, repr=False)
class IcebergSink(LakeSink):
    """Sink that writes rows to a table of Apache Iceberg, exactly once.

    Items are laid out by `flow.connectors.sink.to_record`; results of windows have the columns
    ``key``, ``window_id``, ``open_time``, ``close_time``, ``merged_ids``, ``is_retraction`` and
    those of the result. An epoch is one snapshot, whose commit also keeps the number of the epoch:
    a replay changes nothing. Other programs may write to the table, compact it and expire snapshots
    meanwhile; a commit that another writer was faster with is tried again.

    With ``mode="append"`` the workers write Parquet files, and the process that started the flow
    commits them. With ``mode="upsert"`` this process merges an epoch's rows into the table: a row
    replaces the row with its key, and a retraction, a record with a true `is_retraction`, deletes
    it; a new table has no column of that name. The last record of a key in an epoch counts. A merge
    rewrites the files that have a key of the epoch in them: ``docs/reference/iceberg.md`` has the
    cost.

    Args:
        catalog: the catalog: a name of pyiceberg's configuration, or properties, such as
            ``{"type": "rest", "uri": ...}``, whose values are never shown. A property ``"name"`` is
            the catalog's name, by default ``"default"``.
        table: the name of the table with its namespace, which exists, such as ``"db.hours"``.
        mode: ``"append"`` or ``"upsert"``.
        key: the columns that identify a row, for ``mode="upsert"``.
        partition_by: the columns by whose values the files of a new table are divided. A table that
            exists may be partitioned by any transform that pyiceberg can write.
        schema: the columns to write, as a `pyarrow.Schema` or a mapping of names to pyarrow types;
            by default those of the table, or of the items of the first epoch. A missing field is
            null, other fields are ignored.
        schema_mode: ``"merge"`` adds fields that the table lacks as columns; by default, such a
            field is an error.
        after_rewind: action if the run was set back (``python -m recovery rewind``) before epochs
            that are in the table; see `DeltaSink`.

    Raises:
        EnvironmentProblem: when the flow runs, the package pyiceberg is not installed.
        SinkError: when the flow runs: the table cannot be written, or a value does not fit.

    >>> IcebergSink({"type": "rest", "token": "s3cr3t"}, "db.hours", mode="upsert")
    IcebergSink({'type': '***', 'token': '***'}, 'db.hours', mode='upsert')
    """

    catalog: str | Mapping[str, str] = field(hash=False)
    table: str

    TYPES = TYPES

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "catalog", as_catalog(self.catalog))
        check_table(self.table)

    @property
    def place(self) -> CatalogPlace:
        """The place of the table."""
        return CatalogPlace(self.catalog, self.table, SinkError)

    @override
    def datasets(self) -> Sequence[Dataset]:
        return self.place.datasets()

    def _columns(self, table: Table | None) -> pa.Schema:
        return pa.schema([]) if table is None else arrow_columns(table.schema())

    def _partitions(self, table: Table) -> list[str]:
        names = [
            (one.transform, table.schema().find_column_name(one.source_id))
            for one in table.spec().fields
        ]
        return [f"{name}" if f"{how}" == "identity" else f"{how}({name})" for how, name in names]

    def _create(self, schema: pa.Schema) -> Table | None:
        from pyiceberg.exceptions import NoSuchNamespaceError, TableAlreadyExistsError

        namespace, _, _ = self.table.rpartition(".")
        with (
            contextlib.closing(self.place.connect()) as catalog,
            self.place.explained(f"{self.place} cannot be created"),
            contextlib.suppress(TableAlreadyExistsError, *self._conflicts()),
        ):
            if not catalog.namespace_exists(namespace):
                raise NoSuchNamespaceError(
                    f"namespace {namespace!r} does not exist: create it by "
                    f"catalog.create_namespace({namespace!r}) of pyiceberg"
                )
            creation = catalog.create_table_transaction(self.table, schema, properties=_NEW_TABLE)
            with creation.update_spec() as spec:
                for name in self.partition_by:
                    spec.add_identity(name)
            creation.commit_transaction()
        return self.place.open()

    def _refresh(self, table: Table) -> None:
        table.refresh()

    def _conflicts(self) -> tuple[type[Exception], ...]:
        from pyiceberg.exceptions import CommitFailedException

        return (CommitFailedException,)

    # --- epochs ---

    def _last_epoch(self, table: Table, output: str) -> LastEpoch | None:
        noted = table.properties.get(_DONE + output)
        if noted is not None:
            return LastEpoch(*map(int, noted.split()))
        return next((done for done, _ in _epochs(table, output)), None)

    def _way_back(self, table: Table, output: str, epoch: int) -> str:
        found = (number for done, number in _epochs(table, output) if done.epoch <= epoch)
        number = next(found, None)
        if number is None:
            return "table.delete(...) of pyiceberg"
        return f"table.manage_snapshots().rollback_to_snapshot({number}).commit() of pyiceberg"

    # --- writing ---

    def _write_files(
        self, table: Table | None, rows: Iterator[pa.RecordBatch], context: WriteContext
    ) -> Message:
        passed_on: list[pa.RecordBatch] = []
        known = self._columns(table).names

        def fitting() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                if set(batch.schema.names) <= set(known):
                    yield batch
                else:
                    passed_on.append(batch)

        files: list[WrittenFile] = []
        if table is None:
            passed_on = list(rows)
        else:
            names = str(table.metadata.table_uuid), table.metadata.default_spec_id
            found = write_data_files(table.io, table.metadata, fitting(), context.step_id)
            files = [WrittenFile(file, *names) for file in found]
        return Message(context, files, passed_on, [one.schema for one in passed_on])

    def _publish(
        self, table: Table, new: pa.Schema, messages: Sequence[Message], context: WriteContext
    ) -> None:
        _prepare(table)
        output, numbers = output_of(context), (str(context.epoch), str(context.rewinds))
        summary = {_OUTPUT: output, _EPOCH: numbers[0], _REWINDS: numbers[1]}
        with table.transaction() as transaction:
            if new.names:
                with transaction.update_schema() as columns:
                    columns.union_by_name(new)
            if self._run.output.checkpoint is not None:
                transaction.set_properties({_DONE + output: " ".join(numbers)})
            removed, added = self._changes(table, transaction, messages, context)
            snapshot = transaction.update_snapshot(snapshot_properties=summary)
            # A snapshot that removes nothing is an append, which sources follow.
            with snapshot.overwrite() if removed else snapshot.merge_append() as change:
                for file in removed:
                    change.delete_data_file(file)
                for file in added:
                    change.append_data_file(file)

    def _changes(
        self,
        table: Table,
        transaction: Transaction,
        messages: Sequence[Message],
        context: WriteContext,
    ) -> tuple[list[DataFile], list[DataFile]]:
        """Return the files that an epoch removes from the table and adds to it."""
        metadata, step_id = transaction.table_metadata, context.step_id
        if self.mode == "upsert":
            rows = self._merged(arrow_columns(metadata.schema()), messages, step_id)
            return replaced_files(table, metadata, rows, list(self.key), step_id)
        files = [one for message in messages for one in message.files]
        added = [self._checked_file(one, metadata) for one in files]
        batches = (batch for message in messages for batch in message.rows)
        return [], [*added, *write_data_files(table.io, metadata, batches, step_id)]

    def _checked_file(self, written: WrittenFile, metadata: TableMetadata) -> DataFile:
        """Return a file that a task has written, if the table is still as the task saw it."""
        if (written.table, written.spec) != (str(metadata.table_uuid), metadata.default_spec_id):
            raise SinkError(
                f"{self.place} was replaced or partitioned in another way while an epoch was "
                "written: start the flow again, which writes the epoch anew"
            )
        written.file.spec_id = written.spec
        return written.file


def _prepare(table: Table) -> None:
    """Make what the process has in memory of a table fit for the commit of an epoch.

    A transaction copies it a dozen times with all snapshots, and needs the newest alone. It would
    also try again itself, and not look for the epoch before. The table in the catalog stays.
    """
    newest = table.current_snapshot()
    changes = {
        "properties": {**table.metadata.properties, "commit.retry.num-retries": "0"},
        "snapshots": [newest] if newest else [],
        "snapshot_log": [],
        "metadata_log": [],
    }
    table.metadata = table.metadata.model_copy(update=changes)


def _epochs(table: Table, output: str) -> Iterator[tuple[LastEpoch, int]]:
    """Yield the epochs of an output that snapshots have, with their ids, newest first."""
    for one in lineage(table):
        found: Any = one.summary or {}
        if found.get(_OUTPUT) == output:
            yield LastEpoch(int(found[_EPOCH]), int(found[_REWINDS])), one.snapshot_id
