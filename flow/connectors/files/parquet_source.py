"""Reading Parquet files as columns."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from flow.checks import check_choice, check_flag, check_whole
from flow.connectors.files.line_source import (
    FileSource,
    Paths,
    name_of_files,
    path_list,
)
from flow.connectors.files.listing import LATE_FILES, File, FileList, check_late_files, opened
from flow.connectors.files.parallel_planning import MOST_OPEN, file_planner
from flow.connectors.files.places import (
    checked_paths,
    connect,
    find_files,
    repr_without_credentials,
)
from flow.connectors.files.planning import FILE_ORDERS, Cuts, FileOrder, Piece
from flow.connectors.formats.parquet_instants import instants_of
from flow.connectors.source import Batch, Planner, SourceLog, Split
from flow.durations import Duration, duration_us
from flow.errors import FlowBuildError, FlowTypeError, SourceError, shorten

ROWS = 65_536
"""Rows in a batch, at most."""
LEAST_SPLIT = 32_768
"""Rows; reading fewer takes less time than starting a task."""
LEAST_PIECE = 4_096
"""Rows; reading fewer takes less time than opening a file and decoding what comes before them."""
_BUFFER = 4 << 20
_FOOTERS = MOST_OPEN
"""Files whose row groups are remembered, so that no footer is read anew for each epoch."""


@dataclass(frozen=True, repr=False)
class ParquetSource(FileSource[Any]):
    """Read Parquet files; the items are records, in columns.

    Each file gives the columns that it has, without those that directories such as ``year=2013``
    stand for. The items come in the order of the files' paths, and of rows in a file; see `order`.
    A timestamp of the type INT96, which does not say of which time zone it is, is in UTC where
    Spark has written the file, and else a datetime without a time zone.

    Args:
        path: a file, a directory (all files below it), a glob (``*``, ``?``, ``[abc]``, and ``**``
            for any directories), or a list of those; on this machine or as a URI that
            `pyarrow.fs.FileSystem.from_uri` takes, such as ``s3://bucket/flights``. Names that
            start with ``_`` or ``.`` are skipped, unless they are written out.
        columns: the columns to read, in order; ``None`` for all. Fewer are faster.
        rows_per_epoch: how many rows an epoch reads, at most.
        follow: whether to go on with the files that appear later, and never end. A file must be
            complete when it appears, so write it elsewhere and move it into place; it is read once.
            Without it, files are listed once, as a run starts.
        order: ``"sequence"``: the files are one source partition, read one after another in order
            (a file a day). ``"parallel"``: each file is a source partition of its own, read side by
            side (a file a device); ``docs/files.md`` shows both.
        late_files: how much older than the newest file a file may be when it appears, by their
            modification times; see ``docs/files.md``. A file that is removed from the directory
            once it is read is remembered for that long.

    Raises:
        SourceError: when the flow runs, for a path that stands for no file, and a file that cannot
            be read, is not Parquet, lacks a column, or has changed since it was listed.

    >>> ParquetSource("flights/", columns=["origin", "dep_delay"]).columns
    ('origin', 'dep_delay')
    """

    fixed: ClassVar[bool] = False

    path: Paths
    _: KW_ONLY
    columns: Sequence[str] | None = None
    rows_per_epoch: int = 1_000_000
    follow: bool = False
    order: FileOrder = "sequence"
    late_files: Duration = LATE_FILES

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", checked_paths(self.path))
        object.__setattr__(self, "columns", _checked_columns(self.columns))
        check_whole("rows_per_epoch", self.rows_per_epoch, 1)
        check_flag("follow", self.follow)
        check_choice("order", self.order, FILE_ORDERS)
        check_late_files(self.late_files)
        object.__setattr__(self, "bounded", not self.follow)

    __repr__ = repr_without_credentials

    @override
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        paths = path_list(self.path)
        find = partial(find_files, paths, required=not self.follow)
        late_us = duration_us(self.late_files)
        return file_planner(
            self.order,
            FileList(log, find, follow=self.follow, fixed=self.fixed, late_us=late_us),
            RowCuts(paths),
            name=name_of_files(paths),
            per_epoch=self.rows_per_epoch,
            parallelism=parallelism,
            follow=self.follow,
        )

    @override
    def read(self, split: Split) -> Iterator[Batch]:
        return self._read(split, None)

    @override
    def read_fields(self, split: Split, fields: frozenset[str]) -> Iterator[Batch]:
        return self._read(split, fields)

    def _read(self, split: Split, fields: frozenset[str] | None) -> Iterator[Batch]:
        for entry in split.what:
            piece = Piece.from_json(entry)
            filesystem = connect(piece.file.store, path_list(self.path))
            with opened(filesystem, piece.file) as stream:
                parquet = _parquet_file(stream)
                columns = _columns_to_read(parquet, piece, self.columns, fields)
                yield from _read_rows(parquet, piece, columns)


class WrittenDownFrame(ParquetSource):
    """The copy of a static data frame in a checkpoint, to which no files are added."""

    fixed = True


class RowCuts(Cuts):
    """Files counted in rows, which are best cut between row groups."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.least_split = LEAST_SPLIT
        self.least_piece = LEAST_PIECE
        self._paths = paths
        self._known: dict[File, list[int]] = {}

    @override
    def length(self, file: File) -> int:
        return self._edges(file)[-1]

    @override
    def near(self, file: File, ideal: int, least: int, most: int) -> int:
        edges = self._edges(file)
        cheap = edges[bisect_left(edges, least) : bisect_right(edges, most)]
        return min(cheap, key=lambda edge: abs(edge - ideal), default=ideal)

    def _edges(self, file: File) -> list[int]:
        """Where the file's row groups begin and end, in rows."""
        if file not in self._known:
            if len(self._known) >= _FOOTERS:
                del self._known[next(iter(self._known))]
            with opened(connect(file.store, self._paths), file) as stream:
                self._known[file] = _group_edges(_parquet_file(stream).metadata)
        return self._known[file]


def _parquet_file(stream: Any) -> Any:
    return pq.ParquetFile(stream, buffer_size=_BUFFER, coerce_int96_timestamp_unit="us")


def _columns_to_read(
    parquet: Any, piece: Piece, columns: Sequence[str] | None, fields: frozenset[str] | None
) -> list[str] | None:
    """The columns that are asked for and that anybody reads; ``None`` for all there are."""
    names = parquet.schema_arrow.names
    for name in columns or ():
        if name not in names:
            raise SourceError(f"{piece.file} has no column {name!r}: it has {shorten(names)}")
    if fields is None:
        return None if columns is None else list(columns)
    asked = names if columns is None else columns
    # Without any of them, one still says how many rows there are.
    return [name for name in asked if name in fields] or list(asked[:1])


def _group_edges(metadata: Any) -> list[int]:
    groups = range(metadata.num_row_groups)
    return [0, *accumulate(metadata.row_group(group).num_rows for group in groups)]


def _read_rows(parquet: Any, piece: Piece, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    """The rows of a piece. What comes before them in their row group has to be decoded, too."""
    edges = _group_edges(parquet.metadata)
    first = bisect_right(edges, piece.start) - 1
    groups = range(first, bisect_left(edges, piece.end))
    at = edges[first]
    instants = instants_of(parquet)
    for batch in parquet.iter_batches(
        ROWS, row_groups=list(groups), columns=columns, use_threads=False
    ):
        begin, end = max(piece.start - at, 0), min(piece.end - at, batch.num_rows)
        at += batch.num_rows
        if begin < end:
            rows = batch.slice(begin, end - begin).replace_schema_metadata(None)
            yield rows if instants is None else _cast(rows, instants)
        if at >= piece.end:
            return


def _cast(rows: pa.RecordBatch, kinds: pa.Schema) -> pa.RecordBatch:
    return rows.cast(pa.schema([kinds.field(name) for name in rows.schema.names]))


def _checked_columns(columns: object) -> tuple[str, ...] | None:
    if columns is None:
        return None
    if not isinstance(columns, (list, tuple)) or not all(isinstance(n, str) for n in columns):
        raise FlowTypeError(
            f"columns must be a list of names, got {type(columns).__name__} {shorten(columns)}"
        )
    if not columns or len(set(columns)) < len(columns):
        raise FlowBuildError(f"columns must name at least one, each once, got {shorten(columns)}")
    return tuple(columns)
