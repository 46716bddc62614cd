"""Planning of epochs over a list of files.

`SequencePlanner` reads the files one after another, as one source partition; its offset is the
number of a file in the list, and a position in that file. `ParallelPlanner` reads the files side by
side, each as a source partition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import accumulate, pairwise
from typing import Any, Literal, TypeAlias

from typing_extensions import override

from flow.connectors.files.file_list import FileList
from flow.connectors.files.filesystems import File
from flow.connectors.leveling import Leveling
from flow.connectors.polls import PollHistory
from flow.connectors.source import Json, Planner, Slice, Split
from flow.errors import SourceError, cut_text
from flow.instants import Moment

_NAME_LENGTH = 200
"""Characters of the name of a source's files in messages, at most."""


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

    def peak_us(self, pieces: Sequence[Piece]) -> int | None:  # noqa: ARG002
        """Return `Split.peak_us` of pieces."""
        return None


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


FileOrder: TypeAlias = Literal["sequence", "parallel"]
"""Order of the files of a source: one after another, or side by side."""

MOST_SPLITS = 1_000
"""Splits in one slice, at most."""

MOST_PIECES = 10_000
"""Pieces in one slice, at most: bounds the log entry of an epoch over many small files."""


class FilePlanner(Planner):
    """Base of the planners of files: times of listings, checks of offsets, and cheap cuts.

    Args:
        files: the files to read.
        cuts: lengths and cuts of these files.
        name: name of all files in messages, without credentials.
        per_epoch: units that an epoch reads, at most.
        parallelism: number of tasks that can read at once.
        follow: True if files are added to the list during the run.
    """

    order: FileOrder
    """Order of the files, which determines the form of the offset."""

    def __init__(
        self,
        files: FileList,
        cuts: Cuts,
        *,
        name: str,
        per_epoch: int,
        parallelism: int,
        follow: bool,
    ) -> None:
        self._files = files
        self._cuts = cuts
        self._name = name
        self._per_epoch = per_epoch
        self._parallelism = min(max(parallelism, 1), MOST_SPLITS)
        self._follow = follow
        self._has_listed = False
        self._listings = PollHistory[None]() if follow else None
        # Number of the first file that is unfinished after the last slice.
        self._first_unread = 0

    @override
    def next(self, start: Json | None) -> Slice | None:
        self._has_listed = self._files.refresh()
        return self._plan(start)

    @override
    def read_until_us(self, now: Moment, behind: bool) -> int | None:
        if self._listings is None:
            return None if behind else now.running_us
        if self._has_listed:
            self._listings.add(now.running_us, {None: len(self._files)})
            self._has_listed = False
        return self._listings.read_until_us({None: self._first_unread})

    @override
    def release(self, oldest: Json, now_us: int) -> None:
        self._check_form(oldest)
        self._files.release(self._first_needed(oldest), now_us)

    @abstractmethod
    def _first_needed(self, offset: Json) -> int:
        """Return the number of the first file that an offset refers to."""

    @abstractmethod
    def _plan(self, start: Json | None) -> Slice | None:
        """Plan a slice of the listed files, and set `_first_unread`."""

    def _check_form(self, start: Json | None) -> None:
        """Raise `SourceError` if an offset has the form of another order of the files."""
        if start is None or ("started" in start) == (self.order == "parallel"):
            return
        before = "sequence" if self.order == "parallel" else "parallel"
        raise SourceError(
            f"the run continues with files that were read with order={before!r}, but the source "
            f"has order={self.order!r}: the positions of one order mean nothing in the other. Set "
            f"order={before!r} again, or read the files from their beginning: name this input in "
            "RecoveryConfig(path, reset_steps=[...]), or use a recovery path of its own"
        )

    def _check_numbers(self, first: int, number: int) -> None:
        """Raise `SourceError` if an offset refers to files that are not in the list.

        Args:
            first: number of the first file that the offset refers to.
            number: number of files that the offset counts.
        """
        if first < self._files.first:
            raise SourceError(
                f"the run continues at file number {first + 1}, but its list of files begins at "
                f"number {self._files.first + 1}: no epoch that was kept needed those before. For "
                "a table that is new or was reset, name this input in RecoveryConfig(path, "
                "reset_steps=[...]) too; else the log of the source and the offsets are not of the "
                "same checkpoint"
            )
        if number > len(self._files):
            raise SourceError(
                f"the run continues at file number {number + 1}, but its list of files "
                f"holds {len(self._files)}: the log of the source belongs to another run"
            )

    def _progress(self, read: int) -> str:
        """Return the number of files that are read, and of late files, as text."""
        late = f", {self._files.late} too late" if self._files.late else ""
        return f"{read} of {len(self._files)} files{late}"

    def _skip_read(self, number: int, at: int = 0) -> int:
        """Return the number of the first file with unread units, from a position on."""
        while number < len(self._files) and self._cuts.length(self._files[number]) <= at:
            number, at = number + 1, 0
        return number

    def _end(self, file: File, at: int, most: int, slack: int) -> int:
        """Return the end of a piece: `most`, or a cheap cut just before it.

        Args:
            file: the file.
            at: start of the piece.
            most: greatest end of the piece, unless the file cannot be cut.
            slack: units by which the piece may be shorter, for a cheap cut.
        """
        length = self._cuts.length(file)
        if length <= most:
            return length
        return self._cuts.near(file, most, max(at + 1, most - slack), most)


class SequencePlanner(FilePlanner):
    """Planner of epochs that read the files one after another, as one source partition."""

    order: FileOrder = "sequence"

    @override
    def finished(self, start: Json | None) -> bool:
        return not self._follow and self._skip_read(*self._position(start)) == len(self._files)

    @override
    def lag(self, start: Json | None) -> str:
        return self._progress(self._position(start)[0])

    @override
    def name_of(self, partition: int) -> str:
        return cut_text(self._name, _NAME_LENGTH)

    @override
    def _plan(self, start: Json | None) -> Slice | None:
        number, at = self._position(start)
        ends = list(self._pieces(number, at))
        if not ends:
            self._first_unread = len(self._files)
            return None
        end = ends[-1][1]
        self._first_unread = self._skip_read(end["file"], end["at"])
        pieces = [piece for piece, _ in ends]
        splits = [
            Split([piece.to_json() for piece in group], 0, order, self._cuts.peak_us(group))
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
    def _first_needed(self, offset: Json) -> int:
        return int(offset["file"])

    def _pieces(self, number: int, at: int) -> Iterator[tuple[Piece, Json]]:
        """Yield the pieces of the next epoch, each with the offset after the piece."""
        left, count = self._per_epoch, 0
        while number < len(self._files) and left > 0 and count < MOST_PIECES:
            file = self._files[number]
            length = self._cuts.length(file)
            if at >= length:
                number, at = number + 1, 0
                continue
            # An epoch that ends at a cheap cut reads at least half of `per_epoch`.
            end = self._end(file, at, at + left, self._per_epoch // 2)
            piece = Piece(file, at, end)
            if end < length:
                yield piece, {"file": number, "at": end}
                return
            left, count = left - (end - at), count + 1
            number, at = number + 1, 0
            yield piece, {"file": number, "at": at}


MOST_OPEN = 10_000
"""Open files, at most; the offset of an epoch then has about 200 kB.

A file that is not started holds the watermark as an open file does, so no value becomes late; but
values of the open files are buffered meanwhile.
"""


@dataclass(frozen=True)
class OpenFiles:
    """Offset of files that are read side by side: the positions in the *open*, unfinished ones.

    The size of the offset and the cost of a plan are proportional to the open files, and not to all
    files that a directory has had.

    Attributes:
        started: number of files that were started: each is finished, or in `at`.
        at: position in each open file, by number of the file.
    """

    started: int = 0
    at: Mapping[int, int] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """Number of the first file that is not finished."""
        return min(self.at, default=self.started)

    def to_json(self) -> Json:
        """Return the offset as JSON that `from_json` reads."""
        return {"started": self.started, "open": [[n, at] for n, at in sorted(self.at.items())]}

    @classmethod
    def from_json(cls, offset: Json) -> OpenFiles:
        """Return the offset that `to_json` encoded."""
        return cls(offset["started"], dict(offset["open"]))


class ParallelPlanner(FilePlanner):
    """Planner of epochs that read files side by side; a file's number is its source partition.

    An epoch reads the files that are furthest behind in event time. Files without known event time
    are first, sorted by the number of units read; the others are sorted by event time. `Leveling`
    decides the units to read of each file.
    """

    order: FileOrder = "parallel"

    def __init__(self, files: FileList, cuts: Cuts, **options: Any) -> None:
        super().__init__(files, cuts, **options)
        # At least one file for each task; more only if pieces have at least `least_piece` units.
        files_per_epoch = max(self._parallelism, self._per_epoch // cuts.least_piece)
        self._most_files = min(files_per_epoch, MOST_SPLITS)
        self._leveling: Leveling[int] = Leveling()
        self._reached_us: Mapping[int, int] = {}

    @override
    def report_progress(self, reached_us: Mapping[int, int]) -> None:
        self._reached_us = dict(reached_us)

    @override
    def finished(self, start: Json | None) -> bool:
        before = self._open_files(start)
        return (
            not self._follow
            and not before.at
            and self._skip_read(before.started) == len(self._files)
        )

    @override
    def lag(self, start: Json | None) -> str:
        before = self._open_files(start)
        return self._progress(before.started - len(before.at))

    @override
    def name_of(self, partition: int) -> str:
        is_known = self._files.first <= partition < len(self._files)
        return str(self._files[partition]) if is_known else super().name_of(partition)

    @override
    def _plan(self, start: Json | None) -> Slice | None:
        before = self._open_files(start)
        reached_us = {n: self._reached_us[n] for n in before.at if n in self._reached_us}
        self._leveling.learn_pace(reached_us, before.at)
        remaining, started = self._choose(before, reached_us)
        pieces = self._pieces(before, remaining)
        after = self._after(before, remaining, pieces, started)
        self._first_unread = after.first
        if not pieces:
            return None
        behind = (*sorted(after.at), *range(after.started, len(self._files)))
        return Slice(after.to_json(), list(self._splits(pieces)), behind=behind)

    def _open_files(self, start: Json | None) -> OpenFiles:
        self._check_form(start)
        before = OpenFiles() if start is None else OpenFiles.from_json(start)
        self._check_numbers(before.first, before.started)
        return before

    @override
    def _first_needed(self, offset: Json) -> int:
        return OpenFiles.from_json(offset).first

    def _choose(
        self, before: OpenFiles, reached_us: Mapping[int, int]
    ) -> tuple[dict[int, int], int]:
        """Choose the files that the epoch may read, those furthest behind first.

        Returns:
            The unread units of each chosen file, by number; and the number of started files if the
            epoch reads the chosen files.
        """
        first = self._skip_read(before.started)
        most_new = MOST_OPEN - len(before.at)
        new = range(first, min(first + most_new, len(self._files)))
        started = first
        remaining: dict[int, int] = {}
        for number in _furthest_behind_first(before.at, new, reached_us):
            if len(remaining) == self._most_files:
                break
            left = self._cuts.length(self._files[number]) - before.at.get(number, 0)
            if left > 0:
                remaining[number] = left
            started = max(started, number + 1)
        return remaining, started

    def _pieces(self, before: OpenFiles, remaining: Mapping[int, int]) -> dict[int, Piece]:
        """Return the pieces that the epoch reads, by number of the file."""
        pieces: dict[int, Piece] = {}
        left = self._per_epoch
        shares = self._leveling.shares(remaining, left) if remaining else {}
        for number in remaining:
            share = shares.get(number, 0)
            # A file that cannot be cut may exceed its share, and leaves less for the others.
            if not share or left <= 0:
                continue
            at = before.at.get(number, 0)
            end = self._end(self._files[number], at, at + min(share, left), share // 2)
            pieces[number] = Piece(self._files[number], at, end)
            left -= end - at
        return pieces

    def _after(
        self,
        before: OpenFiles,
        remaining: Mapping[int, int],
        pieces: Mapping[int, Piece],
        started: int,
    ) -> OpenFiles:
        """Return the offset after the pieces are read."""
        at = {**dict.fromkeys(remaining, 0), **before.at}
        at |= {number: piece.end for number, piece in pieces.items()}
        finished = [
            n for n, piece in pieces.items() if piece.end >= before.at.get(n, 0) + remaining[n]
        ]
        for number in finished:
            del at[number]
        self._leveling.forget(finished)
        return OpenFiles(self._skip_read(started), at)

    def _splits(self, pieces: Mapping[int, Piece]) -> Iterator[Split]:
        """Yield the splits by partition; pieces are cut if there are fewer than tasks."""
        most = max(1, self._parallelism // len(pieces))
        for number, piece in sorted(pieces.items()):
            for order, group in enumerate(cut_pieces(self._cuts, [piece], most)):
                yield Split([part.to_json() for part in group], partition=number, order=order)


def _furthest_behind_first(
    positions: Mapping[int, int], new: range, reached_us: Mapping[int, int]
) -> Iterator[int]:
    """Yield the numbers of files, those furthest behind in event time first.

    Args:
        positions: position in each open file.
        new: files that are not started, in reading order.
        reached_us: greatest event time of open files, in µs since the Unix epoch, if known.
    """
    ordered = sorted(
        (number in reached_us, reached_us.get(number, 0), at, number)
        for number, at in positions.items()
    )
    untouched = ((False, 0, 0, number) for number in new)
    return (number for *_, number in merge(ordered, untouched))


PLANNERS: Mapping[FileOrder, type[FilePlanner]] = {
    "sequence": SequencePlanner,
    "parallel": ParallelPlanner,
}
"""Planner of each order of the files."""
