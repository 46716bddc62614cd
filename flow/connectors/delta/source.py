"""Source that follows a table of Delta Lake, version by version."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args
from urllib.parse import unquote

import pyarrow as pa
from typing_extensions import override

from flow.checks import check_choice
from flow.connectors.delta.table import (
    TablePlace,
    as_table_uri,
    partition_column,
    partition_text,
)
from flow.connectors.files.filesystems import datasets_of_files, without_passwords
from flow.connectors.files.parquet_source import parquet_file, read_rows
from flow.connectors.formats.pushdown import groups_with
from flow.connectors.lakehouse.lake_place import as_options
from flow.connectors.lakehouse.version_planner import (
    READ_ANEW,
    AddedFile,
    LakeSource,
    Position,
    Version,
    VersionPlanner,
)
from flow.connectors.source import Batch, Dataset, Json, Planner, SourceLog, Split
from flow.errors import SourceError
from flow.instants import instant_us

if TYPE_CHECKING:
    from deltalake import DeltaTable

OnRewrite: TypeAlias = Literal["fail", "skip", "changes"]
"""Action for a version that deletes or rewrites rows."""

CHANGE = "_change_type"
"""Column with the change of a record, as Delta's change data feed has it."""

_INSERT, _DELETE = "insert", "delete"


@dataclass(frozen=True, repr=False)
class DeltaSource(LakeSource):
    """Source of the rows of a table of Delta Lake; the items are records in columns.

    The first run reads the table as it is, or begins at `start`; later versions follow one by one,
    in bounded epochs. A compaction adds no rows and is passed over. Each record has the columns of
    its version of the table; a column that was added later is null in older rows.

    Args:
        uri: the directory of the table, a path or a URI, such as ``s3://lake/hours``.
        start: the first data to read: by default all rows of the newest version, then what is
            added; the number of a version, to read what this and later versions add; an instant,
            for the first version since; or ``"latest"``, for later versions only.
        columns: names of the columns to read, in order; ``None`` for all. Fewer are faster.
        on_rewrite: action for a version that deletes or rewrites rows: ``"fail"`` stops the flow,
            ``"skip"`` leaves the version out, with the rows that it adds, and ``"changes"`` gives
            its changes. Each record then has a column ``_change_type``, which is ``"insert"`` or
            ``"delete"``, or with Delta's change data feed ``"update_preimage"`` and
            ``"update_postimage"`` too.
        follow: ``False`` ends after the version that is the newest as the run starts; ``True``
            reads later versions too, and never ends.
        rows_per_epoch: rows that an epoch reads, at most.
        storage_options: options of the store; see `DeltaSink`.

    Raises:
        EnvironmentProblem: when the flow runs, the package deltalake is not installed.
        SourceError: when the flow runs: there is no table, a version was removed from its log, or
            deletes or rewrites rows, or the table has deletion vectors or mapped columns.

    >>> DeltaSource("/lake/hours", start="latest", follow=True)
    DeltaSource('/lake/hours', start='latest', follow=True)
    """

    uri: str | os.PathLike[str]
    on_rewrite: OnRewrite = field(default="fail", kw_only=True)
    storage_options: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("on_rewrite", self.on_rewrite, get_args(OnRewrite))
        object.__setattr__(self, "uri", as_table_uri(self.uri))
        object.__setattr__(
            self, "storage_options", as_options("storage_options", self.storage_options)
        )

    @property
    def place(self) -> TablePlace:
        """The place of the table."""
        return TablePlace(str(self.uri), self.storage_options, SourceError)

    @override
    def identity(self) -> Json:
        return {"table": without_passwords(str(self.uri))}

    @override
    def datasets(self) -> Sequence[Dataset]:
        return datasets_of_files([str(self.uri)])

    @override
    def record_columns(self) -> Any:
        return self._selected(schema_of(self.table().schema().to_json()))

    def table(self, version: int | None = None) -> DeltaTable:
        """Return the table at a version, by default the newest."""
        table = self.place.open(version)
        if table is None:
            raise SourceError(f"{self.place} does not exist: write it first, or correct its path")
        self.refuse_mapping(table.metadata().configuration)
        return table

    def refuse_mapping(self, properties: Mapping[str, str]) -> None:
        """Raise a `SourceError` if files have other names of columns than the table."""
        if properties.get("delta.columnMapping.mode", "none") != "none":
            raise SourceError(
                f"{self.place} maps the names of columns (delta.columnMapping.mode), which "
                "DeltaSource does not read: copy it to a table without this property"
            )

    @override
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        return DeltaPlanner(self, parallelism)

    @override
    def known_of(self, version: Version) -> tuple[pa.Schema, list[Mapping[str, Any]]]:
        schema = self._selected(schema_of(version.schema))
        return schema, [_scalars(file.values, schema) for file in version.files]

    @override
    def read_fields(self, split: Split, fields: frozenset[str] | None) -> Iterator[Batch]:
        schema = self._selected(schema_of(split.what["schema"]))
        if fields is not None:
            names = [name for name in schema.names if name in fields] or schema.names[:1]
            schema = pa.schema([schema.field(name) for name in names])
        filesystem = self.place.filesystem()
        for path, start, end, values in split.what["pieces"]:
            with (
                self.place.explained(f"{path} of {self.place} cannot be read"),
                filesystem.open_input_file(path) as stream,
            ):
                groups = None
                if self._wanted is not None:
                    groups = groups_with(self._wanted, stream, _scalars(values, schema))
                yield from _rows_of(parquet_file(stream), start, end, schema, values, groups)

    def _selected(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of records, given those of the table."""
        names = schema.names if self.columns is None else list(self.columns)
        self.check_columns(schema.names)
        marks = [pa.field(CHANGE, pa.string())] if self.on_rewrite == "changes" else []
        return pa.schema([*(schema.field(name) for name in names), *marks])


def schema_of(text: str) -> pa.Schema:
    """Return columns from the JSON of a table's log."""
    from deltalake import Schema

    return pa.schema(Schema.from_json(text).to_arrow())


def _scalars(values: Mapping[str, str | None], schema: pa.Schema) -> dict[str, Any]:
    """Return the values of a schema's columns that a log has as texts."""
    return {
        name: partition_column(text, schema.field(name).type, 1)[0]
        for name, text in values.items()
        if name in schema.names
    }


def _rows_of(
    parquet: Any,
    start: int,
    end: int,
    schema: pa.Schema,
    given: Mapping[str, str | None],
    groups_read: Sequence[int] | None,
) -> Iterator[Batch]:
    """Yield rows of an open file with the columns of a schema; those that it lacks are null.

    Args:
        parquet: the file.
        start: number of the first row.
        end: number after the last row.
        schema: the columns.
        given: columns with one value.
        groups_read: numbers of the row groups to read, in order; ``None`` for all.
    """
    there = parquet.schema_arrow.names
    names = [name for name in schema.names if name in there and name not in given]
    for rows in read_rows(parquet, start, end, names or there[:1], groups_read):
        columns = [
            rows.column(one.name).cast(one.type)
            if one.name in names
            else partition_column(given.get(one.name), one.type, rows.num_rows)
            for one in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


class DeltaPlanner(VersionPlanner):
    """Planner of a `DeltaSource`: reads the log, and cuts versions into epochs."""

    _source: DeltaSource

    def __init__(self, source: DeltaSource, parallelism: int) -> None:
        self._newest = source.table()
        super().__init__(source, str(self._newest.metadata().id), parallelism)
        self._filesystem = source.place.filesystem()
        self._last = None if source.follow else self._newest.version()
        self._versions: dict[tuple[int, bool], Version] = {}

    @override
    def stop_at_present(self) -> None:
        self._newest.update_incremental()
        self._last = self._newest.version()

    @override
    def _first(self) -> Position:
        start, newest = self._source.start, self._newest.version()
        if start is None:
            return Position(self._id, newest, whole=True)
        if isinstance(start, int):
            return Position(self._id, start)
        later: list[int] = []
        if start != "latest":
            since_ms, history = instant_us(start) // 1000, self._newest.history()
            later = [one["version"] for one in history if one["timestamp"] >= since_ms]
        return Position(self._id, min(later, default=newest + 1))

    # --- the log ---

    @override
    def _after(self, at: Position) -> Position:
        return Position(self._id, at.version + 1)

    @override
    def _found(self, at: Position) -> tuple[Position, Version] | None:
        if self._last is not None and at.version > self._last:
            return None
        key = (at.version, at.whole)
        if key not in self._versions:
            found = self._snapshot(at.version) if at.whole else self._commit(at.version)
            if found is None:
                return None
            kept = {key: one for key, one in self._versions.items() if key[0] == at.version - 1}
            files = list(map(self._measured, self._source.kept_of(found)))
            self._versions = {**kept, key: replace(found, files=files)}
        return at, self._versions[key]

    def _snapshot(self, number: int) -> Version:
        table = self._source.table(number)
        with self._place.explained(f"{self._place} cannot be read"):
            self._refuse_vectors(number, any(True for _ in table.deletion_vectors()))
            added = pa.table(table.get_add_actions()).to_pylist()
        added.sort(key=lambda one: (one["modification_time"], one["path"]))
        files = []
        for one in added:
            texts = {
                name: partition_text(value) for name, value in (one.get("partition") or {}).items()
            }
            files.append(self._file(one["path"], one["num_records"], texts, _INSERT))
        return Version(files, table.schema().to_json())

    def _file(
        self, path: str, rows: int | None, values: Mapping[str, str | None], change: str | None
    ) -> AddedFile:
        marks = {CHANGE: change} if change and self._source.on_rewrite == "changes" else {}
        return AddedFile(unquote(path), rows, {**values, **marks})

    def _commit(self, number: int) -> Version | None:
        """Return the files of a commit; ``None`` if there is no such version yet."""
        actions = self._actions(number)
        if actions is None:
            return None
        found: dict[str, list[Any]] = {}
        for kind, content in (pair for action in actions for pair in action.items()):
            found.setdefault(kind, []).append(content)
        before = self._versions.get((number - 1, False)) or self._versions.get((number - 1, True))
        metadata = found.get("metaData", ())
        for one in metadata:
            self._source.refuse_mapping(one.get("configuration") or {})
        schema = [one["schemaString"] for one in metadata]
        if not schema:
            schema = [before.schema if before else self._source.table(number).schema().to_json()]
        time_ms = found.get("commitInfo", [{}])[0].get("timestamp")
        return Version(self._changes(number, found), schema[0], time_ms and time_ms * 1000)

    def _changes(self, number: int, found: Mapping[str, list[Any]]) -> list[AddedFile]:
        """Return the files of a commit that give its rows, or its changes."""
        # Files that are only moved, as in a compaction, have no new data.
        added, removed = (
            [one for one in found.get(kind, ()) if one["dataChange"]] for kind in ("add", "remove")
        )
        self._refuse_vectors(number, any(one.get("deletionVector") for one in added + removed))
        if removed and self._source.on_rewrite == "fail":
            raise SourceError(
                f"version {number} of {self._place} deletes or rewrites rows "
                f"({found.get('commitInfo', [{}])[0].get('operation')}): pass on_rewrite='skip' to "
                "leave the version out, or on_rewrite='changes' to read its changes"
            )
        if removed and self._source.on_rewrite == "skip":
            return []
        marked: list[tuple[Any, str | None]] = []
        if removed:
            marked += [(one, None) for one in found.get("cdc", ())]
        marked = marked or [(one, _DELETE) for one in removed] + [(one, _INSERT) for one in added]
        files = []
        for one, change in marked:
            rows = json.loads(one.get("stats") or "{}").get("numRecords")
            files.append(self._file(one["path"], rows, one.get("partitionValues") or {}, change))
        return files

    def _actions(self, number: int) -> list[Any] | None:
        """Return the actions of a commit; ``None`` if there is no such version yet."""
        name, what = f"_delta_log/{number:020}.json", f"version {number} of {self._place}"
        with self._place.explained(f"{what} cannot be read"):
            # The file is looked for once the version is known, as another writer may make both now.
            if number > self._newest.version():
                self._newest.update_incremental()
            if number > self._newest.version():
                return None
            if self._filesystem.get_file_info(name).is_file:
                with self._filesystem.open_input_stream(name) as stream:
                    return [json.loads(line) for line in stream.read().splitlines()]
        raise SourceError(
            f"{what} was removed from its log, which keeps versions for "
            f"delta.logRetentionDuration: {READ_ANEW}"
        )

    def _measured(self, file: AddedFile) -> AddedFile:
        """Return a file with its number of rows, also if the log does not say it."""
        if file.rows is not None:
            return file
        with (
            self._place.explained(f"{file.path} of {self._place} cannot be read"),
            self._filesystem.open_input_file(file.path) as stream,
        ):
            return replace(file, rows=parquet_file(stream).metadata.num_rows)

    def _refuse_vectors(self, number: int, has_vectors: bool) -> None:
        if has_vectors:
            raise SourceError(
                f"version {number} of {self._place} has deletion vectors, which DeltaSource does "
                "not read: set delta.enableDeletionVectors to false, and rewrite the table's "
                "files (REORG TABLE … APPLY (PURGE))"
            )
