"""Names of the files that a source has finished, in bounded memory.

A source compares each listing with the names of the files that were read. Spark's file source
expires names that are older than the newest file by `maxFileAge` (a week), and skips files that
appear later than that without a message. Flink's `FileSource` never expires a path. This module
expires names and reports late files:

- A name takes 28 bytes: a 128-bit hash, the modification time and the directory. Two of a billion
  names have the same hash with a probability of 1 in 10^21, so lookups are exact in practice.
- A name expires once its file is missing from the listing and is older than the newest file by more
  than `late_files`. Memory is therefore bounded by the files in the directories, whose listing
  takes many times as much, and the files removed within `late_files`.
- Expired names of a directory leave a *mark*: their greatest modification time. A file of that
  directory that is unknown and not newer than the mark is *late*: it may be a file that was read,
  removed and put back. The source reports a late file and does not read it.

A directory without expired names has no mark, so any unknown file in it is new, however old.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flow.connectors.files.places.place import canonical_store
from flow.errors import SourceError, first_line
from flow.format_version import VERSION, check_format

Mask: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.int64]

MOST_MARKS = 1_000
"""Marks, at most; above that, the deepest directories are merged into their parent's mark."""
CHUNK = 1 << 16
"""Names in one lookup."""

_BELOW = "\0"
"""Suffix of a directory whose mark also holds for all directories below it."""
_COLUMNS = ("high", "low", "mtime", "folder")


def digest_of(store: str, path: str) -> bytes:
    """Return the 128-bit hash of the name of a file."""
    name = f"{canonical_store(store)} {path}".encode(errors="surrogateescape")
    return hashlib.blake2b(name, digest_size=16).digest()


def folder_of(store: str, path: str) -> str:
    """Return the directory of a file, after its store and a space.

    >>> folder_of("s3a://bucket", "bucket/in/a.csv")
    's3://bucket bucket/in'
    """
    return f"{canonical_store(store)} {path.rpartition('/')[0]}"


class SeenFiles:
    """Set of file names, each with a modification time, and the marks of directories.

    The names are rows of a table, sorted by `high`. Its columns have shape (names,) and are never
    changed in place, so copies share them:

    - `high` and `low`: uint64, the halves of the hash;
    - `mtime`: int64 ns since the Unix epoch, 0 if unknown;
    - `folder`: uint32, index of the directory in `folders`.
    """

    def __init__(self) -> None:
        self._high = np.empty(0, np.uint64)
        self._low = np.empty(0, np.uint64)
        self._mtime = np.empty(0, np.int64)
        self._folder = np.empty(0, np.uint32)
        self._folders: list[str] = []
        self._marks: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._high)

    @property
    def newest_ns(self) -> int:
        """Greatest modification time of the files, in ns since the Unix epoch; 0 if unknown."""
        return int(self._mtime.max(initial=0))

    def copy(self) -> SeenFiles:
        """Return an independent copy."""
        other = SeenFiles()
        other._set_table(self._high, self._low, self._mtime, self._folder)
        other._folders, other._marks = list(self._folders), dict(self._marks)
        return other

    def find(self, digests: Sequence[bytes]) -> Rows:
        """Return the row of each name in the table, or -1; int64, shape (digests,)."""
        result = np.full(len(digests), -1, np.int64)
        if not len(self) or not digests:
            return result
        wanted = _halves(digests)
        high, low = wanted[:, 0], wanted[:, 1]
        rows = np.searchsorted(self._high, high)
        while True:
            # Rows with the same first half are adjacent; a second such row is very rare.
            inside = np.minimum(rows, len(self) - 1)
            same_high = (rows < len(self)) & (self._high[inside] == high)
            same = same_high & (self._low[inside] == low)
            result[same] = rows[same]
            if not np.any(same_high & (result < 0)):
                return result
            rows = rows + 1

    def add(self, names: Iterable[tuple[str, str, int]]) -> None:
        """Add files that are not in the set.

        Args:
            names: store, path and modification time (ns since the Unix epoch, or 0) of each.
        """
        numbers = {folder: number for number, folder in enumerate(self._folders)}
        new: dict[bytes, tuple[int, int]] = {}
        for store, path, mtime in names:
            folder = numbers.setdefault(folder_of(store, path), len(numbers))
            new[digest_of(store, path)] = mtime, folder
        if not new:
            return
        digests = list(new)
        unknown = self.find(digests) < 0
        halves = _halves(digests)[unknown]
        added = np.array(list(new.values()), np.int64).reshape(-1, 2)[unknown]
        self._folders = list(numbers)
        high = np.concatenate([self._high, halves[:, 0]])
        order = np.argsort(high, kind="stable")
        self._set_table(
            high[order],
            np.concatenate([self._low, halves[:, 1]])[order],
            np.concatenate([self._mtime, added[:, 0]])[order],
            np.concatenate([self._folder, added[:, 1].astype(np.uint32)])[order],
        )

    def expire(self, before_ns: int, present: Mask) -> None:
        """Remove names of missing and old files, and raise the marks of their directories.

        Args:
            before_ns: exclusive bound of the modification times that expire, in ns since the Unix
                epoch; files without a modification time do not expire.
            present: bool, shape (names,), True if the last listing contains the file.
        """
        is_expired = ~present & (self._mtime > 0) & (self._mtime < before_ns)
        if not is_expired.any():
            return
        newest = np.zeros(len(self._folders), np.int64)
        np.maximum.at(newest, self._folder[is_expired], self._mtime[is_expired])
        for number in np.unique(self._folder[is_expired]):
            folder = self._folders[number]
            self._marks[folder] = max(self._marks.get(folder, 0), int(newest[number]))
        self._marks = _bounded(self._marks)
        rest = ~is_expired
        used, folders = np.unique(self._folder[rest], return_inverse=True)
        self._folders = [self._folders[number] for number in used]
        self._set_table(
            self._high[rest], self._low[rest], self._mtime[rest], folders.astype(np.uint32)
        )

    def fill_mtimes(self, mtime: int) -> None:
        """Set the modification time of files whose time is unknown, so that they can expire.

        Some stores have no modification times.

        Args:
            mtime: ns since the Unix epoch; the time of the newest file is safe.
        """
        if not self._mtime.all():
            self._mtime = np.where(self._mtime == 0, mtime, self._mtime)

    def is_late(self, store: str, path: str, mtime: int) -> bool:
        """Return True if a file that is not in the set may be an expired one.

        Args:
            store: store of the file.
            path: path in the store.
            mtime: modification time, in ns since the Unix epoch; 0 if the store has none.
        """
        folder = folder_of(store, path)
        marks = (self._marks.get(name, 0) for name in (folder, *_wider(folder)))
        return bool(self._marks) and 0 < mtime <= max(marks)

    def has_below(self, store: str, path: str) -> bool:
        """Return True if a file at a path, or below it, is in the set or has expired."""
        if self.find([digest_of(store, path)])[0] >= 0:
            return True
        base = f"{canonical_store(store)} {path}"
        return any(
            f"{folder.removesuffix(_BELOW)}/".startswith(f"{base.rstrip('/')}/")
            or (folder.endswith(_BELOW) and f"{base}/".startswith(f"{folder[:-1]}/"))
            for folder in (*self._folders, *self._marks)
        )

    def to_table(self) -> tuple[pa.RecordBatch, dict[str, Any]]:
        """Return the table, and the directories and marks as JSON; `from_table` reads both."""
        columns = [pa.array(getattr(self, f"_{name}")) for name in _COLUMNS]
        rest = {"folders": self._folders, "marks": self._marks}
        return pa.RecordBatch.from_arrays(columns, list(_COLUMNS)), rest

    @classmethod
    def from_table(cls, table: pa.Table, rest: dict[str, Any]) -> SeenFiles:
        """Return the set that `to_table` encoded."""
        seen = cls()
        seen._set_table(*(table.column(name).to_numpy() for name in _COLUMNS))
        seen._folders, seen._marks = list(rest["folders"]), dict(rest["marks"])
        return seen

    def _set_table(self, high: Any, low: Any, mtime: Any, folder: Any) -> None:
        self._high, self._low, self._mtime, self._folder = high, low, mtime, folder


def _halves(digests: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    """Return hashes as an array of shape (names, 2)."""
    joined = np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2)
    return joined.astype(np.uint64)


def _above(folder: str) -> str:
    """Return the parent of a directory, in the same store.

    >>> _above("s3://bucket bucket/in"), _above(" /")
    ('s3://bucket bucket', ' ')
    """
    store, _, path = folder.partition(" ")
    return f"{store} {path.rpartition('/')[0]}"


def _wider(folder: str) -> Iterator[str]:
    """Yield the keys of the marks that hold for a directory and all below, from the bottom up."""
    while True:
        yield folder + _BELOW
        above = _above(folder)
        if above == folder:
            return
        folder = above


def _bounded(marks: dict[str, int]) -> dict[str, int]:
    """Return at most `MOST_MARKS` marks, by merging the deepest, level by level."""
    while len(marks) > MOST_MARKS:
        depth = max(folder.count("/") for folder in marks)
        merged: dict[str, int] = {}
        for folder, mark in marks.items():
            name = folder
            if folder.count("/") == depth:
                name = _above(folder.removesuffix(_BELOW)) + _BELOW
            merged[name] = max(merged.get(name, 0), mark)
        if merged == marks:
            return marks
        marks = merged
    return marks


_WHAT = "the summary of the files that were read"
_HEADER = b"flow.files"
_FILES = ("store", "path", "size", "mtime")


@dataclass(frozen=True)
class FileSummary:
    """List of files: the names of the finished ones, then the others in full.

    It replaces the entries of the source's log. Encoded, it is two consecutive Arrow streams: the
    table of `SeenFiles`, with a header in the metadata of its schema; then the files that offsets
    may still refer to.

    Attributes:
        first: number of the first file in `files`.
        seen: names of the files before that number.
        files: store, path, size in bytes and modification time in ns of each further file.
    """

    first: int = 0
    seen: SeenFiles = field(default_factory=SeenFiles)
    files: Sequence[tuple[str, str, int, int]] = ()

    def encode(self) -> bytes:
        """Return the summary as bytes that `decode` reads."""
        table, rest = self.seen.to_table()
        header = {"version": VERSION, "first": self.first, **rest}
        table = table.replace_schema_metadata({_HEADER: json.dumps(header).encode()})
        columns = [list(column) for column in zip(*self.files, strict=True)] or [[]] * 4
        types = (pa.string(), pa.string(), pa.int64(), pa.int64())
        files = pa.RecordBatch.from_arrays(list(map(pa.array, columns, types)), list(_FILES))
        sink = pa.BufferOutputStream()
        for batch in (table, files):
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
        return bytes(sink.getvalue())

    @classmethod
    def decode(cls, content: bytes) -> FileSummary:
        """Return the summary that `encode` encoded.

        Raises:
            SourceError: the content is no summary, or has another format.
        """
        try:
            reader = pa.BufferReader(content)
            table, files = (pa.ipc.open_stream(reader).read_all() for _ in range(2))
            header = json.loads(table.schema.metadata[_HEADER])
            check_format(_WHAT, header["version"], SourceError)
            rows = zip(*(files.column(name).to_pylist() for name in _FILES), strict=True)
            seen = SeenFiles.from_table(table, header)
            return cls(int(header["first"]), seen, list(rows))
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            raise SourceError(
                f"{_WHAT} cannot be read: {first_line(error)}; put the checkpoint back from a "
                "copy, or start over on another one"
            ) from error
