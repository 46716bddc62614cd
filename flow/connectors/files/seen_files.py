"""Names of files that a source has listed and needs no more, in bounded memory.

A listing has to tell new files from those that were read. Spark's file source remembers names and
modification times, and forgets those that are older than the newest file by `maxFileAge` (a week);
a file that comes later than that is taken for one that was read, and nobody is told. Flink's
`FileSource` remembers the paths of all files in each checkpoint, for ever. Here

- a name is 28 bytes: a 128-bit hash, the modification time and the directory. Two of a billion
  names have the same hash with a probability of 1 in 10^21: in practice memory is exact.
- A name is forgotten only once its file is gone from the listing, and was modified longer before
  the newest file than a file may come late. So memory follows the files that a directory holds, of
  which a listing takes many times as much, and those removed lately.
- Of the names that were forgotten in a directory, the *mark* remains: their greatest modification
  time. A file there that is not remembered and not newer than the mark is *late*: it may be one
  that was read, put back. The source reports it and does not read it.

A directory in which nothing was forgotten has no mark: whatever appears there is new, however old.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flow.connectors.files.places import hadoop_free

Mask: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.int64]

MOST_MARKS = 1_000
"""Marks, at most; with more, the deepest directories share one for all below the one above."""
CHUNK = 1 << 16
"""Names that are looked up at a time."""

_BELOW = "\0"
"""What ends the name of a directory whose mark holds for all directories below it, too."""
_COLUMNS = ("high", "low", "mtime", "folder")


def digest_of(store: str, path: str) -> bytes:
    """Return 16 bytes that stand for a file's name."""
    name = f"{hadoop_free(store)} {path}".encode(errors="surrogateescape")
    return hashlib.blake2b(name, digest_size=16).digest()


def folder_of(store: str, path: str) -> str:
    """Return the directory of a file, after its store and a space.

    >>> folder_of("s3a://bucket", "bucket/in/a.csv")
    's3://bucket bucket/in'
    """
    return f"{hadoop_free(store)} {path.rpartition('/')[0]}"


class SeenFiles:
    """Set of names of files, each with a modification time, and the marks of forgotten ones.

    The table's columns are arrays of the same length, sorted by `high`: `high` and `low`: uint64,
    the halves of the hash; `mtime`: int64 ns since the Unix epoch; `folder`: uint32, index of the
    directory in `folders`. They are never changed in place, so a copy may share them.
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
        """Greatest modification time of a remembered file, in ns since the Unix epoch; or 0."""
        return int(self._mtime.max(initial=0))

    @property
    def nbytes(self) -> int:
        """Bytes of the table in memory."""
        return sum(getattr(self, f"_{name}").nbytes for name in _COLUMNS)

    def copy(self) -> SeenFiles:
        """Return a set that changes by itself."""
        other = SeenFiles()
        other._take(self._high, self._low, self._mtime, self._folder)
        other._folders, other._marks = list(self._folders), dict(self._marks)
        return other

    def find(self, digests: Sequence[bytes]) -> Rows:
        """Return the row of each name in the table, -1 where it is not remembered."""
        found = np.full(len(digests), -1, np.int64)
        if not len(self) or not digests:
            return found
        wanted = _halves(digests)
        high, low = wanted[:, 0], wanted[:, 1]
        rows = np.searchsorted(self._high, high)
        while True:
            # Names that share their first half, which are as good as none, lie side by side.
            inside = np.minimum(rows, len(self) - 1)
            same_high = (rows < len(self)) & (self._high[inside] == high)
            same = same_high & (self._low[inside] == low)
            found[same] = rows[same]
            if not np.any(same_high & (found < 0)):
                return found
            rows = rows + 1

    def add(self, names: Iterable[tuple[str, str, int]]) -> None:
        """Remember files.

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
        self._take(
            high[order],
            np.concatenate([self._low, halves[:, 1]])[order],
            np.concatenate([self._mtime, added[:, 0]])[order],
            np.concatenate([self._folder, added[:, 1].astype(np.uint32)])[order],
        )

    def expire(self, before_ns: int, present: Mask) -> None:
        """Forget files that are gone and old, and move the marks of their directories.

        Args:
            before_ns: files modified at this time or later are remembered; ns, Unix epoch.
            present: for each row of the table, whether the last listing had the file.
        """
        gone = ~present & (self._mtime > 0) & (self._mtime < before_ns)
        if not gone.any():
            return
        newest = np.zeros(len(self._folders), np.int64)
        np.maximum.at(newest, self._folder[gone], self._mtime[gone])
        for number in np.unique(self._folder[gone]):
            folder = self._folders[number]
            self._marks[folder] = max(self._marks.get(folder, 0), int(newest[number]))
        self._marks = _bounded(self._marks)
        kept = ~gone
        used, folders = np.unique(self._folder[kept], return_inverse=True)
        self._folders = [self._folders[number] for number in used]
        self._take(self._high[kept], self._low[kept], self._mtime[kept], folders.astype(np.uint32))

    def date(self, mtime: int) -> None:
        """Take files of which it is not known when they were modified to be of a time.

        Logs of the first format, and some stores, have no modification times. Such files, whose
        time is 0, are not forgotten before.

        Args:
            mtime: the time, in ns since the Unix epoch; that of the newest file is safe.
        """
        if not self._mtime.all():
            self._mtime = np.where(self._mtime == 0, mtime, self._mtime)

    def is_late(self, store: str, path: str, mtime: int) -> bool:
        """Return True if a file that is not remembered may be one that was forgotten.

        Args:
            store: its store.
            path: its path there.
            mtime: its modification time, ns since the Unix epoch; 0 where the store has none.
        """
        folder = folder_of(store, path)
        marks = (self._marks.get(one, 0) for one in (folder, *_wider(folder)))
        return bool(self._marks) and 0 < mtime <= max(marks)

    def has_below(self, store: str, path: str) -> bool:
        """Return True if a file of this path, or below it, is remembered or was forgotten."""
        if self.find([digest_of(store, path)])[0] >= 0:
            return True
        base = f"{hadoop_free(store)} {path}"
        return any(
            f"{folder.removesuffix(_BELOW)}/".startswith(f"{base.rstrip('/')}/")
            or (folder.endswith(_BELOW) and f"{base}/".startswith(f"{folder[:-1]}/"))
            for folder in (*self._folders, *self._marks)
        )

    def to_table(self) -> tuple[pa.RecordBatch, dict[str, Any]]:
        """Return the table, and JSON of all else, as `from_table` reads them."""
        columns = [pa.array(getattr(self, f"_{name}")) for name in _COLUMNS]
        rest = {"folders": self._folders, "marks": self._marks}
        return pa.RecordBatch.from_arrays(columns, list(_COLUMNS)), rest

    @classmethod
    def from_table(cls, table: pa.Table, rest: dict[str, Any]) -> SeenFiles:
        """Return the set that `to_table` gave."""
        seen = cls()
        seen._take(*(table.column(name).to_numpy() for name in _COLUMNS))
        seen._folders, seen._marks = list(rest["folders"]), dict(rest["marks"])
        return seen

    def _take(self, high: Any, low: Any, mtime: Any, folder: Any) -> None:
        self._high, self._low, self._mtime, self._folder = high, low, mtime, folder


def _halves(digests: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    """Return hashes as an array of shape (names, 2)."""
    joined = np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2)
    return joined.astype(np.uint64)


def _above(folder: str) -> str:
    """Return the directory above one, of the same store.

    >>> _above("s3://bucket bucket/in"), _above(" /")
    ('s3://bucket bucket', ' ')
    """
    store, _, path = folder.partition(" ")
    return f"{store} {path.rpartition('/')[0]}"


def _wider(folder: str) -> Iterator[str]:
    """The names under which the marks of directories stand that hold for a directory below."""
    while True:
        yield folder + _BELOW
        above = _above(folder)
        if above == folder:
            return
        folder = above


def _bounded(marks: dict[str, int]) -> dict[str, int]:
    """Return marks, of which the deepest are joined, level by level, until they are few enough."""
    while len(marks) > MOST_MARKS:
        depth = max(folder.count("/") for folder in marks)
        joined: dict[str, int] = {}
        for folder, mark in marks.items():
            name = folder
            if folder.count("/") == depth:
                name = _above(folder.removesuffix(_BELOW)) + _BELOW
            joined[name] = max(joined.get(name, 0), mark)
        if joined == marks:
            return marks
        marks = joined
    return marks
