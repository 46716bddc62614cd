"""List of the files that a source reads, and the names of those that it has finished.

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
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flow.connectors.files.filesystems import (
    File,
    Place,
    canonical_store,
    display_name,
    file_identity,
)
from flow.connectors.source import SourceLog
from flow.durations import duration_text, duration_us
from flow.errors import SourceError, first_line, printable
from flow.format_version import VERSION, check_format

logger = logging.getLogger("flow")

_LATE = (
    "%d file%s not read, such as %s: not newer than files of that directory that were read, "
    "removed and forgotten (late_files=%s), so it may be one of them, put back; late files in this "
    "run: %d. To have a file read, give it a new modification time (touch)"
)

_SINCE = "%d file%s new since the run before, such as %s: read after those that were there"

LEAST_WAIT = 1.0
"""Seconds between two listings, at least."""

BUSY_SHARE = 10
"""Listings take at most 1/`BUSY_SHARE` of the time: slow listings are less frequent."""

LATE_FILES = "7d"
"""Age, relative to the newest file, up to which a file may appear; as Spark's `maxFileAge`."""

LATE_US = duration_us(LATE_FILES)

LEAST_FILES = 1_000
"""Finished files, at least, that cause the log to be compacted."""

SHARE = 32
"""A compaction needs finished files of at least 1/`SHARE` of all.

A summary is written as a whole, so a file is written about `SHARE` times in the long run.
"""


class FileList:
    """Files of a source, in reading order, numbered from 0.

    The list is stored in the source's log, so files keep their numbers in later runs. A bounded
    source lists its files once, as a run starts, ordered by path; a run that continues from a
    checkpoint appends new files, and logs their number. A source that follows appends the new
    files of each listing, ordered by modification time and path. An empty file is appended once it
    has content.

    Files to which no offset can refer any more (see `release`) are reduced to their names, in the
    summary of the log. `SeenFiles` describes how names expire.

    Attributes:
        first: number of the first file that is listed in full.

    Args:
        log: the log.
        find: lists the files that exist now; takes `was_there`, see `globs.find_files`.
        follow: True if files may still appear.
        fixed: True if continued runs read the files of the first run only.
        late_us: age, relative to the newest file, up to which a file may appear; in µs.
        clock: monotonic clock, in seconds.
    """

    def __init__(
        self,
        log: SourceLog,
        find: Callable[..., list[File]],
        *,
        follow: bool,
        fixed: bool = False,
        late_us: int = LATE_US,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._find = find
        self._follow = follow
        self._fixed = fixed
        self._late_us = late_us
        self._clock = clock
        self._first_needed = 0
        self._now_us: int | None = None
        self._present: Mask | None = None
        self._newest_ns = 0
        self._late_digests: set[bytes] = set()
        is_first = not self._load()
        self._is_continued = not is_first
        self._next_listing = clock()
        if follow:
            self.refresh()
        elif is_first or not fixed:
            self._list_once(is_first)

    def __len__(self) -> int:
        return self.first + len(self._files)

    def __getitem__(self, number: int) -> File:
        return self._files[number - self.first]

    @property
    def late(self) -> int:
        """Number of late files, which are not read, in this run."""
        return len(self._late_digests)

    def refresh(self) -> bool:
        """List the files if a listing is due; return True if so."""
        started = self._clock()
        if not self._follow or started < self._next_listing:
            return False
        new = self._new_files(self._find(was_there=self._was_there))
        elapsed = self._clock() - started
        self._next_listing = self._clock() + max(LEAST_WAIT, elapsed * (BUSY_SHARE - 1))
        if any(file.size for file in new):
            self._append(sorted(new, key=lambda file: (file.mtime, file.path)))
        self._compact_if_due()
        return True

    def release(self, number: int, now_us: int) -> None:
        """Allow compaction of the files before a number.

        Args:
            number: number of the first file that an offset may still refer to.
            now_us: system time, in microseconds since the Unix epoch.
        """
        self._first_needed, self._now_us = max(self._first_needed, number), now_us
        self._compact_if_due()

    def _load(self) -> bool:
        """Read the log; return True if it is not empty."""
        content = self._log.summary()
        summary = FileSummary() if content is None else FileSummary.decode(content)
        self.first, self._seen = summary.first, summary.seen
        self._files = [File(*file) for file in summary.files]
        entries = self._log.entries()
        for entry in entries:
            listed = zip(entry["files"], entry["mtimes"], strict=True)
            self._files += [File._make((*file, mtime)) for file, mtime in listed]
        self._recent = {digest_of(file.store, file.path) for file in self._files}
        return content is not None or bool(entries)

    def _list_once(self, is_first: bool) -> None:
        new = self._new_files(self._find() if is_first else self._find(was_there=self._was_there))
        filled = sum(file.size > 0 for file in new)
        if filled and not is_first:
            are = "s are" if filled > 1 else " is"
            logger.warning(_SINCE, filled, are, printable(display_name(*new[0][:2])))
        if filled or is_first:
            self._append(sorted(new, key=lambda file: (file.path, file.store)))

    def _new_files(self, listed: list[File]) -> list[File]:
        """Return the new files of a listing, report the late ones, and note the known ones."""
        present = np.zeros(len(self._seen), np.bool_)
        new, late = [], []
        for start in range(0, len(listed), CHUNK):
            chunk = listed[start : start + CHUNK]
            digests = [digest_of(file.store, file.path) for file in chunk]
            rows = self._seen.find(digests)
            present[rows[rows >= 0]] = True
            for index in np.flatnonzero(rows < 0).tolist():
                file, digest = chunk[index], digests[index]
                if digest in self._recent:
                    continue
                if not self._seen.is_late(file.store, file.path, file.mtime):
                    new.append(file)
                elif file.size:
                    late.append((file, digest))
        self._present = present
        self._newest_ns = max((file.mtime for file in listed), default=0)
        self._report(late)
        if self._is_continued:  # The source may have another path, which leads to the same files.
            self._is_continued = False
            new = self._without_other_names(new)
        return new

    def _without_other_names(self, listed: list[File]) -> list[File]:
        """Return the files that the list does not have under another name, such as a link."""
        digests = [digest_of(*file_identity(file.store, file.path)) for file in listed]
        known = {digest_of(*file_identity(file.store, file.path)) for file in self._files}
        rows = self._seen.find(digests)
        is_new = [row < 0 and d not in known for row, d in zip(rows, digests, strict=True)]
        others = [file for file, is_one in zip(listed, is_new, strict=True) if not is_one]
        self._recent.update(digest_of(file.store, file.path) for file in others)
        return list(compress(listed, is_new))

    def _was_there(self, place: Place) -> bool:
        """Return True if a file at a place, or below it, is or was in the list."""
        below = place.path.rstrip("/") + "/"
        return self._seen.has_below(place.store, place.path) or any(
            file.store == place.store and f"{file.path}/".startswith(below) for file in self._files
        )

    def _report(self, late: list[tuple[File, bytes]]) -> None:
        """Log late files, each once a run."""
        new = [(file, digest) for file, digest in late if digest not in self._late_digests]
        if not new:
            return
        self._late_digests.update(digest for _, digest in new)
        example = printable(display_name(*new[0][0][:2]))
        allowed = duration_text(self._late_us)
        are = "s are" if len(new) > 1 else " is"
        logger.warning(_LATE, len(new), are, example, allowed, self.late)

    def _append(self, listed: list[File]) -> None:
        filled = [file for file in listed if file.size]
        mtimes = [file.mtime for file in filled]
        self._log.append({"files": [file.to_json() for file in filled], "mtimes": mtimes})
        self._files += filled
        self._recent.update(digest_of(file.store, file.path) for file in filled)

    def _compact_if_due(self) -> None:
        """Replace the log by a summary if enough files are finished."""
        finished = min(self._first_needed, len(self)) - self.first
        least = max(LEAST_FILES, (len(self._seen) + len(self._files)) // SHARE)
        if finished < least or self._fixed:
            return
        summary = self._summary(finished)
        self._log.compact(summary.encode())
        self._recent.difference_update(
            digest_of(file.store, file.path) for file in self._files[:finished]
        )
        self.first, self._seen = summary.first, summary.seen
        del self._files[:finished]
        # The rows of the table have changed: the mask is invalid until the next listing.
        self._present = None

    def _summary(self, finished: int) -> FileSummary:
        """Return the summary of the list.

        Args:
            finished: number of the files listed in full that the summary reduces to names.
        """
        seen = self._seen.copy()
        if self._present is not None and self._now_us is not None:
            newest_ns = max(self._newest_ns, seen.newest_ns, *(file.mtime for file in self._files))
            # A file with a modification time in the future must not expire all others.
            until_us = min(newest_ns // 1_000, self._now_us)
            seen.expire(max(0, until_us - self._late_us) * 1_000, self._present)
            seen.fill_mtimes(until_us * 1_000)
        seen.add(self._names(finished))
        return FileSummary(self.first + finished, seen, self._files[finished:])

    def _names(self, count: int) -> Iterator[tuple[str, str, int]]:
        """Yield the names of the first files listed in full, and of the targets of links."""
        for store, path, _, mtime in self._files[:count]:
            for name in dict.fromkeys([(store, path), file_identity(store, path)]):
                yield *name, mtime


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
