"""Source of Parquet files: records in columns."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from itertools import accumulate, chain
from typing import Any, ClassVar, cast

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from flow.checks import check_whole, checked_texts
from flow.columns.arrow_types import with_leaves
from flow.columns.predicate import ColumnPredicate
from flow.connectors.files.file_list import LATE_FILES
from flow.connectors.files.file_planning import MOST_OPEN, Cuts, FileOrder, Piece
from flow.connectors.files.file_source import FileSource, Paths
from flow.connectors.files.filesystems import File, connect, find_files, open_file
from flow.connectors.formats.columns import Schema
from flow.connectors.formats.partition_columns import (
    as_partition_columns,
    values_of_directories,
    with_values,
)
from flow.connectors.formats.pushdown import gives_rows_of_files, groups_with, with_predicate
from flow.connectors.source import Batch
from flow.durations import Duration
from flow.errors import FlowBuildError, SourceError, shorten

ROWS = 65_536
"""Rows in a batch, at most."""
LEAST_SPLIT = 32_768
"""Rows of a split, at least; reading fewer takes less time than starting a task."""
LEAST_PIECE = 4_096
"""Rows of a piece, at least; reading fewer takes less time than opening a file and decoding the
rows before the piece."""
_BUFFER = 4 << 20
_BY_SPARK = b"org.apache.spark.version"
_INSTANT = pa.timestamp("us", "UTC")
_FOOTERS = MOST_OPEN
"""Files whose row groups are cached, at most, so that epochs do not read footers again."""


@dataclass(frozen=True, repr=False)
class ParquetSource(FileSource[Any]):
    """Source of Parquet files; the items are records in columns.

    Records have the columns of their file, and those of `partition_columns`. Items are ordered by
    file, see `order`, and by row in the file. Timestamps of type INT96, which have no time zone,
    are in UTC in files that Spark wrote, and datetimes without a time zone in others.

    Args:
        path: a file, a directory (all files below it), a glob (``*``, ``?``, ``[abc]``, and ``**``
            for any directories), or a list of these; on this machine or as a URI that
            `pyarrow.fs.FileSystem.from_uri` takes, such as ``s3://bucket/flights``, where ``?``
            starts options. Names that start with ``_`` or ``.`` are skipped, unless the path names
            them explicitly.
        columns: names of the columns to read, in order; ``None`` for all. Fewer are faster.
        partition_columns: names of columns whose values are in the names of directories, such as
            ``year=2013``, in the layout of Hive; text, unless it maps names to pyarrow types. Other
            directories add no columns. A `path` with a glob, such as ``lake/year=201?``, reads only
            some directories.
        rows_per_epoch: rows that an epoch reads, at most.
        follow: ``False`` lists the files once, as a run starts, and ends after the last. ``True``
            also reads files that appear later, and never ends. Each file is read once and must be
            complete when it appears: write it elsewhere, then move it into place.
        order: ``"sequence"`` reads one file after another, by path, as one source partition; use it
            for files that each hold a span of time, such as a file a day. ``"parallel"`` reads the
            files side by side, each as a source partition with event time of its own; use it for
            files that each hold one producer, such as a file a device. See
            ``docs/reference/files.md``.
        late_files: age up to which a new file is still read: how much older its modification time
            may be than that of the newest file. The source also remembers the name of a file that
            was read and removed for that long, so that the file is not read again if it comes back.
            An older file in a directory with removed files is logged and not read.

    Raises:
        SourceError: when the flow runs: a path matches no file, or a file cannot be read, is not
            Parquet, lacks a column or the directory of one, or has changed since it was listed.

    >>> ParquetSource("flights/", columns=["origin", "dep_delay"]).columns
    ('origin', 'dep_delay')
    """

    path: Paths
    _: KW_ONLY
    columns: Sequence[str] | None = None
    partition_columns: str | Sequence[str] | Schema = ()
    rows_per_epoch: int = 1_000_000
    follow: bool = False
    order: FileOrder = "sequence"
    late_files: Duration = LATE_FILES
    _wanted: ColumnPredicate | None = field(default=None, init=False, repr=False, compare=False)
    _time: str | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "columns", _as_columns(self.columns))
        added = as_partition_columns(self.partition_columns)
        object.__setattr__(self, "partition_columns", added or ())
        check_whole("rows_per_epoch", self.rows_per_epoch, 1)

    @property
    @override
    def units_per_epoch(self) -> int:
        return self.rows_per_epoch

    @override
    def cuts(self) -> Cuts:
        return RowCuts(self.paths, self._time)

    @override
    def item_type(self) -> type:
        return dict

    @override
    def record_columns(self) -> Any:
        """Return the columns of the first file; ``None`` if there is no file yet."""
        listed = find_files(self.paths, required=not self.follow)
        if not listed:
            return None
        file = min(listed)
        with open_file(connect(file.store, self.paths), file) as stream:
            parquet = parquet_file(stream)
            schema = _instants_of(parquet) or parquet.schema_arrow
        schema = pa.schema([*schema, *self._added])
        names = schema.names if self.columns is None else self.columns
        # The index is -1 also for a name that the file has twice.
        return pa.schema([schema.field(at) for at in map(schema.get_field_index, names) if at >= 0])

    @override
    def keeping(self, predicate: ColumnPredicate) -> ParquetSource:
        return with_predicate(self, predicate)

    @override
    def timed_by(self, column: str) -> ParquetSource:
        if not gives_rows_of_files(self):
            return self
        found = copy(self)
        object.__setattr__(found, "_time", column)
        return found

    @override
    def read_piece(
        self, filesystem: Any, piece: Piece, fields: frozenset[str] | None
    ) -> Iterator[Batch]:
        names = self._added.names
        inside = self.columns and [name for name in self.columns if name not in names]
        added = [one for one in self._added if _is_read(one.name, self.columns, fields)]
        with open_file(filesystem, piece.file) as stream:
            parquet = parquet_file(stream)
            columns = _columns_to_read(parquet, piece, inside, fields)
            given = values_of_directories(piece.file.path, self._added, piece.file) if names else {}
            groups = groups_with(self._wanted, stream, given) if self._wanted else None
            for rows in read_rows(parquet, piece.start, piece.end, columns, groups):
                if not added:
                    yield rows
                    continue
                whole = with_values(rows, {one.name: given[one.name] for one in added}, piece.file)
                found = map(whole.schema.get_all_field_indices, self.columns or ())
                yield whole.select([*chain.from_iterable(found)]) if self.columns else whole

    @property
    def _added(self) -> pa.Schema:
        """The columns of `partition_columns`."""
        return cast("pa.Schema", self.partition_columns or pa.schema([]))


class WrittenDownFrame(ParquetSource):
    """Source of the copy of a static data frame in a checkpoint, to which no files are added."""

    has_fixed_files: ClassVar[bool] = True


class RowCuts(Cuts):
    """Cuts of Parquet files, in rows: between row groups where possible.

    Args:
        paths: paths as the user gave them.
        time: the column of `peak_us`; ``None`` for none.
    """

    def __init__(self, paths: Sequence[str], time: str | None = None) -> None:
        self.least_split = LEAST_SPLIT
        self.least_piece = LEAST_PIECE
        self._paths = paths
        self._time = time
        self._groups_of: dict[File, tuple[list[int], list[int | None]]] = {}

    @override
    def length(self, file: File) -> int:
        return self._groups(file)[0][-1]

    @override
    def near(self, file: File, ideal: int, least: int, most: int) -> int:
        edges = self._groups(file)[0]
        cheap = edges[bisect_left(edges, least) : bisect_right(edges, most)]
        return min(cheap, key=lambda edge: abs(edge - ideal), default=ideal)

    @override
    def peak_us(self, pieces: Sequence[Piece]) -> int | None:
        peaks_us: list[int | None] = []
        for piece in pieces:
            edges, of_groups = self._groups(piece.file)
            first = bisect_right(edges, piece.start) - 1
            peaks_us += of_groups[first : bisect_left(edges, piece.end)]
        known = [peak_us for peak_us in peaks_us if peak_us is not None]
        return max(known) if known and len(known) == len(peaks_us) else None

    def _groups(self, file: File) -> tuple[list[int], list[int | None]]:
        """Return the edges and the greatest timestamps of the file's row groups."""
        if file not in self._groups_of:
            if len(self._groups_of) >= _FOOTERS:
                del self._groups_of[next(iter(self._groups_of))]
            with open_file(connect(file.store, self._paths), file) as stream:
                parquet = parquet_file(stream)
                found = _group_edges(parquet.metadata), _group_peaks(parquet, self._time)
                self._groups_of[file] = found
        return self._groups_of[file]


def parquet_file(stream: Any) -> Any:
    """Return an open file as a `pyarrow.parquet.ParquetFile`."""
    return pq.ParquetFile(stream, buffer_size=_BUFFER, coerce_int96_timestamp_unit="us")


def _columns_to_read(
    parquet: Any, piece: Piece, columns: Sequence[str] | None, fields: frozenset[str] | None
) -> list[str] | None:
    """Return the columns that the source selects and steps read; ``None`` for all of the file.

    At least one column is read, as its length is the number of items.
    """
    names = parquet.schema_arrow.names
    for name in columns or ():
        if name not in names:
            raise SourceError(f"{piece.file} has no column {name!r}: it has {shorten(names)}")
    if columns is None and fields is None:
        return None
    selected = names if columns is None else columns or names[:1]
    return [name for name in selected if _is_read(name, None, fields)] or list(selected[:1])


def _is_read(name: str, columns: Sequence[str] | None, fields: frozenset[str] | None) -> bool:
    """Return True if the source selects a column, and steps read it; ``None`` is all of them."""
    return (columns is None or name in columns) and (fields is None or name in fields)


def _group_edges(metadata: Any) -> list[int]:
    """Return the first row of each row group, and the number of rows; sorted."""
    groups = range(metadata.num_row_groups)
    return [0, *accumulate(metadata.row_group(group).num_rows for group in groups)]


def _group_peaks(parquet: Any, column: str | None) -> list[int | None]:
    """Return the greatest timestamp of each row group, in µs; ``None`` if it is not known."""
    metadata, schema = parquet.metadata, parquet.schema_arrow
    groups = range(metadata.num_row_groups)
    paths = [parquet.schema.column(number).path for number in range(len(parquet.schema))]
    kind = schema.field(column).type if schema.names.count(column) == 1 else pa.null()
    if not pa.types.is_timestamp(kind) or kind.tz is None or paths.count(column) != 1:
        return [None for _ in groups]
    number = paths.index(column)
    return [_peak_us(metadata.row_group(group).column(number).statistics, kind) for group in groups]


def _peak_us(bounds: Any, kind: Any) -> int | None:
    if bounds is None or not bounds.has_min_max:
        return None
    try:
        return int(pa.scalar(bounds.max, kind).cast(_INSTANT, safe=False).value)
    except (OverflowError, ValueError):  # No Python object holds the time.
        return None


def read_rows(
    parquet: Any,
    start: int,
    end: int,
    columns: list[str] | None,
    groups_read: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part of a file; rows before it in its first row group are decoded, too.

    Args:
        parquet: the open file, see `parquet_file`.
        start: number of the first row.
        end: number after the last row.
        columns: names of the columns to read; ``None`` for all.
        groups_read: numbers of the row groups to read, in order; ``None`` for all.
    """
    edges = _group_edges(parquet.metadata)
    if groups_read is not None:
        for group in groups_read:
            first, after = max(start, edges[group]), min(end, edges[group + 1])
            if first < after:
                yield from read_rows(parquet, first, after, columns)
        return
    first = bisect_right(edges, start) - 1
    groups = range(first, bisect_left(edges, end))
    at = edges[first]
    instants = _instants_of(parquet)
    for batch in parquet.iter_batches(
        ROWS, row_groups=list(groups), columns=columns, use_threads=False
    ):
        first_row, last = max(start - at, 0), min(end - at, batch.num_rows)
        at += batch.num_rows
        if first_row < last:
            rows = (
                _selected(batch, columns)
                .slice(first_row, last - first_row)
                .replace_schema_metadata(None)
            )
            yield rows if instants is None else _cast(rows, instants)
        if at >= end:
            return


def _selected(batch: pa.RecordBatch, columns: list[str] | None) -> pa.RecordBatch:
    """Return the columns of exactly these names, as the reader takes names for paths too.

    The reader takes ``"a.b"`` for the part ``b`` of ``a``, and ``"a"`` for the column ``"a.b"``.
    """
    names = batch.schema.names
    return batch.select([number for number, name in enumerate(names) if name in (columns or names)])


def _cast(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return rows.cast(pa.schema([schema.field(name) for name in rows.schema.names]))


def _instants_of(parquet: Any) -> pa.Schema | None:
    """Return an open file's schema with INT96 columns as instants; `None` if it has none.

    Spark writes a timestamp as INT96 unless `spark.sql.parquet.outputTimestampType` says otherwise.
    The type is older than Parquet's timestamps and names no time zone. Other writers put local time
    in it; Spark always writes UTC, and never a time without a zone.
    """
    columns = [parquet.schema.column(number) for number in range(len(parquet.schema))]
    found = [column.physical_type == "INT96" for column in columns]
    if not any(found) or _BY_SPARK not in (parquet.metadata.metadata or {}):
        return None
    leaves = iter(found)

    def instant(kind: Any) -> Any:
        return _INSTANT if next(leaves) else kind

    return pa.schema(
        [field.with_type(with_leaves(field.type, instant)) for field in parquet.schema_arrow]
    )


def _as_columns(columns: object) -> tuple[str, ...] | None:
    if columns is None:
        return None
    names = checked_texts("columns must be a list of names", columns)
    if not names or len(set(names)) < len(names):
        raise FlowBuildError(f"columns must name at least one, each once, got {shorten(names)}")
    return names
