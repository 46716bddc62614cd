"""Source that follows the versions of a table in a lakehouse, and its planner.

An offset is a position in the table's log: a version, a number of a file that the version gives,
and a row of that file. The first run may begin with a snapshot, all files of a version in the order
in which they were written.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, TypeAlias

import pyarrow as pa
from typing_extensions import override

from flow.checks import check_flag, check_whole, checked_texts
from flow.columns.predicate import ColumnPredicate
from flow.connectors.formats.pushdown import may_hold, with_predicate
from flow.connectors.lakehouse.lake_place import LakePlace, with_hidden_options
from flow.connectors.source import Batch, Json, Planner, Slice, Source, Split
from flow.errors import FlowBuildError, SourceError, shorten
from flow.instants import Instant, Moment, instant_us

_LEAST_ROWS = 10_000
"""Rows of a split, at least; fewer are not worth a task of their own."""

_Piece: TypeAlias = "tuple[str, int, int, Mapping[str, Any]]"
"""Part of a file: its path, first row, the row after the last, and columns with one value."""

READ_ANEW = (
    "read the table from its beginning, with another recovery path, or by naming this input in "
    "RecoveryConfig(path, reset_steps=[...])"
)
"""Advice where a version can no longer be read."""


@dataclass(frozen=True)
class AddedFile:
    """A data file that a version gives.

    Attributes:
        path: the file's name, as the table has it.
        rows: number of rows; ``None`` if the log does not say.
        values: columns with one value, as the log has them: those of partitions, and the change.
    """

    path: str
    rows: int | None
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Version:
    """Files that a version gives, and its columns.

    Attributes:
        files: the files, in order.
        schema: the table's columns as the format has them, JSON.
        time_us: time of the commit, in µs since the Unix epoch; ``None`` if it is unknown.
    """

    files: Sequence[AddedFile]
    schema: str
    time_us: int | None = None


@dataclass(frozen=True)
class Position:
    """Position in a table's log: all before it is read.

    Attributes:
        table: id of the table.
        version: the version.
        file: number of the file in the version.
        row: number of the row in the file.
        whole: True if the version is read as a snapshot, with all its files.
    """

    table: str
    version: int
    file: int = 0
    row: int = 0
    whole: bool = False


@dataclass(frozen=True, repr=False)
class LakeSource(Source[Any]):
    """Base of sources that follow a table of a lakehouse; see `DeltaSource` for the arguments."""

    _: KW_ONLY
    start: int | Instant | Literal["latest"] | None = None
    columns: Sequence[str] | None = None
    follow: bool = False
    rows_per_epoch: int = 1_000_000
    _wanted: ColumnPredicate | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_flag("follow", self.follow)
        check_whole("rows_per_epoch", self.rows_per_epoch, 1)
        if isinstance(self.start, int):
            check_whole("start", self.start, 0)
        elif self.start not in (None, "latest"):
            instant_us(self.start)
        if self.columns is not None:
            names = checked_texts("columns must be a list of names", self.columns)
            if not names:
                raise FlowBuildError("columns must name at least one column, got none")
            object.__setattr__(self, "columns", names)
        object.__setattr__(self, "bounded", not self.follow)

    __repr__ = with_hidden_options

    @property
    @abstractmethod
    def place(self) -> LakePlace:
        """The place of the table."""

    @override
    def item_type(self) -> type:
        return dict

    @override
    def check(self) -> None:
        self.record_columns()

    @override
    def read(self, split: Split) -> Iterator[Batch]:
        return self.read_fields(split, None)

    @override
    def keeping(self, predicate: ColumnPredicate) -> LakeSource:
        return with_predicate(self, predicate)

    @abstractmethod
    def known_of(self, version: Version) -> tuple[pa.Schema, list[Mapping[str, Any]]]:
        """Return a version's columns, and for each file the scalars of columns with one value."""

    def kept_of(self, version: Version) -> list[AddedFile]:
        """Return the files of a version; without rows where the flow's filter drops all rows."""
        if self._wanted is None or not version.files:
            return list(version.files)
        with self.place.explained(f"{self.place} cannot be read"):
            are_kept = may_hold(self._wanted, *self.known_of(version))
        pairs = zip(version.files, are_kept, strict=True)
        return [file if is_kept else replace(file, rows=0) for file, is_kept in pairs]

    @abstractmethod
    def read_fields(self, split: Split, fields: frozenset[str] | None) -> Iterator[Batch]:
        """Yield the items of a split with some of the columns; ``None`` for all."""

    def check_columns(self, there: Sequence[str]) -> None:
        """Raise a `SourceError` if a table lacks one of the columns to read."""
        for name in self.columns or ():
            if name not in there:
                raise SourceError(f"{self.place} has no column {name!r}: it has {shorten(there)}")


class VersionPlanner(Planner):
    """Planner that reads the log of a table, and cuts versions into epochs.

    Args:
        source: the source.
        table: id of the table.
        parallelism: number of tasks.
    """

    def __init__(self, source: LakeSource, table: str, parallelism: int) -> None:
        self._source, self._id, self._parallelism = source, table, max(1, parallelism)
        self._place = source.place
        self._next_us: int | None = None

    @abstractmethod
    def _first(self) -> Position:
        """Return the position at which the first run begins."""

    @abstractmethod
    def _found(self, at: Position) -> tuple[Position, Version] | None:
        """Return the version at a position, and the position in it.

        ``None`` if there is no such version yet, or if it is not to be read.
        """

    @abstractmethod
    def _after(self, at: Position) -> Position:
        """Return the position after the version of a position."""

    @override
    def next(self, start: Json | None) -> Slice | None:
        at = self._first() if start is None else self._resumed(start)
        pieces, schema, end = self._take(at, self._source.rows_per_epoch)
        if start is not None and end == at:
            return None
        ahead, _, _ = self._take(end, 1)
        found = self._found(end) if ahead else None
        self._next_us = found[1].time_us if found else None
        return Slice(vars(end), self._splits(pieces, schema), behind={0} if ahead else ())

    @override
    def finished(self, start: Json | None) -> bool:
        if self._source.follow or start is None:
            return False
        return not self._take(self._resumed(start), 1)[0]

    @override
    def read_until_us(self, now: Moment, behind: bool) -> int | None:
        if behind and self._next_us is None:
            return None
        arrived_us = min(self._next_us or 0, now.now_us) if behind else now.now_us
        return arrived_us - (now.now_us - now.running_us)

    @override
    def name_of(self, partition: int) -> str:
        return str(self._place)

    @override
    def lag(self, start: Json | None) -> str:
        return "" if start is None else f"version {start['version']}"

    def _resumed(self, start: Json) -> Position:
        at = Position(**start)
        if at.table != self._id:
            raise SourceError(
                f"{self._place} is not the table that the run has read before, but one that "
                f"replaced it: {READ_ANEW}"
            )
        return at

    def _take(self, at: Position, most: int) -> tuple[list[_Piece], str, Position]:
        """Return the next rows, the columns of all of them, and the position after them."""
        pieces: list[_Piece] = []
        schema, left = "", most
        while left > 0 and (found := self._found(at)) is not None:
            if pieces and found[1].schema != schema:
                break
            at, version = found
            if not version.files:
                at = self._after(at)
                continue
            schema, file = version.schema, version.files[at.file]
            rows = file.rows or 0
            end = min(rows, at.row + left)
            if end > at.row:
                pieces.append((file.path, at.row, end, file.values))
                left -= end - at.row
            if end < rows:
                at = replace(at, row=end)
            elif at.file + 1 < len(version.files):
                at = replace(at, file=at.file + 1, row=0)
            else:
                at = self._after(at)
        return pieces, schema, at

    def _splits(self, pieces: Sequence[_Piece], schema: str) -> list[Split]:
        """Return the pieces of an epoch in splits of similar size."""
        total = sum(end - start for _, start, end, _ in pieces)
        share = size = max(_LEAST_ROWS, -(-total // self._parallelism))
        groups: list[list[_Piece]] = []
        for path, start, end, values in pieces:
            for at in range(start, end, share):
                if size >= share:
                    groups.append([])
                    size = 0
                groups[-1].append((path, at, min(at + share, end), values))
                size += min(share, end - at)
        return [
            Split({"schema": schema, "pieces": group}, order=order)
            for order, group in enumerate(groups)
        ]
