"""Sources of lines of text and of JSON, and parsing of lines with isolation of bad ones.

A block of lines is parsed as a whole. If that fails, the block is halved repeatedly until each bad
line is alone. The same parser reads blocks and single lines, so results do not depend on the cuts
of a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar, get_args

import pyarrow as pa
from typing_extensions import override

from flow.checks import check_choice, check_whole
from flow.connectors.files.file_list import LATE_FILES
from flow.connectors.files.file_planning import Cuts, FileOrder, Piece
from flow.connectors.files.file_source import FileSource, Paths
from flow.connectors.files.filesystems import File
from flow.connectors.files.line_ranges import Block, LineCuts, LineRange, too_long
from flow.connectors.formats.columns import Schema, as_schema
from flow.connectors.formats.line_parsers import (
    JsonColumnParser,
    JsonObjectParser,
    LineParser,
    ParsedItems,
    check_json_types,
    sift,
    utf8_problem,
)
from flow.connectors.source import BadInput, Batch, Invalid, OnInvalid
from flow.durations import Duration
from flow.errors import cut_text

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
        check_choice("on_invalid", self.on_invalid, get_args(OnInvalid))
        check_whole("bytes_per_epoch", self.bytes_per_epoch, 1)

    @property
    @override
    def units_per_epoch(self) -> int:
        return self.bytes_per_epoch

    @override
    def cuts(self) -> Cuts:
        return LineCuts()


def read_lines(lines: LineRange, parser: LineParser) -> Iterator[Batch]:
    """Parse the lines of a range."""
    for block in lines.blocks():
        if block.is_cut:
            number, beginning = lines.line_number(block.before), block.data.rstrip()
            yield Invalid([_bad_line(lines.file, number, beginning, too_long())])
            continue
        parsed = parser.parse(block.data)
        if parsed is not None:
            yield from batches(parsed)
        else:
            yield from _sift_numbered(lines, parser, _numbered(block, parser))


def read_numbered(
    lines: LineRange, parser: LineParser, numbered: Sequence[tuple[int, bytes]]
) -> Iterator[Batch]:
    """Parse lines of a range, none of them blank, each with its index in the range."""
    if not numbered:
        return
    parsed = parser.parse(_data(line for _, line in numbered), len(numbered))
    if parsed is not None:
        yield from batches(parsed)
    else:
        yield from _sift_numbered(lines, parser, numbered)


def _sift_numbered(
    lines: LineRange, parser: LineParser, numbered: Sequence[tuple[int, bytes]]
) -> Iterator[Batch]:
    for start in range(0, len(numbered), SIFTED):
        chunk = numbered[start : start + SIFTED]
        good, bad = sift(
            [line for _, line in chunk], lambda some: parser.parse(_data(some), len(some))
        )
        yield from (batch for part in _concatenated(good) for batch in batches(part))
        if bad:
            rejected = [(lines.line_number(chunk[index][0]), chunk[index][1]) for index in bad]
            yield Invalid(
                [_bad_line(lines.file, at, line, parser.reason(line)) for at, line in rejected]
            )


def batches(parsed: ParsedItems) -> Iterator[Batch]:
    """Cut parsed items into batches of at most `ROWS` items."""
    if isinstance(parsed, list):
        for start in range(0, len(parsed), ROWS):
            yield parsed[start : start + ROWS]
    else:
        yield from (batch for batch in parsed.to_batches(max_chunksize=ROWS) if batch.num_rows)


def _bad_line(file: File, number: int, line: bytes, reason: str) -> BadInput:
    text = cut_text(line.decode(errors="replace"), TEXT_LENGTH)
    return BadInput(f"{file}, line {number}", text, reason)


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


def _concatenated(parts: list[ParsedItems]) -> list[ParsedItems]:
    """Return many small parts as one part; an empty list for no parts."""
    if not parts:
        return []
    if isinstance(parts[0], list):
        return [[item for part in parts for item in part]]
    return [pa.concat_tables(parts).combine_chunks()]


@dataclass(frozen=True, repr=False)
class TextSource(LineSource[str]):
    r"""Source of the lines of text files; each item is a line as `str`, without its line end.

    Lines end with ``\n`` or ``\r\n``; the last line may end with the file. Empty lines are items. A
    byte order mark is skipped. Files that end in ``.gz``, ``.bz2`` or ``.zst`` are decompressed,
    each by one task. Items are ordered by file, see `order`, and by line in the file.

    Args:
        path: a file, a directory (all files below it), a glob (``*``, ``?``, ``[abc]``, and ``**``
            for any directories), or a list of these; on this machine or as a URI that
            `pyarrow.fs.FileSystem.from_uri` takes, such as ``s3://bucket/logs``, where ``?``
            starts options. Names that start with ``_`` or ``.`` are skipped, unless the path names
            them explicitly.
        on_invalid: what to do with a line that is not UTF-8.
        bytes_per_epoch: bytes that an epoch reads, at most. A compressed file is read in one epoch,
            whatever its size.
        follow: ``False`` lists the files once, as a run starts, and ends after the last. ``True``
            also reads files that appear later, and never ends. Each file is read once and must be
            complete when it appears: write it elsewhere, then move it into place.
        order: ``"sequence"`` reads one file after another, by path, as one source partition; use it
            for files that each hold a span of time, such as a file a day. ``"parallel"`` reads the
            files side by side, each as a source partition with event time of its own; use it for
            files that each hold one producer, such as a file a device. See
            ``docs/reference/files.md``.
        late_files: age up to which a new file is still read: how much older its modification time
            may be than that of the newest file. The source also remembers the name of a file that
            was read and removed for that long, so that the file is not read again if it comes back.
            An older file in a directory with removed files is logged and not read.

    Raises:
        SourceError: when the flow runs: a path matches no file, or a file cannot be read or has
            changed since it was listed.

    >>> TextSource("logs/*.log", bytes_per_epoch=1_000_000).bounded
    True
    """

    @override
    def item_type(self) -> type:
        return str

    @override
    def read_piece(
        self, filesystem: Any, piece: Piece, fields: frozenset[str] | None
    ) -> Iterator[Batch]:
        return read_lines(LineRange(filesystem, piece), _TextParser())


class _TextParser(LineParser):
    def parse(self, data: bytes, count: int | None = None) -> ParsedItems | None:  # noqa: ARG002
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return None
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        return text.split("\n")[:-1]

    def reason(self, line: bytes) -> str:
        return utf8_problem(line) or "not a line of text"


@dataclass(frozen=True, repr=False)
class JsonLinesSource(LineSource[Any]):
    """Source of files with one JSON value on each line.

    With a `schema` the items are records in columns. They have exactly the columns of the schema:
    other fields are ignored, and a missing field is null. Without a schema each item is the result
    of `json.loads`, usually a `dict`. Columns are several times faster.

    A line is bad if it is not UTF-8, not JSON, or not an object that fits the schema. Types are not
    converted, except that a whole number fits a float. Times and dates are ISO 8601 text, with an
    offset if the type of the column has a time zone, and without an offset otherwise. An object
    that has the field of a column twice is bad too; without a schema, the last value counts, as in
    Python. Blank lines are skipped.

    Args:
        path: a file, a directory, a glob or a URI, or a list of these. See `TextSource`, also for
            compressed files and the order of items.
        schema: the columns, as a `pyarrow.Schema` or a mapping of names to pyarrow types.
        on_invalid: what to do with a bad line.
        bytes_per_epoch: bytes that an epoch reads, at most; a compressed file is read in one epoch.
        follow: ``True`` also reads files that appear during the run, and never ends. Each file must
            be complete when it appears.
        order: ``"sequence"`` reads one file after another, for files that each hold a span of time;
            ``"parallel"`` reads the files side by side, for files that each hold one producer. See
            ``docs/reference/files.md``.
        late_files: how much older than the newest file a new file may be, by modification time;
            an older one may be skipped, with a warning. See `TextSource`.

    Raises:
        SourceError: when the flow runs: a path matches no file, or a file cannot be read or has
            changed since it was listed.

    >>> import pyarrow as pa
    >>> source = JsonLinesSource("data/*.jsonl", schema={"origin": pa.string()})
    >>> source.schema.names
    ['origin']
    """

    _: KW_ONLY
    schema: Schema | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "schema", as_schema(self.schema))
        if self.schema is not None:
            check_json_types(self.schema)

    @override
    def item_type(self) -> type | None:
        return None if self.schema is None else dict

    @override
    def record_columns(self) -> Any:
        return self.schema

    @override
    def read_piece(
        self, filesystem: Any, piece: Piece, fields: frozenset[str] | None
    ) -> Iterator[Batch]:
        parser = JsonObjectParser() if self.schema is None else JsonColumnParser(self.schema)
        return read_lines(LineRange(filesystem, piece), parser)
