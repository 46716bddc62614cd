"""Epochs over files that are read side by side, each as a source partition of its own.

The offset is the number of files that are begun, and the positions in those of them that are not
finished: the *open* files. So the offset, and the cost of a plan, follow the open files, however
many files a directory has had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from typing import Any

from typing_extensions import override

from flow.connectors.files.listing import FileList
from flow.connectors.files.planning import (
    MOST_SPLITS,
    Cuts,
    FileOrder,
    FilePlanner,
    Piece,
    SequencePlanner,
    cut_pieces,
)
from flow.connectors.source import Json, Slice, Split
from flow.leveling import Leveling

MOST_OPEN = 10_000
"""Files that are open at once; the offset of an epoch then has about 200 kB.

A file that is not begun holds the watermark as an open one does, so nothing is late; but values of
the open files wait for it.
"""


@dataclass(frozen=True)
class OpenFiles:
    """The offset of files that are read side by side.

    Attributes:
        started: number of files that are begun: each is finished, or in `at`.
        at: position in each file that is begun and not finished, by number of the file.
    """

    started: int = 0
    at: Mapping[int, int] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """Number of the first file that is not finished."""
        return min(self.at, default=self.started)

    def to_json(self) -> Json:
        """The offset as JSON that `from_json` reads."""
        return {"started": self.started, "open": [[n, at] for n, at in sorted(self.at.items())]}

    @classmethod
    def from_json(cls, offset: Json) -> OpenFiles:
        """Read what `to_json` gave."""
        return cls(offset["started"], dict(offset["open"]))


class ParallelPlanner(FilePlanner):
    """Plans epochs that read the files side by side; a file's number is its source partition.

    An epoch begins with the files that are furthest behind in event time: those that have brought
    nothing yet, and of these the ones of which least is read; then those that have reached the
    least. How much it reads of each goes by `Leveling`.
    """

    order: FileOrder = "parallel"

    def __init__(self, files: FileList, cuts: Cuts, **options: Any) -> None:
        super().__init__(files, cuts, **options)
        # As many as make pieces of a sane size, and as keep all tasks busy.
        wanted = max(self._parallelism, self._per_epoch // cuts.least_piece)
        self._most_files = min(wanted, MOST_SPLITS)
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
        known = self._files.first <= partition < len(self._files)
        return str(self._files[partition]) if known else super().name_of(partition)

    @override
    def _plan(self, start: Json | None) -> Slice | None:
        before = self._open_files(start)
        reached_us = {n: self._reached_us[n] for n in before.at if n in self._reached_us}
        self._leveling.hear(reached_us, before.at)
        waiting, started = self._chosen(before, reached_us)
        pieces = self._pieces(before, waiting)
        after = self._after(before, waiting, pieces, started)
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
    def _needed(self, offset: Json) -> int:
        return OpenFiles.from_json(offset).first

    def _chosen(
        self, before: OpenFiles, reached_us: Mapping[int, int]
    ) -> tuple[dict[int, int], int]:
        """Choose the files that the epoch may read, those furthest behind first.

        Returns:
            Units left in each, by number; and the number of files that are begun with these.
        """
        first = self._skip_read(before.started)
        most_new = MOST_OPEN - len(before.at)
        new = range(first, min(first + most_new, len(self._files)))
        started = first
        waiting: dict[int, int] = {}
        for number in _furthest_behind_first(before.at, new, reached_us):
            if len(waiting) == self._most_files:
                break
            left = self._cuts.length(self._files[number]) - before.at.get(number, 0)
            if left > 0:
                waiting[number] = left
            started = max(started, number + 1)
        return waiting, started

    def _pieces(self, before: OpenFiles, waiting: Mapping[int, int]) -> dict[int, Piece]:
        """The pieces that the epoch reads, by number of the file."""
        pieces: dict[int, Piece] = {}
        left = self._per_epoch
        shares = self._leveling.shares(waiting, left) if waiting else {}
        for number in waiting:
            share = shares.get(number, 0)
            # A file without cuts is read as a whole, and leaves less for the others.
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
        waiting: Mapping[int, int],
        pieces: Mapping[int, Piece],
        started: int,
    ) -> OpenFiles:
        """The offset after the pieces are read."""
        at = {**dict.fromkeys(waiting, 0), **before.at}
        at |= {number: piece.end for number, piece in pieces.items()}
        finished = [
            n for n, piece in pieces.items() if piece.end >= before.at.get(n, 0) + waiting[n]
        ]
        for number in finished:
            del at[number]
        self._leveling.forget(finished)
        return OpenFiles(self._skip_read(started), at)

    def _splits(self, pieces: Mapping[int, Piece]) -> Iterator[Split]:
        """The splits, in order of partition; a piece is cut while tasks would have no file."""
        most = max(1, self._parallelism // len(pieces))
        for number, piece in sorted(pieces.items()):
            for order, group in enumerate(cut_pieces(self._cuts, [piece], most)):
                yield Split([part.to_json() for part in group], partition=number, order=order)


def _furthest_behind_first(
    opened: Mapping[int, int], new: range, reached_us: Mapping[int, int]
) -> Iterator[int]:
    """Return the numbers of files, those first that are furthest behind in event time.

    Args:
        opened: position in each open file.
        new: files that are not begun; they are in order among each other.
        reached_us: event time that open files have reached, where it is known.
    """
    ordered = sorted(
        (number in reached_us, reached_us.get(number, 0), at, number)
        for number, at in opened.items()
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
        name: name of all files for people, without credentials.
        options: further arguments of `FilePlanner`.
    """
    if order == "parallel":
        return ParallelPlanner(files, cuts, **options)
    return SequencePlanner(files, cuts, name=name, **options)
