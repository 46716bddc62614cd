"""Epochs over a list of files: their pieces, and the splits that tasks read.

A file is counted in units, bytes for lines and rows for Parquet. `SequencePlanner` reads the files
as one source partition, one after another; its offset is the number of a file in the list and a
position in that file. `ParallelPlanner`, in a module of its own, reads them side by side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal, TypeAlias

from typing_extensions import override

from flow.connectors.files.listing import File, FileList, ListingTimes
from flow.connectors.source import Json, Planner, Slice, Split
from flow.errors import SourceError

FileOrder: TypeAlias = Literal["sequence", "parallel"]
"""Order of the files of a source: one after another, or side by side."""

FILE_ORDERS = ("sequence", "parallel")

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
    """Lengths of files in units, and the positions at which files can be cut."""

    least_split: int
    """A split of fewer units is not worth a task of its own."""
    least_piece: int
    """A piece of fewer units is not worth opening one more file in an epoch."""

    @abstractmethod
    def length(self, file: File) -> int:
        """How many units the file has."""

    @abstractmethod
    def near(self, file: File, ideal: int, least: int, most: int) -> int:
        """The best position for a cut: `ideal`, or a cheaper one from `least` to `most`.

        A file that cannot be cut answers with its length, whatever `most` is.
        """


class FilePlanner(Planner):
    """Base of the planners of files: time of listings, common checks, and cheap cuts.

    Args:
        files: the files to read.
        cuts: lengths and cuts of these files.
        per_epoch: units that an epoch reads, at most.
        parallelism: number of tasks that can read at once.
        follow: whether files are added to the list during the run.
    """

    order: FileOrder
    """Order of the files, and so the form of the offset."""

    def __init__(
        self, files: FileList, cuts: Cuts, *, per_epoch: int, parallelism: int, follow: bool
    ) -> None:
        self._files = files
        self._cuts = cuts
        self._per_epoch = per_epoch
        self._parallelism = min(max(parallelism, 1), MOST_SPLITS)
        self._follow = follow
        self._listed = False
        self._times = ListingTimes()
        # Number of the first file that the last slice, and those before it, do not finish.
        self._first_unread = 0

    @override
    def next(self, start: Json | None) -> Slice | None:
        self._listed = self._files.refresh()
        return self._plan(start)

    @override
    def read_until_us(self, now_us: int, behind: bool) -> int | None:
        if not self._follow:
            return None if behind else now_us
        if self._listed:
            self._times.add(now_us, len(self._files))
            self._listed = False
        return self._times.read_until_us(self._first_unread)

    @override
    def release(self, oldest: Json, now_us: int) -> None:
        self._check_form(oldest)
        self._files.release(self._needed(oldest), now_us)

    @abstractmethod
    def _needed(self, offset: Json) -> int:
        """Return the number of the first file that an offset refers to."""

    @abstractmethod
    def _plan(self, start: Json | None) -> Slice | None:
        """Plan a slice of the files that are listed, and set `_first_unread`."""

    def _check_form(self, start: Json | None) -> None:
        """Raise `SourceError` if an offset was made with another order of the files."""
        if start is None or ("started" in start) == (self.order == "parallel"):
            return
        before = "sequence" if self.order == "parallel" else "parallel"
        raise SourceError(
            f"the run is to go on with files that were read with order={before!r}, but the source "
            f"has order={self.order!r}: the positions of one order mean nothing in the other. Set "
            f"order={before!r} again, or read the files from their beginning: name this input in "
            "RecoveryConfig(path, reset_steps=[...]), or use a recovery path of its own"
        )

    def _check_numbers(self, first: int, number: int) -> None:
        """Raise `SourceError` if an offset refers to files that are not in the list.

        Args:
            first: number of the first file that the offset refers to.
            number: how many files the offset counts.
        """
        if first < self._files.first:
            raise SourceError(
                f"the run is to go on at file number {first + 1}, but its list of files begins at "
                f"number {self._files.first + 1}: no epoch that was kept needed those before. The "
                "log of the source and the offsets are not of the same checkpoint"
            )
        if number > len(self._files):
            raise SourceError(
                f"the run is to go on at file number {number + 1}, but its list of files "
                f"holds {len(self._files)}: the log of the source belongs to another run"
            )

    def _progress(self, read: int) -> str:
        """Say how many files are read, and how many came too late to be."""
        late = f", {self._files.late} too late" if self._files.late else ""
        return f"{read} of {len(self._files)} files{late}"

    def _skip_read(self, number: int, at: int = 0) -> int:
        """Return the first file, from position `at` of file `number` on, that has units left."""
        while number < len(self._files) and self._cuts.length(self._files[number]) <= at:
            number, at = number + 1, 0
        return number

    def _end(self, file: File, at: int, most: int, slack: int) -> int:
        """Return the end of a piece from `at` on: at most `most`, or a cheap cut near to it.

        Args:
            file: the file.
            at: the position at which the piece begins.
            most: the position at which the piece ends at the latest, unless the file has no cuts.
            slack: units that the piece may be shorter, for a cheap cut.
        """
        length = self._cuts.length(file)
        if length <= most:
            return length
        return self._cuts.near(file, most, max(at + 1, most - slack), most)


class SequencePlanner(FilePlanner):
    """Plans epochs that read the files one after another, as one source partition.

    Args:
        files: the files to read.
        cuts: lengths and cuts of these files.
        name: name of the files for people.
        options: further arguments of `FilePlanner`.
    """

    order: FileOrder = "sequence"

    def __init__(self, files: FileList, cuts: Cuts, *, name: str, **options: Any) -> None:
        super().__init__(files, cuts, **options)
        self._name = name

    @override
    def finished(self, start: Json | None) -> bool:
        return not self._follow and self._skip_read(*self._position(start)) == len(self._files)

    @override
    def lag(self, start: Json | None) -> str:
        return self._progress(self._position(start)[0])

    @override
    def name_of(self, partition: int) -> str:
        return self._name

    @override
    def _plan(self, start: Json | None) -> Slice | None:
        number, at = self._position(start)
        planned = list(self._pieces(number, at))
        if not planned:
            self._first_unread = len(self._files)
            return None
        end = planned[-1][1]
        self._first_unread = self._skip_read(end["file"], end["at"])
        pieces = [piece for piece, _ in planned]
        splits = [
            Split([piece.to_json() for piece in group], order=order)
            for order, group in enumerate(cut_pieces(self._cuts, pieces, self._parallelism))
        ]
        return Slice(end, splits, behind={0} if self._first_unread < len(self._files) else ())

    def _position(self, start: Json | None) -> tuple[int, int]:
        if start is None:
            self._check_numbers(0, 0)
            return 0, 0
        self._check_form(start)
        self._check_numbers(start["file"], start["file"])
        return start["file"], start["at"]

    @override
    def _needed(self, offset: Json) -> int:
        return int(offset["file"])

    def _pieces(self, number: int, at: int) -> Iterator[tuple[Piece, Json]]:
        """The pieces of the next epoch, each with the offset after it."""
        left, count = self._per_epoch, 0
        while number < len(self._files) and left > 0 and count < MOST_PIECES:
            file = self._files[number]
            length = self._cuts.length(file)
            if at >= length:
                number, at = number + 1, 0
                continue
            # A cheap cut has to fill half an epoch.
            end = self._end(file, at, at + left, self._per_epoch // 2)
            piece = Piece(file, at, end)
            if end < length:
                yield piece, {"file": number, "at": end}
                return
            left, count = left - (end - at), count + 1
            number, at = number + 1, 0
            yield piece, {"file": number, "at": at}


def cut_pieces(cuts: Cuts, pieces: Sequence[Piece], most: int) -> list[list[Piece]]:
    """Deal pieces out, in order, to at most `most` splits of similar size."""
    starts = [0, *accumulate(piece.end - piece.start for piece in pieces)]
    total = starts[-1]
    count = max(1, min(most, total // cuts.least_split))
    slack = total // count // 4
    ends = [_snap(cuts, pieces, starts, total * n // count, slack) for n in range(1, count)]
    splits: list[list[Piece]] = [[] for _ in range(count)]
    for piece, before, after in zip(pieces, starts, starts[1:], strict=False):
        inside = ends[bisect_right(ends, before) : bisect_left(ends, after)]
        for start, end in pairwise([before, *inside, after]):
            shift = piece.start - before
            part = Piece(piece.file, start + shift, end + shift)
            splits[bisect_right(ends, start)] += [part] if end > start else []
    return [split for split in splits if split]


def _snap(
    cuts: Cuts, pieces: Sequence[Piece], starts: Sequence[int], ideal: int, slack: int
) -> int:
    """Return a cut close to `ideal`, between two files if that is as good.

    Both count from the start of the first piece.
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
