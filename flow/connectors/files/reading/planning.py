"""Planning of epochs over a list of files, read one after another.

`SequencePlanner` reads all files as one source partition; its offset is the number of a file in the
list, and a position in that file. `parallel_planning` reads the files side by side.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from typing_extensions import override

from flow.connectors.files.reading.file import File
from flow.connectors.files.reading.file_list import FileList
from flow.connectors.files.reading.pieces import Cuts, Piece, cut_pieces
from flow.connectors.source import Json, Planner, Slice, Split
from flow.errors import SourceError

FileOrder: TypeAlias = Literal["sequence", "parallel"]
"""Order of the files of a source: one after another, or side by side."""

FILE_ORDERS = ("sequence", "parallel")

MOST_SPLITS = 1_000
"""Splits in one slice, at most."""
MOST_PIECES = 10_000
"""Pieces in one slice, at most: bounds the log entry of an epoch over many small files."""


class ListingTimes:
    """System times of listings, each with the number of known files after the listing.

    Only listings with unread files, and the newest one without, are retained.
    """

    def __init__(self) -> None:
        self._listings: list[tuple[int, int]] = []

    def add(self, now_us: int, files: int) -> None:
        """Add a listing.

        Args:
            now_us: system time just before the listing, in µs since the Unix epoch.
            files: number of known files after the listing.
        """
        # A listing without new files replaces the previous one. So does a listing at the same
        # system time: the later listing has all files that arrived by that time.
        while self._listings and (
            self._listings[-1][1] == files or self._listings[-1][0] >= now_us
        ):
            self._listings.pop()
        self._listings.append((now_us, files))

    def read_until_us(self, files_read: int) -> int | None:
        """Return the time of the newest listing whose files are all read.

        Args:
            files_read: number of files read, counted from the first in the list.

        Returns:
            µs since the Unix epoch; ``None`` if there is no such listing.
        """
        read = sum(files <= files_read for _, files in self._listings)
        del self._listings[: max(0, read - 1)]
        return self._listings[0][0] if read else None


class FilePlanner(Planner):
    """Base of the planners of files: times of listings, checks of offsets, and cheap cuts.

    Args:
        files: the files to read.
        cuts: lengths and cuts of these files.
        per_epoch: units that an epoch reads, at most.
        parallelism: number of tasks that can read at once.
        follow: True if files are added to the list during the run.
    """

    order: FileOrder
    """Order of the files, which determines the form of the offset."""

    def __init__(
        self, files: FileList, cuts: Cuts, *, per_epoch: int, parallelism: int, follow: bool
    ) -> None:
        self._files = files
        self._cuts = cuts
        self._per_epoch = per_epoch
        self._parallelism = min(max(parallelism, 1), MOST_SPLITS)
        self._follow = follow
        self._has_listed = False
        self._times = ListingTimes()
        # Number of the first file that is unfinished after the last slice.
        self._first_unread = 0

    @override
    def next(self, start: Json | None) -> Slice | None:
        self._has_listed = self._files.refresh()
        return self._plan(start)

    @override
    def read_until_us(self, now_us: int, behind: bool) -> int | None:
        if not self._follow:
            return None if behind else now_us
        if self._has_listed:
            self._times.add(now_us, len(self._files))
            self._has_listed = False
        return self._times.read_until_us(self._first_unread)

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
            f"the run is to go on with files that were read with order={before!r}, but the source "
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
    """Planner of epochs that read the files one after another, as one source partition.

    Args:
        files: the files to read.
        cuts: lengths and cuts of these files.
        name: name of the files in messages, without credentials.
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
        ends = list(self._pieces(number, at))
        if not ends:
            self._first_unread = len(self._files)
            return None
        end = ends[-1][1]
        self._first_unread = self._skip_read(end["file"], end["at"])
        pieces = [piece for piece, _ in ends]
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
