"""Which files a source reads, in which order: a list, fixed or growing, in the source's log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyarrow import fs

from flow.connectors.files.places import Found, explained, identity_of, shown
from flow.connectors.source import Json, SourceLog
from flow.errors import SourceError, printable

logger = logging.getLogger("flow")

_SINCE = "%d file%s new since the run before, such as %s: read after those that were there"

LEAST_WAIT = 1.0
"""Seconds between two listings, at least."""
BUSY_SHARE = 10
"""Listings take at most one part in so many of the time: slow ones are made less often."""


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


class FileList:
    """The files of a source, in reading order.

    Kept in the source's log, so that a run that goes on sees the files under the same numbers.
    A bounded source lists once, as a run starts, by path; a run that goes on appends the files that
    are new, and says so. One that follows appends the files that have appeared, those of each
    listing by modification time and path. A file without content is not read; it is taken once it
    has some.

    Args:
        log: the log.
        find: lists the files that there are.
        follow: whether files may still appear.
        fixed: whether the list of the first run is that of all that go on from it.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        log: SourceLog,
        find: Callable[[], list[Found]],
        *,
        follow: bool,
        fixed: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._find = find
        self._follow = follow
        self._clock = clock
        entries = log.entries()
        self._files = [File.from_json(file) for entry in entries for file in entry["files"]]
        self._seen = {(file.store, file.path) for file in self._files}
        self._next_listing = clock()
        if follow:
            self.refresh()
        elif not (fixed and entries):
            self._list_once(is_first=not entries)

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> File:
        return self._files[number]

    def refresh(self) -> bool:
        """Look for new files if a listing is due; return True if one was made."""
        started = self._clock()
        if not self._follow or started < self._next_listing:
            return False
        new = [file for file in self._find() if (file.store, file.path) not in self._seen]
        took = self._clock() - started
        self._next_listing = self._clock() + max(LEAST_WAIT, took * (BUSY_SHARE - 1))
        if any(file.size for file in new):
            self._append(sorted(new, key=lambda file: (file.mtime, file.path)))
        return True

    def _list_once(self, is_first: bool) -> None:
        known = {identity_of(*one) for one in self._seen}
        new = [file for file in self._find() if identity_of(file.store, file.path) not in known]
        filled = sum(file.size > 0 for file in new)
        if filled and not is_first:
            logger.warning(
                _SINCE, filled, "s are" if filled > 1 else " is", printable(shown(*new[0][:2]))
            )
        if filled or is_first:
            self._append(sorted(new, key=lambda file: (file.path, file.store)))

    def _append(self, found: list[Found]) -> None:
        files = [File(file.store, file.path, file.size) for file in found if file.size]
        self._log.append({"files": [file.to_json() for file in files]})
        self._files += files
        self._seen.update((file.store, file.path) for file in files)


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
