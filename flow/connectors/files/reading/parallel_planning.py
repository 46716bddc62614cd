"""Planning of epochs over files that are read side by side, each as a source partition.

The offset is the number of files that were started, and the positions in the unfinished of these:
the *open* files. The size of the offset and the cost of a plan are therefore proportional to the
open files, and not to all files that a directory has had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from typing import Any

from typing_extensions import override

from flow.connectors.files.reading.file_list import FileList
from flow.connectors.files.reading.pieces import Cuts, Piece, cut_pieces
from flow.connectors.files.reading.planning import (
    MOST_SPLITS,
    FileOrder,
    FilePlanner,
    SequencePlanner,
)
from flow.connectors.leveling import Leveling
from flow.connectors.source import Json, Slice, Split

MOST_OPEN = 10_000
"""Open files, at most; the offset of an epoch then has about 200 kB.

A file that is not started holds the watermark as an open file does, so no value becomes late; but
values of the open files are buffered meanwhile.
"""


@dataclass(frozen=True)
class OpenFiles:
    """Offset of files that are read side by side.

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
    def hear(self, reached_us: Mapping[int, int]) -> None:
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
        self._leveling.hear(reached_us, before.at)
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


def file_planner(
    order: FileOrder, files: FileList, cuts: Cuts, *, name: str, **options: Any
) -> FilePlanner:
    """Return the planner for an order of files.

    Args:
        order: the order.
        files: the files to read.
        cuts: lengths and cuts of these files.
        name: name of all files in messages, without credentials.
        options: further arguments of `FilePlanner`.
    """
    if order == "parallel":
        return ParallelPlanner(files, cuts, **options)
    return SequencePlanner(files, cuts, name=name, **options)
