"""Base of the sources of line files, and parsing of lines with isolation of bad ones.

A block of lines is parsed as a whole. If that fails, the block is halved repeatedly until each bad
line is alone. The same parser reads blocks and single lines, so results do not depend on the cuts
of a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TypeVar

import pyarrow as pa
from typing_extensions import override

from flow.checks import check_choice, check_whole
from flow.connectors.files.reading.file_list import LATE_FILES
from flow.connectors.files.reading.file_source import FileSource, Paths, cut_text
from flow.connectors.files.reading.line_ranges import Block, LineCuts, LineRange, too_long
from flow.connectors.files.reading.pieces import Cuts, Piece
from flow.connectors.files.reading.planning import FileOrder
from flow.connectors.formats.line_parser import LineParser, Parsed
from flow.connectors.source import ON_INVALID, BadInput, Batch, Invalid, OnInvalid
from flow.durations import Duration

X = TypeVar("X")

ROWS = 100_000
"""Items in a batch, at most."""
SIFTED = 1_024
"""Lines that are searched for bad ones at a time, so that the first bad line is found soon."""
TEXT_LENGTH = 200
"""Characters of a bad line in its `BadInput`, at most."""


@dataclass(frozen=True, repr=False)
class LineSource(FileSource[X]):
    """Base of the sources of line files; see `TextSource` for the arguments."""

    path: Paths
    _: KW_ONLY
    on_invalid: OnInvalid = "fail"
    bytes_per_epoch: int = 64 << 20
    follow: bool = False
    order: FileOrder = "sequence"
    late_files: Duration = LATE_FILES

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("on_invalid", self.on_invalid, ON_INVALID)
        check_whole("bytes_per_epoch", self.bytes_per_epoch, 1)

    @property
    def is_whole(self) -> bool:
        """True if files cannot be cut."""
        return False

    @property
    @override
    def units_per_epoch(self) -> int:
        return self.bytes_per_epoch

    @override
    def cuts(self) -> Cuts:
        return LineCuts(is_whole=self.is_whole)


def read_lines(lines: LineRange, piece: Piece, parser: LineParser) -> Iterator[Batch]:
    """Parse the lines of a range."""
    for block in lines.blocks():
        if block.is_cut:
            yield Invalid([_too_long_line(piece, lines.line_number(block.before), block.data)])
            continue
        parsed = parser.parse(block.data)
        if parsed is not None:
            yield from batches(parsed)
        else:
            yield from _sift_numbered(lines, piece, parser, _numbered(block, parser))


def read_numbered(
    lines: LineRange, piece: Piece, parser: LineParser, numbered: Sequence[tuple[int, bytes]]
) -> Iterator[Batch]:
    """Parse lines of a range, none of them blank, each with its index in the range."""
    if not numbered:
        return
    parsed = parser.parse(_data(line for _, line in numbered), len(numbered))
    if parsed is not None:
        yield from batches(parsed)
    else:
        yield from _sift_numbered(lines, piece, parser, numbered)


def _sift_numbered(
    lines: LineRange, piece: Piece, parser: LineParser, numbered: Sequence[tuple[int, bytes]]
) -> Iterator[Batch]:
    for start in range(0, len(numbered), SIFTED):
        chunk = numbered[start : start + SIFTED]
        good, bad = sift([line for _, line in chunk], parser)
        yield from (batch for part in good for batch in batches(part))
        if bad:
            rejected = [(lines.line_number(chunk[index][0]), chunk[index][1]) for index in bad]
            yield Invalid([bad_line(piece, number, line, parser) for number, line in rejected])


def sift(lines: Sequence[bytes], parser: LineParser) -> tuple[list[Parsed], list[int]]:
    """Separate lines, without their line ends, into parsed items and the indexes of bad lines."""
    good: list[Parsed] = []
    bad: list[int] = []
    ranges = [(0, len(lines))]
    while ranges:
        start, end = ranges.pop()
        parsed = parser.parse(_data(lines[start:end]), end - start)
        if parsed is not None:
            good.append(parsed)
        elif end - start == 1:
            bad.append(start)
        else:
            middle = (start + end) // 2
            ranges += [(middle, end), (start, middle)]
    return _concatenated(good), bad


def batches(parsed: Parsed) -> Iterator[Batch]:
    """Cut parsed items into batches of at most `ROWS` items."""
    if isinstance(parsed, list):
        for start in range(0, len(parsed), ROWS):
            yield parsed[start : start + ROWS]
    else:
        yield from (batch for batch in parsed.to_batches(max_chunksize=ROWS) if batch.num_rows)


def bad_line(piece: Piece, number: int, line: bytes, parser: LineParser) -> BadInput:
    """Return the description of a bad line."""
    text = cut_text(line.decode(errors="replace"), TEXT_LENGTH)
    return BadInput(f"{piece.file}, line {number}", text, parser.reason(line))


def _too_long_line(piece: Piece, number: int, beginning: bytes) -> BadInput:
    text = cut_text(beginning.decode(errors="replace").rstrip(), TEXT_LENGTH)
    return BadInput(f"{piece.file}, line {number}", text, too_long())


def count_lines(data: bytes, blank: bytes) -> int:
    """Return the number of lines that are not blank; `blank` includes the carriage return."""
    if data.startswith((b"\n", b"\r\n")) or b"\n\n" in data or b"\n\r" in data:
        return sum(bool(line.strip(blank)) for line in data.split(b"\n"))
    return data.count(b"\n")


def _numbered(block: Block, parser: LineParser) -> list[tuple[int, bytes]]:
    """Return the lines that are not blank, each with its index in the range."""
    lines = block.data.split(b"\n")[:-1]
    return [(block.before + n, line) for n, line in enumerate(lines) if not parser.is_blank(line)]


def _data(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _concatenated(parts: list[Parsed]) -> list[Parsed]:
    """Return many small parts as one part; an empty list for no parts."""
    if not parts:
        return []
    if isinstance(parts[0], list):
        return [[item for part in parts for item in part]]
    return [pa.concat_tables(parts).combine_chunks()]
