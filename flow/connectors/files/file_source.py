"""Base of the sources of files: the arguments that they share, and their planner."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, TypeAlias, TypeVar, get_args

from typing_extensions import override

from flow.checks import check_choice, check_flag
from flow.connectors.files.file_list import FileList
from flow.connectors.files.file_planning import PLANNERS, Cuts, FileOrder, Piece
from flow.connectors.files.filesystems import (
    absolute,
    as_paths,
    check_found,
    connect,
    datasets_of_files,
    find_files,
    is_local,
    repr_without_credentials,
    without_credentials,
    without_passwords,
)
from flow.connectors.source import Batch, Dataset, Json, Planner, Source, SourceLog, Split
from flow.durations import Duration, natural_us

X = TypeVar("X")

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
"""A file, a directory, a glob or a URI, or a list of these."""


class FileSource(Source[X]):
    """Base of the sources of files, which are dataclasses with these attributes.

    Attributes:
        path: a file, a directory, a glob or a URI, or a list of these.
        follow: True if the source reads files that appear during the run.
        order: order of the files.
        late_files: age, relative to the newest file, up to which a file may appear.
    """

    path: Paths
    follow: bool
    order: FileOrder
    late_files: Duration

    has_fixed_files: ClassVar[bool] = False
    """True if a run that continues from a checkpoint reads the files of the first run only."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", as_paths(self.path))
        check_flag("follow", self.follow)
        check_choice("order", self.order, get_args(FileOrder))
        _ = self.late_us
        object.__setattr__(self, "bounded", not self.follow)

    __repr__ = repr_without_credentials

    @cached_property
    def late_us(self) -> int:
        """`late_files` in microseconds."""
        return natural_us(self.late_files, "late_files")

    @property
    def paths(self) -> tuple[str, ...]:
        """The checked `path` argument as a tuple."""
        paths = [self.path] if isinstance(self.path, (str, os.PathLike)) else self.path
        return tuple(os.fspath(path) for path in paths)

    @override
    def identity(self) -> Json:
        return identity_of_files(self.paths)

    @override
    def datasets(self) -> Sequence[Dataset]:
        return datasets_of_files(self.paths)

    @override
    def continues(self, before: Json) -> str:
        return "files that are listed already are read to their end, then those that are new"

    @property
    @abstractmethod
    def units_per_epoch(self) -> int:
        """Units (bytes or rows) that an epoch reads, at most."""

    @abstractmethod
    def cuts(self) -> Cuts:
        """Return the lengths and cuts of the files."""

    @override
    def check(self) -> None:
        check_found([path for path in self.paths if is_local(path)], required=not self.follow)

    @override
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        find = partial(find_files, self.paths, required=not self.follow)
        files = FileList(
            log,
            find,
            follow=self.follow,
            fixed=self.has_fixed_files,
            late_us=self.late_us,
        )
        return PLANNERS[self.order](
            files,
            self.cuts(),
            name=", ".join(map(without_credentials, self.paths)),
            per_epoch=self.units_per_epoch,
            parallelism=parallelism,
            follow=self.follow,
        )

    @override
    def read(self, split: Split) -> Iterator[Batch]:
        return self.read_fields(split, None)

    @override
    def read_fields(self, split: Split, fields: frozenset[str] | None) -> Iterator[Batch]:
        for entry in split.what:
            piece = Piece.from_json(entry)
            yield from self.read_piece(connect(piece.file.store, self.paths), piece, fields)

    @abstractmethod
    def read_piece(
        self, filesystem: Any, piece: Piece, fields: frozenset[str] | None
    ) -> Iterator[Batch]:
        """Read the items of a piece of a file.

        Args:
            filesystem: the `pyarrow.fs.FileSystem` of the file.
            piece: the piece.
            fields: fields that steps read, where the format can leave out others; ``None`` for all.
        """


def identity_of_files(paths: Sequence[str]) -> Json:
    """Return paths from the root, sorted and without passwords, as the identity of a source.

    >>> identity_of_files(["/b", "s3://me:secret@bucket/*.csv"])
    {'paths': ['/b', 's3://bucket/*.csv']}
    """
    return {"paths": sorted({without_passwords(absolute(path)) for path in paths})}
