"""Listings of the files that match paths and globs, and the list of those that a source reads."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from pyarrow import fs

from flow.connectors.files.places.place import (
    LOCAL,
    Place,
    canonical_store,
    display_name,
    file_identity,
    locate,
    raise_as,
    split_glob,
    without_credentials,
)
from flow.connectors.files.reading.pieces import File
from flow.connectors.files.reading.seen_files import CHUNK, FileSummary, Mask, digest_of
from flow.connectors.source import SourceLog
from flow.durations import duration_text, duration_us
from flow.errors import SourceError, printable, shorten

logger = logging.getLogger("flow")

HIDDEN = ("_", ".")
"""First characters of names that are skipped in a directory, as Spark and pyarrow do."""

_REMOVED = "no file matches %s any more: files that an earlier run listed there are not read again"


class ListedFile(NamedTuple):
    """A file in a listing.

    Attributes:
        store: the store, see `Place`.
        path: the path in the store.
        size: size in bytes.
        mtime: modification time, in ns since the Unix epoch; 0 if the store has none.
    """

    store: str
    path: str
    size: int
    mtime: int


def find_files(
    paths: Sequence[str],
    *,
    required: bool,
    was_there: Callable[[Place], bool] = lambda _: False,
) -> list[ListedFile]:
    """List the files that match paths, directories, globs and URIs, each file once.

    Args:
        paths: paths as the user gave them.
        required: True if each path must match at least one file; otherwise the directory before
            its first wildcard must exist.
        was_there: returns True if an earlier run listed files in a place, the part of a path
            before its first wildcard; the path may then match no file, which is logged.

    Raises:
        SourceError: a path matches no file, or cannot be listed.
    """
    files: dict[tuple[str, str], ListedFile] = {}
    for text in paths:
        with raise_as(SourceError, f"{without_credentials(text)} cannot be listed"):
            matches = list(_files_of(text, required, was_there))
        for identity, file in matches:
            files.setdefault(identity, file)
    return list(files.values())


def _files_of(
    text: str, required: bool, was_there: Callable[[Place], bool]
) -> Iterator[tuple[tuple[str, str], ListedFile]]:
    base, parts = split_glob(text)
    place = locate(base)
    store = canonical_store(place.store)
    info = place.filesystem.get_file_info(place.path)
    name = shorten(without_credentials(text))
    if info.type == fs.FileType.NotFound:
        if was_there(place):
            logger.warning(_REMOVED, printable(name))
            return
        target = f"{'/'.join(parts)} in {place}" if parts else str(place)
        raise SourceError(f"no file matches {name}: looked for {target}, which does not exist")
    is_empty = True
    for real, found in _matching(place, info, parts):
        is_empty = False
        file = ListedFile(place.store, found.path, found.size or 0, found.mtime_ns or 0)
        yield (store, real), file
    if is_empty and was_there(place):
        logger.warning(_REMOVED, printable(name))
    elif is_empty and required:
        target = "/".join(parts) if parts else "any file"
        raise SourceError(
            f"no file matches {name}: looked for {target} in {place}; names that start "
            "with '_' or '.' are skipped"
        )


def _matching(place: Place, root: Any, parts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield the files below a directory that match the parts of a glob, each once, without links.

    Links are followed last, so that a link that is made later does not change the path of a file.

    Args:
        place: the directory, or a file, which is yielded itself.
        root: its `pyarrow.fs.FileInfo`.
        parts: the parts; if a directory matches the last one, all files below it match.

    Returns:
        The path of each file with links resolved, and its `FileInfo`.
    """
    seen: set[tuple[str, int]] = set()
    pending = deque([(root, file_identity(place.store, place.path)[1], parts)])
    while pending:
        info, real, parts = pending.popleft()
        if (real, len(parts)) in seen:
            continue
        seen.add((real, len(parts)))
        kind, path = info.type, info.path
        if kind == fs.FileType.File and not parts:
            yield real, info
        for entry, is_link in _entries(place, path, parts) if kind == fs.FileType.Directory else ():
            inner = os.path.realpath(entry.path) if is_link else real + entry.path[len(path) :]
            below = [(entry, inner, rest) for rest in _below(entry.base_name, parts)]
            (pending.extend if is_link else pending.extendleft)(below)


def _entries(place: Place, directory: str, parts: Sequence[str]) -> Iterable[tuple[Any, bool]]:
    """Return the entries of a directory that match the first part, each with True if it is a link.

    Without parts, an object store lists all files below in one request.
    """
    if place.store != LOCAL:
        selector = fs.FileSelector(directory, recursive=not parts, allow_not_found=True)
        infos = place.filesystem.get_file_info(selector)
        return [(info, False) for info in infos if parts or _is_visible(info, directory)]
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as found:
        entries = sorted(
            (entry for entry in found if _below(entry.name, parts)), key=attrgetter("name")
        )
        infos = place.filesystem.get_file_info([entry.path for entry in entries])
        return zip(infos, [entry.is_symlink() for entry in entries], strict=True)
    return ()


def _is_visible(info: Any, directory: str) -> bool:
    below = info.path[len(directory) :].strip("/").split("/")
    return info.type == fs.FileType.File and not any(name.startswith(HIDDEN) for name in below)


def _below(name: str, parts: Sequence[str]) -> list[Sequence[str]]:
    """Return the parts of a glob that are left below an entry, for each way to match its name."""
    visible = [] if name.startswith(HIDDEN) else [parts]
    if not parts:
        return visible
    if parts[0] == "**":
        return visible + _below(name, parts[1:])
    return [parts[1:]] if _matches(name, parts[0]) else []


def _matches(name: str, part: str) -> bool:
    is_hidden = name.startswith(HIDDEN) and not part.startswith(name[0])
    return not is_hidden and fnmatchcase(name, part)


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
        find: Callable[..., list[ListedFile]],
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
        self._next_listing = clock()
        if follow:
            self.refresh()
        elif is_first or not fixed:
            self._list_once(is_first)

    def __len__(self) -> int:
        return self.first + len(self._files)

    def __getitem__(self, number: int) -> File:
        return File(*self._files[number - self.first][:3])

    @property
    def late(self) -> int:
        """Number of late files, which are not read, in this run."""
        return len(self._late_digests)

    def refresh(self) -> bool:
        """List the files if a listing is due; return True if so."""
        started = self._clock()
        if not self._follow or started < self._next_listing:
            return False
        new = self._new_files(self._find())
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
        self._files = [ListedFile(*file) for file in summary.files]
        entries = self._log.entries()
        for entry in entries:
            listed = zip(entry["files"], entry["mtimes"], strict=True)
            self._files += [ListedFile._make((*file, mtime)) for file, mtime in listed]
        self._recent = {digest_of(file.store, file.path) for file in self._files}
        return content is not None or bool(entries)

    def _list_once(self, is_first: bool) -> None:
        new = self._new_files(self._find() if is_first else self._find(was_there=self._was_there))
        if not is_first:
            new = self._without_other_names(new)
        filled = sum(file.size > 0 for file in new)
        if filled and not is_first:
            are = "s are" if filled > 1 else " is"
            logger.warning(_SINCE, filled, are, printable(display_name(*new[0][:2])))
        if filled or is_first:
            self._append(sorted(new, key=lambda file: (file.path, file.store)))

    def _new_files(self, listed: list[ListedFile]) -> list[ListedFile]:
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
        return new

    def _without_other_names(self, listed: list[ListedFile]) -> list[ListedFile]:
        """Return the files that the list does not have under another name, such as a link."""
        digests = [digest_of(*file_identity(file.store, file.path)) for file in listed]
        known = {digest_of(*file_identity(file.store, file.path)) for file in self._files}
        rows = self._seen.find(digests)
        return [
            file
            for file, digest, row in zip(listed, digests, rows, strict=True)
            if row < 0 and digest not in known
        ]

    def _was_there(self, place: Place) -> bool:
        """Return True if a file at a place, or below it, is or was in the list."""
        below = place.path.rstrip("/") + "/"
        return self._seen.has_below(place.store, place.path) or any(
            file.store == place.store and f"{file.path}/".startswith(below) for file in self._files
        )

    def _report(self, late: list[tuple[ListedFile, bytes]]) -> None:
        """Log late files, each once a run."""
        new = [(file, digest) for file, digest in late if digest not in self._late_digests]
        if not new:
            return
        self._late_digests.update(digest for _, digest in new)
        example = printable(display_name(*new[0][0][:2]))
        allowed = duration_text(self._late_us)
        are = "s are" if len(new) > 1 else " is"
        logger.warning(_LATE, len(new), are, example, allowed, self.late)

    def _append(self, listed: list[ListedFile]) -> None:
        filled = [file for file in listed if file.size]
        mtimes = [file.mtime for file in filled]
        self._log.append({"files": [list(file[:3]) for file in filled], "mtimes": mtimes})
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
