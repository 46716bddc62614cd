"""Log of a source in a checkpoint.

A directory of *pages*, each with some entries, named by the number of the first::

    000000017.page.json   {"version": 1, "entries": [...]}: entries from number 17 on
    000000217.summary     replacement of all entries before number 217

A new entry rewrites the newest page until the page is full, so that a run reads a few pages instead
of a file for each entry. The summary with the greatest number counts, and
pages below that number do not: a process that dies between writing a summary and removing what
the summary replaces leaves a log that reads the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from flow.connectors.source import Json
from flow.errors import CheckpointError
from flow.format_version import REPAIR, VERSION, Seal, check_format

if TYPE_CHECKING:
    from flow.engine.checkpoint.storage import Storage

PAGE_BYTES = 64 << 10
"""Bytes of a full page."""

_NAME = re.compile(r"(\d{9,})(\.page\.json|\.summary)")
_SUMMARY = ".summary"
_PAGE = ".page.json"
_SEAL = Seal("summary", "summary of a source's log")


class LogFile(NamedTuple):
    """A file of a log.

    Attributes:
        number: the number of the first entry in a page, or of the first entry after a summary.
        name: the file's name.
    """

    number: int
    name: str


@dataclass(frozen=True)
class LogFiles:
    """Files of a log by role.

    Attributes:
        summary: the summary with the greatest number; ``None`` if there is none.
        pages: the pages after the summary, in order.
        replaced: older summaries, and pages that the summary replaces, in order.
    """

    summary: LogFile | None
    pages: tuple[LogFile, ...]
    replaced: tuple[LogFile, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> LogFiles:
        """Return the files of a log by role, from the names in its directory."""
        matches = filter(None, map(_NAME.fullmatch, names))
        files = sorted(LogFile(int(match[1]), match[0]) for match in matches)
        summaries = [file for file in files if file.name.endswith(_SUMMARY)]
        pages = [file for file in files if not file.name.endswith(_SUMMARY)]
        summary = summaries[-1] if summaries else None
        start = 0 if summary is None else summary.number
        replaced = [*summaries[:-1], *(page for page in pages if page.number < start)]
        return cls(summary, tuple(page for page in pages if page.number >= start), tuple(replaced))

    @property
    def start(self) -> int:
        """Number of the first entry that is in a page."""
        return 0 if self.summary is None else self.summary.number


def entries_of(name: str, content: Json) -> list[Json]:
    """Return the entries of a page.

    Args:
        name: the file's name.
        content: the file's content.

    Raises:
        CheckpointError: when the file is not a page, or has another format.
    """
    try:
        version, entries = int(content["version"]), list(content["entries"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{name} is no page of a source's log: {REPAIR}") from error
    check_format(name, version)
    return entries


def summary_of(name: str, data: bytes) -> bytes:
    """Return the content of a summary, without the header.

    Args:
        name: the file's name, for errors.
        data: the bytes of the file.

    Raises:
        CheckpointError: when the file is truncated or changed, or has another format.
    """
    return _SEAL.open(name, data)


def missing_page(number: int) -> str:
    """Return the name, for errors, of a missing page that begins with an entry."""
    return f"{number:09d}{_PAGE}"


class StoredLog:
    """A `SourceLog` in a directory of a checkpoint.

    Only the newest page stays in memory.

    Args:
        storage: the checkpoint's files.
        name: the directory.
    """

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage = storage
        self._name = name
        self._files = LogFiles.of(storage.names(name))
        self._count: int | None = None
        self._page: list[str] = []

    def summary(self) -> bytes | None:
        """Return the summary of the last `compact`; ``None`` if there was none.

        Raises:
            CheckpointError: when the summary cannot be read.
        """
        if self._files.summary is None:
            return None
        name = f"{self._name}/{self._files.summary.name}"
        return summary_of(f"{self._storage.root}/{name}", self._storage.read_bytes(name))

    def entries(self) -> list[Json]:
        """Return all entries since the last `compact`, in order.

        Raises:
            CheckpointError: when a page is missing or cannot be read.
        """
        where = f"{self._storage.root}/{self._name}"
        all_entries: list[Json] = []
        for page in self._files.pages:
            number = self._files.start + len(all_entries)
            if page.number != number:
                missing = missing_page(number)
                raise CheckpointError(
                    f"{where}/{missing} is missing, and {page.name} is there: {REPAIR}"
                )
            content = self._storage.read(f"{self._name}/{page.name}")
            entries = entries_of(f"{where}/{page.name}", content)
            all_entries += entries
            self._page = list(map(json.dumps, entries))
        self._count = self._files.start + len(all_entries)
        return all_entries

    def append(self, entry: Json) -> None:
        """Add an entry, and write it to the checkpoint before returning."""
        count, text = self._counted(), json.dumps(entry)
        is_full = sum(map(len, self._page)) + len(text) > PAGE_BYTES
        page = [text] if is_full else [*self._page, text]
        first = count + 1 - len(page)
        file = LogFile(first, f"{first:09d}{_PAGE}")
        lines = ",\n".join(page)
        content = f'{{"version": {VERSION}, "entries": [\n{lines}\n]}}\n'
        self._storage.write_bytes(f"{self._name}/{file.name}", content.encode())
        if len(page) == 1:
            self._files = replace(self._files, pages=(*self._files.pages, file))
        self._page, self._count = page, count + 1

    def compact(self, summary: bytes) -> None:
        """Replace all entries, and the summary before, by a summary.

        Raises:
            CheckpointError: when the summary cannot be written; the log is then unchanged.
        """
        count = self._counted()
        file = LogFile(count, f"{count:09d}{_SUMMARY}")
        self._storage.write_bytes(f"{self._name}/{file.name}", _SEAL.close(summary))
        before, self._page = self._files, []
        self._files = LogFiles(file, (), ())
        for old in (*before.replaced, *before.pages, before.summary):
            if old is not None and old != file:
                self._storage.remove(f"{self._name}/{old.name}")

    def _counted(self) -> int:
        """Return the number of all appended entries, replaced ones included."""
        if self._count is None:
            self.entries()
        return self._count or 0
