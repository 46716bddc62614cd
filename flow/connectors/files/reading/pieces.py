"""Files of a source, pieces of them, and the positions at which files are cut.

Lengths and positions are in units: bytes of line files, rows of Parquet files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from pyarrow import fs

from flow.connectors.files.places.place import display_name, raise_as
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


@dataclass(frozen=True)
class Piece:
    """A part of a file.

    Attributes:
        file: the file.
        start: position of the first unit.
        end: position after the last unit.
    """

    file: File
    start: int
    end: int

    def to_json(self) -> Json:
        """Return the piece as JSON that `from_json` reads."""
        return {"file": self.file.to_json(), "start": self.start, "end": self.end}

    @classmethod
    def from_json(cls, entry: Json) -> Piece:
        """Return the piece that `to_json` encoded."""
        return cls(File.from_json(entry["file"]), entry["start"], entry["end"])


class Cuts(ABC):
    """Lengths of files, and the positions at which files can be cut."""

    least_split: int
    """Units of a split, at least; fewer are not worth a task of their own."""
    least_piece: int
    """Units of a piece, at least; fewer are not worth opening one more file in an epoch."""

    @abstractmethod
    def length(self, file: File) -> int:
        """Return the number of units of a file."""

    @abstractmethod
    def near(self, file: File, ideal: int, least: int, most: int) -> int:
        """Return the best position for a cut: `ideal`, or a cheaper one in [`least`, `most`].

        For a file that cannot be cut the result is its length, even if that is above `most`.
        """


def cut_pieces(cuts: Cuts, pieces: Sequence[Piece], most: int) -> list[list[Piece]]:
    """Divide pieces, in order, into at most `most` splits of similar size."""
    starts = [0, *accumulate(piece.end - piece.start for piece in pieces)]
    total = starts[-1]
    count = max(1, min(most, total // cuts.least_split))
    slack = total // count // 4
    ends = [_cut_near(cuts, pieces, starts, total * n // count, slack) for n in range(1, count)]
    splits: list[list[Piece]] = [[] for _ in range(count)]
    for piece, before, after in zip(pieces, starts, starts[1:], strict=False):
        inside = ends[bisect_right(ends, before) : bisect_left(ends, after)]
        for start, end in pairwise([before, *inside, after]):
            shift = piece.start - before
            part = Piece(piece.file, start + shift, end + shift)
            splits[bisect_right(ends, start)] += [part] if end > start else []
    return [split for split in splits if split]


def _cut_near(
    cuts: Cuts, pieces: Sequence[Piece], starts: Sequence[int], ideal: int, slack: int
) -> int:
    """Return a cut at most `slack` from `ideal`, between two pieces if possible.

    Args:
        cuts: lengths and cuts of the files.
        pieces: the pieces.
        starts: start of each piece, and the end of the last; units from the start of the first.
        ideal: the ideal cut; the result and `ideal` count from the start of the first piece.
        slack: units.
    """
    number = bisect_right(starts, ideal) - 1
    piece, before, after = pieces[number], starts[number], starts[number + 1]
    if ideal - before <= slack:
        return before
    if after - ideal <= slack:
        return after
    at = piece.start + ideal - before
    cut = cuts.near(piece.file, at, at - slack, at + slack)
    return before + min(cut, piece.end) - piece.start
