"""Reading JSON lines, as columns where a schema says which, or as the objects that JSON gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

from typing_extensions import override

from flow.connectors.files.line_source import LineSource, read_lines
from flow.connectors.files.lines import LineRange
from flow.connectors.files.planning import Piece
from flow.connectors.formats.json_decoding import (
    JsonColumnParser,
    JsonObjectParser,
    check_json_types,
)
from flow.connectors.formats.schema import Schema, as_schema
from flow.connectors.source import Batch


@dataclass(frozen=True, repr=False)
class JsonLinesSource(LineSource[Any]):
    """Read files with one JSON value a line.

    With a `schema` the items are records, in columns: exactly the columns of the schema, whatever
    else the objects hold is left out; a field that is missing or ``null`` is null. Without one each
    item is what `json.loads` gives, most often a `dict`; columns are several times faster.

    A bad line is one that is not UTF-8 or not JSON, or not an object that fits the schema: types
    are not converted, except that a whole number fits a float. Times and dates are ISO 8601 text;
    with an offset if the column's type has a time zone, and without if it has none. Blank lines are
    skipped.

    Args:
        path: see `TextSource`, also for the order of items, and for compressed files.
        schema: the columns, as a `pyarrow.Schema` or a mapping of names to pyarrow types.
        on_invalid: what to do with a bad line.
        bytes_per_epoch: how many bytes an epoch reads, at most; see `TextSource`.
        follow: whether to go on with the files that appear later; see `TextSource`.
        order: ``"sequence"`` for files that are read one after another, ``"parallel"`` for files
            that are read side by side; see `TextSource`.
        late_files: how much later than others a file may appear; see `TextSource`.

    Raises:
        SourceError: when the flow runs; see `TextSource`.

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
    def read_piece(self, filesystem: Any, piece: Piece) -> Iterator[Batch]:
        parser = JsonObjectParser() if self.schema is None else JsonColumnParser(self.schema)
        return read_lines(LineRange(filesystem, piece), piece, parser)
