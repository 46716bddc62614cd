"""Source of JSON lines: records in columns with a schema, Python objects without a schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

from typing_extensions import override

from flow.connectors.files.reading.line_ranges import LineRange
from flow.connectors.files.reading.line_source import LineSource, read_lines
from flow.connectors.files.reading.pieces import Piece
from flow.connectors.formats.json_decoding import (
    JsonColumnParser,
    JsonObjectParser,
    check_json_types,
)
from flow.connectors.formats.schema import Schema, as_schema
from flow.connectors.source import Batch


@dataclass(frozen=True, repr=False)
class JsonLinesSource(LineSource[Any]):
    """Source of files with one JSON value on each line.

    With a `schema` the items are records in columns. They have exactly the columns of the schema:
    other fields are ignored, and a missing field is null. Without a schema each item is the result
    of `json.loads`, usually a `dict`. Columns are several times faster.

    A line is bad if it is not UTF-8, not JSON, or not an object that fits the schema. Types are not
    converted, except that a whole number fits a float. Times and dates are ISO 8601 text, with an
    offset if the type of the column has a time zone, and without an offset otherwise. Blank lines
    are skipped.

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
        return read_lines(LineRange(filesystem, piece), piece, parser)
