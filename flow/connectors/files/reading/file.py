"""A file of a source, and the check that the file has not changed since the listing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyarrow import fs

from flow.connectors.files.places.failures import raise_as
from flow.connectors.files.places.place import display_name
from flow.connectors.source import Json
from flow.errors import SourceError


@dataclass(frozen=True)
class File:
    """A file in a listing.

    Attributes:
        store: the store, see `Place`.
        path: the path in the store.
        size: size in bytes; a file of another size when it is read has changed.
    """

    store: str
    path: str
    size: int

    def to_json(self) -> Json:
        """Return the file as a list that `from_json` reads."""
        return [self.store, self.path, self.size]

    @classmethod
    def from_json(cls, entry: Json) -> File:
        """Return the file that `to_json` encoded."""
        return cls(*entry)

    def __str__(self) -> str:
        return display_name(self.store, self.path)

    def check(self, filesystem: Any) -> None:
        """Raise `SourceError` if the file was removed, or has another size than listed."""
        info = filesystem.get_file_info(self.path)
        if info.type != fs.FileType.File:
            raise SourceError(f"{self} has vanished since it was listed ({self.size} bytes then)")
        if info.size != self.size:
            raise SourceError(
                f"{self} has changed since it was listed: it had {self.size} bytes and now has "
                f"{info.size}. Files must be complete when they appear, and stay as they are"
            )


@contextmanager
def open_file(filesystem: Any, file: File) -> Iterator[Any]:
    """Check a file and open it for random access.

    Raises:
        SourceError: the file has changed since the listing, cannot be opened, or a read in the
            block fails.
    """
    with raise_as(SourceError, f"{file} cannot be read"):
        file.check(filesystem)
        with filesystem.open_input_file(file.path) as stream:
            yield stream
