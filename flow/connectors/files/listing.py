"""Which files a source reads, in which order: a list, fixed or growing, in the source's log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyarrow import fs

from flow.connectors.files.file_summary import FileSummary
from flow.connectors.files.places import Found, Place, explained, identity_of, shown
from flow.connectors.files.seen_files import CHUNK, Mask, digest_of
from flow.connectors.source import Json, SourceLog
from flow.durations import duration_text, duration_us
from flow.errors import FlowBuildError, SourceError, printable, shorten

logger = logging.getLogger("flow")

_LATE = (
    "%d file%s not read, such as %s: not newer than files of that directory that were read, "
    "removed and forgotten (late_files=%s), so it may be one of them, put back; too late in this "
    "run: %d. To have a file read, give it a new modification time (touch)"
)
_SINCE = "%d file%s new since the run before, such as %s: read after those that were there"

LEAST_WAIT = 1.0
"""Seconds between two listings, at least."""
BUSY_SHARE = 10
"""Listings take at most one part in so many of the time: slow ones are made less often."""
LATE_FILES = "7d"
"""How much older than the newest file a file may be when it appears; Spark's `maxFileAge`, too."""
LATE_US = duration_us(LATE_FILES)
LEAST_FILES = 1_000
"""Files that are needed no more, at least, before the list is put into the log's summary."""
SHARE = 32
"""They are at least one in so many of all: so a file is written that often, in the long run."""


@dataclass(frozen=True)
class File:
    """A file to read, as it was when it was listed.

    Attributes:
        store: where it is, see `places.Place`.
        path: its path there.
        size: in bytes; a file that has another size when it is read has changed.
    """

    store: str
    path: str
    size: int

    def to_json(self) -> Json:
        """The file as a list that `from_json` reads."""
        return [self.store, self.path, self.size]

    @classmethod
    def from_json(cls, entry: Json) -> File:
        """Read what `to_json` gave."""
        return cls(*entry)

    def __str__(self) -> str:
        return shown(self.store, self.path)

    def check(self, filesystem: Any) -> None:
        """Raise `SourceError` when the file is not what was listed."""
        info = filesystem.get_file_info(self.path)
        if info.type != fs.FileType.File:
            raise SourceError(f"{self} has vanished since it was listed ({self.size} bytes then)")
        if info.size != self.size:
            raise SourceError(
                f"{self} has changed since it was listed: it had {self.size} bytes and now has "
                f"{info.size}. Files must be complete when they appear, and stay as they are"
            )


@contextmanager
def opened(filesystem: Any, file: File) -> Iterator[Any]:
    """Open a file for random access, after a check that it is what was listed.

    Raises:
        SourceError: naming the file, also for whatever goes wrong while it is read in the block.
    """
    with explained(SourceError, f"{file} cannot be read"):
        file.check(filesystem)
        with filesystem.open_input_file(file.path) as stream:
            yield stream


def check_late_files(value: object) -> None:
    """Check the age up to which files may still appear.

    Raises:
        FlowBuildError: when it is not a duration, or is negative.
    """
    if duration_us(value, "late_files") < 0:  # type: ignore[arg-type]  # what a user gave
        raise FlowBuildError(f"late_files must not be negative, got {shorten(value)}")


class FileList:
    """The files of a source, in reading order.

    Kept in the source's log, so that a run that goes on sees the files under the same numbers.
    A bounded source lists once, as a run starts, by path; a run that goes on appends the files that
    are new, and says so. One that follows appends the files that have appeared, those of each
    listing by modification time and path. A file without content is not read; it is taken once it
    has some.

    Files that no run can go on from any more (see `release`) are kept as names alone, in the
    summary of the log: `SeenFiles` says how these are told from new files, and forgotten.

    Attributes:
        first: number of the first file that is more than a name.

    Args:
        log: the log.
        find: lists the files that there are; given `was_there`, see `places.find_files`.
        follow: whether files may still appear.
        fixed: whether the list of the first run is that of all that go on from it.
        late_us: how much older than the newest file a file may be when it appears, in microseconds.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        log: SourceLog,
        find: Callable[..., list[Found]],
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
        self._needed = 0
        self._now_us: int | None = None
        self._present: Mask | None = None
        self._newest_ns = 0
        self._late: set[bytes] = set()
        is_first = not self._load()
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
        """Number of files that this run has found and not read, as they came too late."""
        return len(self._late)

    def refresh(self) -> bool:
        """Look for new files if a listing is due; return True if one was made."""
        started = self._clock()
        if not self._follow or started < self._next_listing:
            return False
        new = self._new(self._find())
        took = self._clock() - started
        self._next_listing = self._clock() + max(LEAST_WAIT, took * (BUSY_SHARE - 1))
        if any(file.size for file in new):
            self._append(sorted(new, key=lambda file: (file.mtime, file.path)))
        self._compact_if_due()
        return True

    def release(self, number: int, now_us: int) -> None:
        """Keep the files before a number as names alone, once these are enough to be worth it.

        Args:
            number: number of the first file that an offset may still refer to.
            now_us: system time, in microseconds since the Unix epoch.
        """
        self._needed, self._now_us = max(self._needed, number), now_us
        self._compact_if_due()

    def _load(self) -> bool:
        """Read the log; return True if there is anything in it."""
        content = self._log.summary()
        kept = FileSummary() if content is None else FileSummary.decode(content)
        self.first, self._seen = kept.first, kept.seen
        self._files = [File(store, path, size) for store, path, size, _ in kept.files]
        self._mtimes = [mtime for *_, mtime in kept.files]
        entries = self._log.entries()
        for entry in entries:
            files = [File.from_json(file) for file in entry["files"]]
            self._files += files
            # Entries of the first format do not say when a file was modified.
            self._mtimes += entry.get("mtimes", [0] * len(files))
        self._recent = {digest_of(file.store, file.path) for file in self._files}
        return content is not None or bool(entries)

    def _list_once(self, is_first: bool) -> None:
        new = self._new(self._find() if is_first else self._find(was_there=self._was_there))
        if not is_first:
            new = self._without_other_names(new)
        filled = sum(file.size > 0 for file in new)
        if filled and not is_first:
            logger.warning(
                _SINCE, filled, "s are" if filled > 1 else " is", printable(shown(*new[0][:2]))
            )
        if filled or is_first:
            self._append(sorted(new, key=lambda file: (file.path, file.store)))

    def _new(self, found: list[Found]) -> list[Found]:
        """Return the files that are to be read, of those that a listing has found."""
        present = np.zeros(len(self._seen), np.bool_)
        new, late = [], []
        for start in range(0, len(found), CHUNK):
            some = found[start : start + CHUNK]
            digests = [digest_of(file.store, file.path) for file in some]
            rows = self._seen.find(digests)
            present[rows[rows >= 0]] = True
            for place in np.flatnonzero(rows < 0).tolist():
                file, digest = some[place], digests[place]
                if digest in self._recent:
                    continue
                if not self._seen.is_late(file.store, file.path, file.mtime):
                    new.append(file)
                elif file.size:
                    late.append((file, digest))
        self._present = present
        self._newest_ns = max((file.mtime for file in found), default=0)
        self._report(late)
        return new

    def _without_other_names(self, found: list[Found]) -> list[Found]:
        """Return files without those that are known by another name, such as a link."""
        names = [identity_of(file.store, file.path) for file in found]
        digests = [digest_of(*name) for name in names]
        known = {digest_of(*identity_of(one.store, one.path)) for one in self._files}
        rows = self._seen.find(digests)
        return [
            file
            for file, digest, row in zip(found, digests, rows, strict=True)
            if row < 0 and digest not in known
        ]

    def _was_there(self, place: Place) -> bool:
        """Return True if files of a place are in the list."""
        below = place.path.rstrip("/") + "/"
        return self._seen.has_below(place.store, place.path) or any(
            file.store == place.store and f"{file.path}/".startswith(below) for file in self._files
        )

    def _report(self, late: list[tuple[Found, bytes]]) -> None:
        """Log files that come too late, each once a run."""
        new = [(file, digest) for file, digest in late if digest not in self._late]
        if not new:
            return
        self._late.update(digest for _, digest in new)
        example = printable(shown(*new[0][0][:2]))
        allowed = duration_text(self._late_us)
        are = "s are" if len(new) > 1 else " is"
        logger.warning(_LATE, len(new), are, example, allowed, len(self._late))

    def _append(self, found: list[Found]) -> None:
        filled = [file for file in found if file.size]
        files = [File(file.store, file.path, file.size) for file in filled]
        mtimes = [file.mtime for file in filled]
        self._log.append({"files": [file.to_json() for file in files], "mtimes": mtimes})
        self._files += files
        self._mtimes += mtimes
        self._recent.update(digest_of(file.store, file.path) for file in files)

    def _compact_if_due(self) -> None:
        """Put the list into the log's summary if enough files are needed no more.

        A summary is written whole, so the files that it adds have to be a share of it.
        """
        done = min(self._needed, len(self)) - self.first
        least = max(LEAST_FILES, (len(self._seen) + len(self._files)) // SHARE)
        if done < least or self._fixed:
            return
        summary = self._summary(done)
        self._log.compact(summary.encode())
        self._recent.difference_update(
            digest_of(file.store, file.path) for file in self._files[:done]
        )
        self.first, self._seen = summary.first, summary.seen
        del self._files[:done], self._mtimes[:done]
        # The rows of the table are others now: nothing is known of them until the next listing.
        self._present = None

    def _summary(self, done: int) -> FileSummary:
        """Return the summary of the list in which some more files are names alone.

        Args:
            done: how many of the files that are listed in full.
        """
        seen = self._seen.copy()
        if self._present is not None and self._now_us is not None:
            newest_us = max(self._newest_ns, seen.newest_ns, max(self._mtimes)) // 1_000
            # A file from the future must not have all others forgotten.
            until_us = min(newest_us, self._now_us)
            seen.expire(max(0, until_us - self._late_us) * 1_000, self._present)
            seen.date(until_us * 1_000)
        seen.add(self._names(done))
        rest = zip(self._files[done:], self._mtimes[done:], strict=True)
        files = [(file.store, file.path, file.size, mtime) for file, mtime in rest]
        return FileSummary(self.first + done, seen, files)

    def _names(self, done: int) -> Iterator[tuple[str, str, int]]:
        """The names of the first files that are listed in full, with those that links lead to."""
        for file, mtime in zip(self._files[:done], self._mtimes[:done], strict=True):
            for store, path in dict.fromkeys(
                [(file.store, file.path), identity_of(file.store, file.path)]
            ):
                yield store, path, mtime


class ListingTimes:
    """System times of listings, each with the number of files that were known after it.

    Only the listings whose files are not all read are kept, and the newest whose files are.
    """

    def __init__(self) -> None:
        self._listings: list[tuple[int, int]] = []

    def add(self, now_us: int, files: int) -> None:
        """Add a listing.

        Args:
            now_us: system time just before it, in microseconds since the Unix epoch.
            files: number of files known after it.
        """
        # A listing that found nothing new replaces the one before. So does a listing at the same
        # system time: all that arrived by that time is then what the later one knows.
        while self._listings and (
            self._listings[-1][1] == files or self._listings[-1][0] >= now_us
        ):
            self._listings.pop()
        self._listings.append((now_us, files))

    def read_until_us(self, files_read: int) -> int | None:
        """Return the time of the newest listing whose files are all read.

        Args:
            files_read: number of files from the first on, all of which are read.

        Returns:
            Microseconds since the Unix epoch; ``None`` if there is no such listing.
        """
        read = sum(files <= files_read for _, files in self._listings)
        del self._listings[: max(0, read - 1)]
        return self._listings[0][0] if read else None
