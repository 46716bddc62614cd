"""Source that follows a table of Apache Iceberg, snapshot by snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import pyarrow as pa
from typing_extensions import override

from flow.checks import check_choice
from flow.connectors.iceberg.data_files import (
    partition_values,
    read_data_file,
    scalars_of,
    selected,
)
from flow.connectors.iceberg.table import (
    COMPACT,
    CatalogPlace,
    arrow_columns,
    as_catalog,
    check_table,
    lineage,
)
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
    from pyiceberg.manifest import ManifestEntry
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

OnRewrite: TypeAlias = Literal["fail", "skip"]
"""Action for a snapshot that deletes or rewrites rows."""

_NONE, _ALL = -1, -1
"""Version before the first snapshot; number of a file in a snapshot that is read to its end.

Such a position has the snapshot's sequence number as its row: pyiceberg's expiry of a snapshot
removes its id from the one after it.
"""


@dataclass(frozen=True, repr=False)
class IcebergSource(LakeSource):
    """Source of the rows of a table of Apache Iceberg; the items are records in columns.

    The first run reads the table as it is, or begins at `start`; later snapshots follow one by one,
    in bounded epochs. A compaction adds no rows and is passed over. Each record has the columns of
    its snapshot's schema; a column that was added later is null in older rows.

    Args:
        catalog: the catalog; see `IcebergSink`.
        table: the name of the table with its namespace, such as ``"db.hours"``.
        start: the first data to read: by default all rows of the newest snapshot, then what is
            added; the id of a snapshot, to read what this and later ones add; an instant, for the
            first snapshot since; or ``"latest"``, for later snapshots only.
        columns: names of the columns to read, in order; ``None`` for all. Fewer are faster.
        on_rewrite: action for a snapshot that deletes or rewrites rows: ``"fail"`` stops the flow,
            and ``"skip"`` leaves the snapshot out, with the rows that it adds.
        follow: ``False`` ends after the snapshot that is the newest as the run starts; ``True``
            reads later ones too, and never ends.
        rows_per_epoch: rows that an epoch reads, at most.

    Raises:
        EnvironmentProblem: when the flow runs, the package pyiceberg is not installed.
        SourceError: when the flow runs: there is no table, a snapshot has expired before it was
            read, or deletes or rewrites rows, or the table has files of deleted rows.

    >>> IcebergSource("lake", "db.hours", start="latest", follow=True)
    IcebergSource('lake', 'db.hours', start='latest', follow=True)
    """

    catalog: str | Mapping[str, str] = field(hash=False)
    table: str
    on_rewrite: OnRewrite = field(default="fail", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("on_rewrite", self.on_rewrite, get_args(OnRewrite))
        object.__setattr__(self, "catalog", as_catalog(self.catalog))
        check_table(self.table)

    @property
    def place(self) -> CatalogPlace:
        """The place of the table."""
        return CatalogPlace(self.catalog, self.table, SourceError)

    @override
    def identity(self) -> Json:
        return {"table": self.table}

    @override
    def datasets(self) -> Sequence[Dataset]:
        return self.place.datasets()

    @override
    def record_columns(self) -> Any:
        with self.place.opened() as table:
            return arrow_columns(self._selected(self.existing(table).schema()))

    def existing(self, table: Table | None) -> Table:
        """Return a table, or raise `SourceError` if there is none."""
        if table is None:
            raise SourceError(f"{self.place} does not exist: write it first, or correct its name")
        return table

    @override
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        return IcebergPlanner(self, parallelism)

    @override
    def known_of(self, version: Version) -> tuple[pa.Schema, list[Mapping[str, Any]]]:
        from pyiceberg.schema import Schema

        schema = self._selected(Schema.model_validate_json(version.schema))
        return arrow_columns(schema), [scalars_of(schema, file.values) for file in version.files]

    @override
    def read_fields(self, split: Split, fields: frozenset[str] | None) -> Iterator[Batch]:
        from pyiceberg.schema import Schema

        with self.place.opened() as found:
            table = self.existing(found)
            schema = self._selected(Schema.model_validate_json(split.what["schema"]))
            if fields is not None:
                names = [one.name for one in schema.fields]
                schema = selected(schema, [n for n in names if n in fields] or names[:1])
            for path, start, end, values in split.what["pieces"]:
                with self.place.explained(f"{path} of {self.place} cannot be read"):
                    yield from read_data_file(table, path, schema, start, end, values, self._wanted)

    def _selected(self, schema: Schema) -> Schema:
        """Return the columns of records, given those of the table."""
        self.check_columns([one.name for one in schema.fields])
        return schema if self.columns is None else selected(schema, self.columns)


class IcebergPlanner(VersionPlanner):
    """Planner of an `IcebergSource`: reads the history of the table, and cuts it into epochs."""

    _source: IcebergSource

    def __init__(self, source: IcebergSource, parallelism: int) -> None:
        self._table = source.existing(source.place.open())
        super().__init__(source, str(self._table.metadata.table_uuid), parallelism)
        self._ends = not source.follow
        self._versions: dict[tuple[int, bool], Version] = {}
        self._load()

    @override
    def close(self) -> None:
        self._place.close(self._table)

    @override
    def stop_at_present(self) -> None:
        self._refresh()
        self._ends = True

    @override
    def lag(self, start: Json | None) -> str:
        return "" if start is None else f"snapshot {start['version']}"

    def _refresh(self) -> None:
        with self._place.explained(f"{self._place} cannot be opened"):
            self._table.refresh()
        self._load()

    def _load(self) -> None:
        """Record the snapshots that led to the present one, by the id of the one before each."""
        self._history = list(lineage(self._table))
        self._by_parent = {one.parent_snapshot_id: one for one in self._history}

    @override
    def _first(self) -> Position:
        start, newest = self._source.start, self._table.current_snapshot()
        if isinstance(start, int):
            return Position(self._id, start)
        if newest is None or start == "latest":
            return self._end_of(newest)
        if start is None:
            return Position(self._id, newest.snapshot_id, whole=True)
        since_ms, before = instant_us(start) / 1000, self._end_of(newest)
        for one in self._history:
            if one.timestamp_ms < since_ms:
                break
            parent = _NONE if one.parent_snapshot_id is None else one.parent_snapshot_id
            before = Position(self._id, parent, _ALL, (one.sequence_number or 1) - 1)
        return before

    # --- the history ---

    @override
    def _after(self, at: Position) -> Position:
        return self._end_of(self._snapshot(at.version))

    def _end_of(self, snapshot: Snapshot | None) -> Position:
        if snapshot is None:
            return Position(self._id, _NONE, _ALL)
        return Position(self._id, snapshot.snapshot_id, _ALL, snapshot.sequence_number or 0)

    @override
    def _found(self, at: Position) -> tuple[Position, Version] | None:
        if at.file == _ALL:
            following = self._following(at)
            if following is None:
                return None
            at = Position(self._id, following.snapshot_id)
        key = (at.version, at.whole)
        if key not in self._versions:
            found = self._read(self._snapshot(at.version), at.whole)
            self._versions = {key: replace(found, files=self._source.kept_of(found))}
        return at, self._versions[key]

    def _following(self, at: Position) -> Snapshot | None:
        """Return the snapshot after one that is read to its end; ``None`` if there is none yet."""
        newest = self._table.current_snapshot()
        if at.version == (newest.snapshot_id if newest else _NONE):
            if self._ends:
                return None
            self._refresh()
            newest = self._table.current_snapshot()
        following, first = self._by_parent.get(at.version), self._by_parent.get(None)
        if following is not None or at.version == (newest.snapshot_id if newest else _NONE):
            return following
        # Tables of format 1 have no sequence numbers.
        is_first = first and not first.sequence_number and at.version == _NONE
        if first and (is_first or first.sequence_number == at.row + 1):
            return first
        raise SourceError(
            f"snapshots of {self._place} after {at.version} have expired before they were read, or "
            f"the table was set back to an earlier snapshot: {READ_ANEW}. Keep snapshots for "
            "longer (history.expire.max-snapshot-age-ms) than the flow is down"
        )

    def _snapshot(self, number: int) -> Snapshot:
        found = self._table.snapshot_by_id(number)
        if found is None:
            raise SourceError(
                f"snapshot {number} of {self._place} has expired before it was read: {READ_ANEW}"
            )
        return found

    def _read(self, snapshot: Snapshot, whole: bool) -> Version:
        """Return the files that a snapshot has, or adds."""
        schema = self._table.schemas().get(snapshot.schema_id, self._table.schema())
        time_us = None if whole else snapshot.timestamp_ms * 1000
        files: list[AddedFile] = []
        if whole or self._adds(snapshot):
            with self._place.explained(f"snapshot {snapshot.snapshot_id} cannot be read"):
                files = [self._file(one) for one in self._entries(snapshot, whole)]
        return Version(files, schema.model_dump_json(), time_us)

    def _adds(self, snapshot: Snapshot) -> bool:
        """Return True if the rows that a snapshot adds are to be read."""
        operation = snapshot.summary.operation.value if snapshot.summary else "append"
        if operation in ("overwrite", "delete") and self._source.on_rewrite == "fail":
            raise SourceError(
                f"snapshot {snapshot.snapshot_id} of {self._place} deletes or rewrites rows "
                f"({operation}): pass on_rewrite='skip' to leave it out, with the rows that it adds"
            )
        return bool(operation == "append")

    def _entries(self, snapshot: Snapshot, whole: bool) -> list[ManifestEntry]:
        """Return the entries of the files that a snapshot has, or adds, oldest first."""
        from pyiceberg.manifest import ManifestContent, ManifestEntryStatus

        found = []
        for age, manifest in enumerate(snapshot.manifests(self._table.io)):
            if not whole and manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            entries = manifest.fetch_manifest_entry(self._table.io)
            if manifest.content != ManifestContent.DATA and entries:
                raise SourceError(
                    f"snapshot {snapshot.snapshot_id} of {self._place} has files of deleted rows, "
                    f"which IcebergSource does not read: {COMPACT}"
                )
            for one in entries:
                if whole or one.status == ManifestEntryStatus.ADDED:
                    found.append(((one.sequence_number or 0, -age), one))
        return [one for _, one in sorted(found, key=lambda pair: pair[0])]

    def _file(self, entry: ManifestEntry) -> AddedFile:
        file = entry.data_file
        if file.file_format.value != "PARQUET":
            raise SourceError(
                f"{file.file_path} of {self._place} is {file.file_format.value}, and IcebergSource "
                "reads Parquet alone: rewrite the table's files"
            )
        values = partition_values(self._table.metadata, file)
        return AddedFile(file.file_path, file.record_count, values)
