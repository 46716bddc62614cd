"""Source of CSV: records in columns, with the types of a schema, or as text."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from io import StringIO
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from typing_extensions import override

from flow.checks import check_flag, checked_texts
from flow.columns.arrow_types import has_overflowed
from flow.connectors.files.file_planning import Cuts, Piece
from flow.connectors.files.line_ranges import BLOCK, LineCuts, LineRange
from flow.connectors.files.line_sources import LineSource, count_lines, read_lines, read_numbered
from flow.connectors.formats.columns import Schema, as_schema
from flow.connectors.formats.csv_text import check_delimiter
from flow.connectors.formats.line_parsers import LineParser, ParsedItems, is_utf8, utf8_problem
from flow.connectors.source import Batch
from flow.errors import FlowBuildError, SourceError, shorten


@dataclass(frozen=True, repr=False)
class CsvSource(LineSource[Any]):
    r"""Source of CSV files; the items are records in columns.

    With a `schema`, exactly its columns are read, with its types. Empty cells and cells with one of
    the `null_values` are null. Columns of text have no nulls: their cells are read literally, and
    an empty cell is empty text. Times are ISO 8601 text, with an offset if the type of the column
    has a time zone, and without an offset otherwise. Without a schema all columns are text.

    Cells may be quoted with ``"``, which is doubled inside a quoted cell. A line is bad if it is
    not UTF-8, has more or fewer cells than columns, has a cell that does not fit the schema, or has
    an unclosed quote. Empty lines are skipped.

    Args:
        path: a file, a directory, a glob or a URI, or a list of these. See `TextSource`, also for
            compressed files and the order of items.
        schema: the columns to read, as a `pyarrow.Schema` or a mapping of names to pyarrow types.
        delimiter: the character between cells.
        header: ``True`` if the first line of each file has the names of its columns. For files
            without a header: the names of all columns, or ``False`` to use those of the schema.
        null_values: texts that stand for null besides the empty one, such as ``("NA", "null")``.
        multiline: ``True`` if quoted cells may contain line ends. One task then reads a file, in
            one epoch; a cell has at most `csv.field_size_limit` characters; and the lines after an
            unclosed quote are part of the same bad line.
        on_invalid: what to do with a bad line.
        bytes_per_epoch: bytes that an epoch reads, at most; a file that is compressed, or read with
            `multiline`, is read in one epoch.
        follow: ``True`` also reads files that appear during the run, and never ends. Each file must
            be complete when it appears.
        order: ``"sequence"`` reads one file after another, for files that each hold a span of time;
            ``"parallel"`` reads the files side by side, for files that each hold one producer. See
            ``docs/reference/files.md``.
        late_files: how much older than the newest file a new file may be, by modification time;
            an older one may be skipped, with a warning. See `TextSource`.

    Raises:
        SourceError: when the flow runs: a path matches no file, the header of a file lacks a column
            of the schema, or a file cannot be read or has changed since it was listed.

    >>> import pyarrow as pa
    >>> CsvSource("data/*.csv", schema={"delay": pa.int64()}, null_values=["NA"]).null_values
    ('NA',)
    """

    _: KW_ONLY
    schema: Schema | None = None
    delimiter: str = ","
    header: bool | Sequence[str] = True
    null_values: Sequence[str] = ()
    multiline: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "schema", as_schema(self.schema))
        check_delimiter(self.delimiter)
        check_flag("multiline", self.multiline)
        if not isinstance(self.header, bool):
            object.__setattr__(
                self, "header", checked_texts("header must be a list of texts", self.header)
            )
            if not self.header:
                raise FlowBuildError("header must name at least one column, got ()")
            self._check_names("header", list(self.header), FlowBuildError)
        elif not self.header and self.schema is None:
            raise FlowBuildError(
                "header=False needs a schema, or name the columns: header=['origin', 'delay']"
            )
        null_values = checked_texts("null_values must be a list of texts", self.null_values)
        object.__setattr__(self, "null_values", null_values)
        if self.schema is not None:
            _check_types(self.schema)

    @override
    def cuts(self) -> Cuts:
        return LineCuts(is_whole=self.multiline)

    @override
    def item_type(self) -> type:
        return dict

    @override
    def record_columns(self) -> Any:
        return self.schema

    @override
    def read_piece(
        self, filesystem: Any, piece: Piece, fields: frozenset[str] | None
    ) -> Iterator[Batch]:
        names, skip = self._columns(filesystem, piece)
        if not names:
            return iter(())
        parser = _CsvParser(names, self.schema, self.delimiter, self.null_values)
        lines = LineRange(filesystem, piece, skip)
        if self.multiline:
            return _read_records(lines, parser, self.delimiter)
        return read_lines(lines, parser)

    def _columns(self, filesystem: Any, piece: Piece) -> tuple[list[str], int]:
        """Return the names of a file's columns, and the position after the header."""
        if not isinstance(self.header, bool):
            return list(self.header), 0
        if not self.header:
            return self._schema_names() or [], 0
        line, end = LineRange(filesystem, Piece(piece.file, 0, 0)).first_line(_CsvParser.blank)
        if not line:
            return [], end
        names = _header_names(piece, line, self.delimiter)
        self._check_names(f"the header of {piece.file}", names, SourceError)
        return names, end

    def _schema_names(self) -> list[str] | None:
        return self.schema.names if isinstance(self.schema, pa.Schema) else None

    def _check_names(self, what: str, names: list[str], error: type[Exception]) -> None:
        for name in self._schema_names() or names:
            if names.count(name) != 1:
                times = "does not name" if name not in names else "names more than once"
                raise error(f"{what} {times} column {name!r}: it names {shorten(names)}")


_IS_WHOLE = (pa.types.is_integer, pa.types.is_duration)
_HEXADECIMAL = r"^\s*[+-]?0[xX]"


class _CsvParser(LineParser):
    blank = b"\r"

    def __init__(
        self, names: Sequence[str], schema: Any, delimiter: str, null_values: Sequence[str]
    ) -> None:
        self._names = names
        self._schema = schema or pa.schema([(name, pa.string()) for name in names])
        self._delimiter = delimiter
        self._null_values = null_values
        # The parser appends a row of empty cells. An unclosed quote before this row makes the row
        # part of a cell.
        self._guard = b'""' + delimiter.encode() * (len(names) - 1) + b"\n"

    def parse(self, data: bytes, count: int | None = None) -> ParsedItems | None:
        rows = count_lines(data, self.blank) if count is None else count
        # pyarrow also ends a row at a lone carriage return, so such data is refused. Otherwise a
        # quoted line end can only reduce the number of rows: with as many rows as lines, each
        # row is a line.
        if (rows > 1 and data.count(b"\r") != data.count(b"\r\n")) or not is_utf8(data):
            return None
        try:
            if self._has_hexadecimal(data):
                return None
            table = self._read(data + self._guard)
            if table.num_rows != rows + 1 or self._has_overflow(data, table):
                return None
            return table.slice(0, rows).cast(self._schema)
        except (pa.ArrowInvalid, ValueError):
            return None

    def reason(self, line: bytes) -> str:
        problem = utf8_problem(line)
        if problem is not None:
            return problem
        try:
            cells = next(
                csv.reader(StringIO(line.decode(), ""), delimiter=self._delimiter, strict=True)
            )
        except (csv.Error, StopIteration):
            return "a quote that is not closed, or a line end in a quoted cell"
        if len(cells) != len(self._names):
            return f"{len(cells)} cells where there are {len(self._names)} columns"
        for field in self._schema:
            cell = cells[self._names.index(field.name)]
            alone = _CsvParser([field.name], pa.schema([field]), self._delimiter, self._null_values)
            if alone.parse(b'"' + cell.replace('"', '""').encode() + b'"\n') is None:
                return f"column {field.name!r} does not fit {field.type}: {shorten(cell)}"
        return "not a line of CSV"

    def _has_hexadecimal(self, data: bytes) -> bool:
        """Return True if a column of whole numbers has a cell such as ``0x10``."""
        if b"0x" not in data and b"0X" not in data:
            return False
        texts = self._read_as(pa.string(), self._names_of(_IS_WHOLE), data)
        matches = (pc.match_substring_regex(column, _HEXADECIMAL) for column in texts.values())
        return any(pc.any(match).as_py() for match in matches)

    def _has_overflow(self, data: bytes, table: pa.Table) -> bool:
        """Return True if Arrow has read a number as infinite, or as a decimal without high bits."""
        floats = self._names_of((pa.types.is_floating,))
        infinite = [name for name in floats if pc.any(pc.is_inf(table[name])).as_py()]
        for name, texts in self._read_as(pa.string(), infinite, data).items():
            if pc.any(
                pc.match_substring_regex(texts.filter(pc.is_inf(table[name])), "[0-9]")
            ).as_py():
                return True
        numbers = self._read_as(pa.float64(), self._names_of((pa.types.is_decimal,)), data)
        return any(has_overflowed(column, table[name]) for name, column in numbers.items())

    def _names_of(self, kinds: Sequence[Callable[[Any], bool]]) -> list[str]:
        return [one.name for one in self._schema if any(is_kind(one.type) for is_kind in kinds)]

    def _read_as(self, kind: Any, names: Sequence[str], data: bytes) -> dict[str, Any]:
        """Return columns as another type, by their names."""
        schema = pa.schema([(name, kind) for name in names])
        parser = _CsvParser(self._names, schema, self._delimiter, self._null_values)
        table = parser._read(data + self._guard) if names else schema.empty_table()
        return dict(zip(names, table.columns, strict=True))

    def _read(self, data: bytes) -> Any:
        # Columns are selected by index: a header may repeat names that are not in the schema.
        indexes = [str(self._names.index(name)) for name in self._schema.names]
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False,
                block_size=len(data) + 1,
                column_names=[str(index) for index in range(len(self._names))],
            ),
            parse_options=pyarrow.csv.ParseOptions(delimiter=self._delimiter),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict(zip(indexes, self._schema.types, strict=True)),
                include_columns=indexes,
                null_values=["", *self._null_values],
                strings_can_be_null=False,
            ),
        )
        return table.rename_columns(self._schema.names)


def _read_records(lines: LineRange, parser: LineParser, delimiter: str) -> Iterator[Batch]:
    """Parse records that may contain line ends, about `BLOCK` bytes at a time."""
    chunk: list[tuple[int, bytes]] = []
    size = 0
    for number, record in _records(lines, delimiter):
        if not parser.is_blank(record):
            chunk.append((number, record))
            size += len(record)
        if size >= BLOCK:
            yield from read_numbered(lines, parser, chunk)
            chunk, size = [], 0
    yield from read_numbered(lines, parser, chunk)


def _records(lines: LineRange, delimiter: str) -> Iterator[tuple[int, bytes]]:
    """Yield records without line ends, each with the index of its first line in the range."""
    record: list[bytes] = []

    def texts() -> Iterator[str]:
        for block in lines.blocks():
            if block.is_cut:
                raise lines.too_long()
            for line in block.data.split(b"\n")[:-1]:
                record.append(line)
                yield line.decode(errors="surrogateescape") + "\n"

    reader, before = csv.reader(texts(), delimiter=delimiter), 0
    while True:
        try:
            next(reader)
        except StopIteration:
            return
        except csv.Error:
            pass  # The record has an unclosed quote, and pyarrow refuses it.
        yield before, b"\n".join(record)
        before += len(record)
        record.clear()


def _header_names(piece: Piece, line: bytes, delimiter: str) -> list[str]:
    try:
        text = line.decode()
        return next(csv.reader([text.removesuffix("\r")], delimiter=delimiter, strict=True), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise SourceError(
            f"the header of {piece.file} cannot be read: {error}: {shorten(line)}"
        ) from error


def _check_types(schema: pa.Schema) -> None:
    for field in schema:
        try:
            _CsvParser([field.name], pa.schema([field]), ",", ()).parse(b"")
        except pa.ArrowNotImplementedError as error:
            raise FlowBuildError(
                f"schema: column {field.name!r} cannot be read from CSV as {field.type}"
            ) from error
