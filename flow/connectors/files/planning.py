"""What each epoch reads of a list of files, and how it is cut into splits.

A file is counted in units, bytes for lines and rows for Parquet. The offset is the number of a file
in the list and a position in it; the files are one source partition, one after another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from typing_extensions import override

from flow.connectors.files.listing import File, FileList
from flow.connectors.source import Json, Planner, Slice, Split
from flow.errors import SourceError

MOST_SPLITS = 1_000
"""Splits in one slice."""
MOST_PIECES = 10_000
"""Pieces in one slice: with a great many tiny files, what is logged for an epoch stays small."""


@dataclass(frozen=True)
class Piece:
    """The part of a file from `start` up to `end`, in units."""

    file: File
    start: int
    end: int

    def to_json(self) -> Json:
        """The piece as JSON that `from_json` reads."""
        return {"file": self.file.to_json(), "start": self.start, "end": self.end}

    @classmethod
    def from_json(cls, entry: Json) -> Piece:
        """Read what `to_json` gave."""
        return cls(File.from_json(entry["file"]), entry["start"], entry["end"])


class Cuts(ABC):
    """How long files are, and where they can be cut."""

    least_split: int
    """A split of fewer units is not worth a task of its own."""

    @abstractmethod
    def length(self, file: File) -> int:
        """How many units the file has."""

    @abstractmethod
    def near(self, file: File, ideal: int, least: int, most: int) -> int:
        """The best position for a cut: `ideal`, or a cheaper one from `least` to `most`.

        A file that cannot be cut answers with its length, whatever `most` is.
        """


class FilePlanner(Planner):
    """Plans epochs of at most `per_epoch` units over the files of a list."""

    def __init__(
        self, files: FileList, cuts: Cuts, *, per_epoch: int, parallelism: int, follow: bool
    ) -> None:
        self._files = files
        self._cuts = cuts
        self._per_epoch = per_epoch
        self._parallelism = min(max(parallelism, 1), MOST_SPLITS)
        self._follow = follow

    @override
    def next(self, start: Json | None) -> Slice | None:
        self._files.refresh()
        taken = list(self._pieces(*self._position(start)))
        if not taken:
            return None
        pieces = [piece for piece, _ in taken]
        splits = [
            Split([piece.to_json() for piece in group], order=order)
            for order, group in enumerate(self._cut(pieces))
        ]
        return Slice(taken[-1][1], splits)

    @override
    def finished(self, start: Json | None) -> bool:
        if self._follow:
            return False
        number, at = self._position(start)
        rest = range(number, len(self._files))
        return all(self._cuts.length(self._files[n]) <= (at if n == number else 0) for n in rest)

    @override
    def lag(self, start: Json | None) -> str:
        return f"{self._position(start)[0]} of {len(self._files)} files"

    def _position(self, start: Json | None) -> tuple[int, int]:
        if start is None:
            return 0, 0
        if start["file"] > len(self._files):
            raise SourceError(
                f"the run is to go on at file number {start['file'] + 1}, but its list of files "
                f"holds {len(self._files)}: the log of the source belongs to another run"
            )
        return start["file"], start["at"]

    def _pieces(self, number: int, at: int) -> Iterator[tuple[Piece, Json]]:
        """The pieces of the next epoch, each with the offset after it."""
        left, taken = self._per_epoch, 0
        while number < len(self._files) and left > 0 and taken < MOST_PIECES:
            file = self._files[number]
            length = self._cuts.length(file)
            if at >= length:
                number, at = number + 1, 0
                continue
            end = self._end(file, at, length, left)
            piece = Piece(file, at, end)
            if end < length:
                yield piece, {"file": number, "at": end}
                return
            left, taken = left - (end - at), taken + 1
            number, at = number + 1, 0
            yield piece, {"file": number, "at": at}

    def _end(self, file: File, at: int, length: int, left: int) -> int:
        """Where the epoch's piece of a file ends: a cheap cut if that fills half an epoch."""
        most = at + left
        if length <= most:
            return length
        least = max(at + 1, most - self._per_epoch // 2)
        return self._cuts.near(file, most, least, most)

    def _cut(self, pieces: Sequence[Piece]) -> list[list[Piece]]:
        """Deal the pieces out, in order, to splits of similar size."""
        starts = [0, *accumulate(piece.end - piece.start for piece in pieces)]
        total = starts[-1]
        count = max(1, min(self._parallelism, total // self._cuts.least_split))
        slack = total // count // 4
        cuts = [self._snap(pieces, starts, total * n // count, slack) for n in range(1, count)]
        splits: list[list[Piece]] = [[] for _ in range(count)]
        for piece, before, after in zip(pieces, starts, starts[1:], strict=False):
            inside = cuts[bisect_right(cuts, before) : bisect_left(cuts, after)]
            for start, end in pairwise([before, *inside, after]):
                shift = piece.start - before
                part = Piece(piece.file, start + shift, end + shift)
                splits[bisect_right(cuts, start)] += [part] if end > start else []
        return [split for split in splits if split]

    def _snap(self, pieces: Sequence[Piece], starts: list[int], ideal: int, slack: int) -> int:
        """A cut close to `ideal`, between two files if that is as good.

        Both count from the start of the first piece.
        """
        number = bisect_right(starts, ideal) - 1
        piece, before, after = pieces[number], starts[number], starts[number + 1]
        if ideal - before <= slack:
            return before
        if after - ideal <= slack:
            return after
        at = piece.start + ideal - before
        cut = self._cuts.near(piece.file, at, at - slack, at + slack)
        return before + min(cut, piece.end) - piece.start
