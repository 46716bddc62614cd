"""What the sources of line files have in common: planning, the fast path, and finding bad lines.

A block of lines is parsed as a whole. When that fails, halves of it are, and so on, until the bad
lines stand alone: the same parser decides for a block and for a line, so what is read does not
depend on how a file was cut.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
from typing_extensions import override

from flow.checks import check_choice, check_flag, check_whole
from flow.connectors.files.lines import Block, LineCuts, LineRange, too_long
from flow.connectors.files.listing import LATE_FILES, FileList, check_late_files
from flow.connectors.files.parallel_planning import file_planner
from flow.connectors.files.places import (
    absolute,
    checked_paths,
    connect,
    find_files,
    repr_without_credentials,
    without_credentials,
)
from flow.connectors.files.planning import FILE_ORDERS, FileOrder, Piece
from flow.connectors.formats.line_parser import LineParser, Parsed
from flow.connectors.source import (
    ON_INVALID,
    BadInput,
    Batch,
    Invalid,
    Json,
    OnInvalid,
    Planner,
    Source,
    SourceLog,
    Split,
)
from flow.durations import Duration, duration_us

X = TypeVar("X")

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
"""A file, a directory, a glob or a URI, or a list of those."""

ROWS = 100_000
"""Items in a batch, at most."""
SIFTED = 1_024
"""Lines among which bad ones are looked for at a time, so that the first is soon found."""
SHOWN = 200
"""Characters that are shown of a bad line, or of the paths of a source."""


class FileSource(Source[X]):
    """Base of the sources of files: the list of files in a checkpoint only grows.

    Attributes:
        path: a file, a directory, a glob or a URI, or a list of those.
    """

    path: Paths

    @override
    def identity(self) -> Json:
        return identity_of_files(path_list(self.path))

    @override
    def continues(self, before: Json) -> str:
        return "files that are listed already are read to their end, then those that are new"


@dataclass(frozen=True, repr=False)
class LineSource(FileSource[X]):
    """The base of the sources of line files; the arguments are described there."""

    path: Paths
    _: KW_ONLY
    on_invalid: OnInvalid = "fail"
    bytes_per_epoch: int = 64 << 20
    follow: bool = False
    order: FileOrder = "sequence"
    late_files: Duration = LATE_FILES

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", checked_paths(self.path))
        check_choice("on_invalid", self.on_invalid, ON_INVALID)
        check_whole("bytes_per_epoch", self.bytes_per_epoch, 1)
        check_flag("follow", self.follow)
        check_choice("order", self.order, FILE_ORDERS)
        check_late_files(self.late_files)
        object.__setattr__(self, "bounded", not self.follow)

    __repr__ = repr_without_credentials

    @property
    def whole_files(self) -> bool:
        """Whether a file cannot be read in parts."""
        return False

    @override
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        paths = path_list(self.path)
        find = partial(find_files, paths, required=not self.follow)
        return file_planner(
            self.order,
            FileList(log, find, follow=self.follow, late_us=duration_us(self.late_files)),
            LineCuts(whole=self.whole_files),
            name=name_of_files(paths),
            per_epoch=self.bytes_per_epoch,
            parallelism=parallelism,
            follow=self.follow,
        )

    @override
    def read(self, split: Split) -> Iterator[Batch]:
        for entry in split.what:
            piece = Piece.from_json(entry)
            filesystem = connect(piece.file.store, path_list(self.path))
            yield from self.read_piece(filesystem, piece)

    @abstractmethod
    def read_piece(self, filesystem: Any, piece: Piece) -> Iterator[Batch]:
        """Read the lines that a piece of a file owns."""


def path_list(path: Paths) -> tuple[str, ...]:
    """A checked `path` argument as a tuple."""
    paths = [path] if isinstance(path, (str, os.PathLike)) else path
    return tuple(os.fspath(one) for one in paths)


def identity_of_files(paths: Sequence[str]) -> Json:
    """Return where files are looked for, from the root and without credentials, in any order.

    >>> identity_of_files(["/b", "s3://me:secret@bucket/*.csv"])
    {'paths': ['/b', 's3://bucket/*.csv']}
    """
    return {"paths": sorted({without_credentials(absolute(one)) for one in paths})}


def name_of_files(paths: Sequence[str]) -> str:
    """Return a name of the files that paths stand for, without user and password of a URI.

    >>> name_of_files(["s3://me:secret@bucket/*.csv", "old/"])
    's3://bucket/*.csv, old/'
    """
    return cut_to(", ".join(map(without_credentials, paths)), SHOWN)


def read_lines(lines: LineRange, piece: Piece, parser: LineParser) -> Iterator[Batch]:
    """Parse a range of lines."""
    for block in lines.blocks():
        if block.is_cut:
            yield Invalid([_cut_line(piece, lines.line_number(block.before), block.data)])
            continue
        parsed = parser.parse(block.data)
        if parsed is not None:
            yield from batches(parsed)
            continue
        yield from _sifted(lines, piece, parser, _numbered(block, parser))


def read_numbered(
    lines: LineRange, piece: Piece, parser: LineParser, numbered: Sequence[tuple[int, bytes]]
) -> Iterator[Batch]:
    """Parse some of a range's lines, none of them blank, each with its index in the range."""
    if not numbered:
        return
    parsed = parser.parse(_data(line for _, line in numbered), len(numbered))
    if parsed is not None:
        yield from batches(parsed)
    else:
        yield from _sifted(lines, piece, parser, numbered)


def _sifted(
    lines: LineRange, piece: Piece, parser: LineParser, numbered: Sequence[tuple[int, bytes]]
) -> Iterator[Batch]:
    for start in range(0, len(numbered), SIFTED):
        some = numbered[start : start + SIFTED]
        good, bad = sift([line for _, line in some], parser)
        yield from (batch for part in good for batch in batches(part))
        if bad:
            at = [(lines.line_number(some[index][0]), some[index][1]) for index in bad]
            yield Invalid([bad_line(piece, number, line, parser) for number, line in at])


def sift(lines: Sequence[bytes], parser: LineParser) -> tuple[list[Parsed], list[int]]:
    """Separate lines, without their ends, into parsed items and the indexes of bad lines."""
    good: list[Parsed] = []
    bad: list[int] = []
    todo = [(0, len(lines))]
    while todo:
        start, end = todo.pop()
        parsed = parser.parse(_data(lines[start:end]), end - start)
        if parsed is not None:
            good.append(parsed)
        elif end - start == 1:
            bad.append(start)
        else:
            middle = (start + end) // 2
            todo += [(middle, end), (start, middle)]
    return _joined(good), bad


def batches(parsed: Parsed) -> Iterator[Batch]:
    """Cut what was parsed into batches of a sane size."""
    if isinstance(parsed, list):
        for start in range(0, len(parsed), ROWS):
            yield parsed[start : start + ROWS]
    else:
        yield from (batch for batch in parsed.to_batches(max_chunksize=ROWS) if batch.num_rows)


def bad_line(piece: Piece, number: int, line: bytes, parser: LineParser) -> BadInput:
    """Describe a bad line."""
    text = line.decode(errors="replace")
    return BadInput(
        where=f"{piece.file}, line {number}",
        text=cut_to(text, SHOWN),
        reason=parser.reason(line),
    )


def _cut_line(piece: Piece, number: int, beginning: bytes) -> BadInput:
    """Describe a line that is too long to be read."""
    text = cut_to(beginning.decode(errors="replace").rstrip(), SHOWN)
    return BadInput(f"{piece.file}, line {number}", text, too_long())


def cut_to(text: str, length: int) -> str:
    """Return the beginning of a text, with an ellipsis if it is longer."""
    return text if len(text) <= length else text[: length - 1] + "…"


def count_lines(data: bytes, blank: bytes) -> int:
    """How many lines consist of other characters than `blank`, carriage returns among them."""
    if data.startswith((b"\n", b"\r\n")) or b"\n\n" in data or b"\n\r" in data:
        return sum(bool(line.strip(blank)) for line in data.split(b"\n"))
    return data.count(b"\n")


def _numbered(block: Block, parser: LineParser) -> list[tuple[int, bytes]]:
    """The lines that are not blank, with their index in the range."""
    lines = block.data.split(b"\n")[:-1]
    return [(block.before + n, line) for n, line in enumerate(lines) if not parser.is_blank(line)]


def _data(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _joined(parts: list[Parsed]) -> list[Parsed]:
    """Many small results as one."""
    if not parts:
        return []
    if isinstance(parts[0], list):
        return [[item for part in parts for item in part]]
    return [pa.concat_tables(parts).combine_chunks()]
