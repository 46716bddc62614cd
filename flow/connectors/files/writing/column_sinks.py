"""Sinks of columns: Parquet, and CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from io import BufferedReader
from itertools import groupby, islice
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from typing_extensions import override

from flow.connectors.files.writing.dictionaries import dictionary_columns
from flow.connectors.files.writing.directory_sink import DirectorySink
from flow.connectors.files.writing.epoch_directory import Marker, Part, read_schema
from flow.connectors.formats.columns import as_columns, fit, known_columns, merge_small, widen
from flow.connectors.formats.csv_text import check_delimiter, csv_cells, reorder
from flow.connectors.formats.epoch_column import EPOCH_COLUMN
from flow.connectors.formats.schema import Schema, as_schema
from flow.connectors.sink import WriteContext, Written
from flow.errors import FlowBuildError, SinkError, shorten

GROUP_ROWS = 131_072
"""Rows of a Parquet row group: a group is written once it has as many."""
GROUP_BYTES = 64 << 20
"""Bytes of a row group in memory: a group is written once it has as many."""
_RECORDS = 10_000  # CSV records that are reordered at a time.


@dataclass(frozen=True, repr=False)
class ParquetSink(DirectorySink[Any]):
    """Sink of items in Parquet files.

    Records in columns are written as they are; other items become rows by
    `flow.connectors.sink.to_record`, see `JsonLinesSink`. See `TextSink` for the files in the
    directory.

    Without a `schema`, the first epoch with values in a column fixes its type. Within that epoch
    types are widened, such as from whole numbers to floats; decimals keep the scale of the first
    ones. A later value that does not fit without loss is an error, and so is a nested field that
    the column lacks. A column with only nulls or empty lists is not written until it has a value.
    Readers that take the columns from the first file, such as pyarrow, then miss the column: pass a
    schema if values are rare.

    Args:
        path: the directory; see `TextSink`.
        if_exists: ``"error"``, ``"replace"`` or ``"append"``, for a directory with content; see
            `TextSink`.
        schema: the columns to write, as a `pyarrow.Schema` or a mapping of names to pyarrow types.
            A missing field is null, other fields are ignored, and text is parsed as the type.

    Raises:
        SinkError: when the flow runs: the directory cannot be used, or an item cannot be written,
            such as a value that does not fit its column, or a field called ``epoch``.

    >>> import pyarrow as pa
    >>> ParquetSink("out/", schema={"key": pa.string(), "flights": pa.int64()}).schema.names
    ['key', 'flights']
    """

    _: KW_ONLY
    schema: Schema | None = None

    suffix = ".parquet"
    lays_out = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "schema", _as_columns(self.schema))

    @override
    def write_parts(self, context: WriteContext, batches: Iterator[Written]) -> list[Part]:
        parts = []
        for schema, same in groupby(self._batches(context.step_id, batches), lambda b: b.schema):
            parts += self._write_file(context, schema, same)
        return parts

    @override
    def align_parts(self, parts: list[Part], marker: Marker) -> tuple[list[Part], Marker]:
        if self.schema is not None:
            return parts, marker
        before = marker.schema or pa.schema([])
        schemas = [read_schema(part.schema) for part in parts]
        schema = before
        for part_schema in schemas:
            schema = widen(schema, part_schema, before.names, str(marker.step))
        aligned = []
        for part, part_schema in zip(parts, schemas, strict=True):
            aligned += [part] if part_schema == schema else self._rewrite(part, schema)
        return aligned, replace(marker, schema=schema)

    def _batches(self, step_id: str, batches: Iterator[Written]) -> Iterator[pa.RecordBatch]:
        """Yield the items in the columns to write."""
        if self.schema is not None:
            for written in merge_small(batches):
                yield as_columns(written, self.schema, step_id)
            return
        schema = self.known_schema() or pa.schema([])
        fixed = schema.names
        for written in merge_small(batches):
            rows = as_columns(written, None, step_id)
            schema = widen(schema, known_columns(rows.schema), fixed, step_id)
            if not schema.names:
                raise SinkError(
                    f"step {step_id!r}: no item has a value in any field, so the types of the "
                    f"columns {shorten(rows.schema.names)} are not known: give the sink a schema"
                )
            yield fit(rows, schema, step_id, whole=True)

    def _write_file(
        self, context: WriteContext, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> list[Part]:
        with self.part_file(context) as file:
            groups = _row_groups(batches)
            group = next(groups, None)
            chosen = True if group is None else dictionary_columns(group)
            with pq.ParquetWriter(file.stream, schema, use_dictionary=chosen) as writer:
                while group is not None:
                    writer.write_table(group, row_group_size=group.num_rows)
                    file.rows += group.num_rows
                    group = next(groups, None)
        return file.parts(schema)

    def _rewrite(self, part: Part, schema: pa.Schema) -> list[Part]:
        with self.filesystem().open_input_file(part.path) as stream:
            batches = pq.ParquetFile(stream).iter_batches()
            step_id = part.context.step_id
            rows = (fit(batch, schema, step_id, whole=True) for batch in batches)
            return self._write_file(part.context, schema, rows)


@dataclass(frozen=True, repr=False)
class CsvSink(DirectorySink[Any]):
    """Sink of items in CSV files with a header.

    Records in columns are written as they are; other items become rows by
    `flow.connectors.sink.to_record`, see `JsonLinesSink`. See `TextSink` for the files in the
    directory.

    All files have the same columns in the same order; without a `schema`, those of the first items.
    A file of the first epoch with another order of fields is rewritten. Null is an empty cell, and
    text is in quotes; aware datetimes are RFC 3339 text; lists, dicts and other nested values are
    JSON.

    Args:
        path: the directory; see `TextSink`.
        if_exists: ``"error"``, ``"replace"`` or ``"append"``, for a directory with content; see
            `TextSink`.
        schema: the columns to write; see `ParquetSink`.
        delimiter: the character between cells.

    Raises:
        SinkError: when the flow runs: the directory cannot be used, or an item cannot be written,
            such as a naive datetime, bytes, a field that the first items lack, or a field called
            ``epoch``.

    >>> CsvSink("out/", delimiter=";").delimiter
    ';'
    """

    _: KW_ONLY
    schema: Schema | None = None
    delimiter: str = ","

    suffix = ".csv"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "schema", _as_columns(self.schema))
        check_delimiter(self.delimiter)

    @override
    def write_parts(self, context: WriteContext, batches: Iterator[Written]) -> list[Part]:
        names: list[str] = []
        with self.part_file(context) as file:
            for batch in self._batches(context.step_id, batches):
                names = batch.schema.names
                options = pyarrow.csv.WriteOptions(
                    include_header=not file.rows, delimiter=self.delimiter
                )
                cells = csv_cells(batch, context.step_id)
                pyarrow.csv.write_csv(cells, file.stream, options)
                file.rows += batch.num_rows
        return file.parts(_all_text(names))

    @override
    def align_parts(self, parts: list[Part], marker: Marker) -> tuple[list[Part], Marker]:
        if self.schema is not None:
            return parts, marker
        schemas = [read_schema(part.schema) for part in parts]
        first = marker.schema or schemas[0]
        aligned = []
        for part, schema in zip(parts, schemas, strict=True):
            if sorted(schema.names) != sorted(first.names):
                raise SinkError(
                    f"step {marker.step!r}: some items have the fields {shorten(first.names)}, "
                    f"others {shorten(schema.names)}: give the sink a schema, or map the items "
                    "before the output"
                )
            aligned += [part] if schema == first else self._rewrite(part, schema, first)
        return aligned, replace(marker, schema=first)

    def _rewrite(self, part: Part, before: pa.Schema, after: pa.Schema) -> list[Part]:
        """Write a file again with its columns in another order."""
        indexes = [before.names.index(name) for name in after.names]
        step_id = part.context.step_id
        with (
            self.filesystem().open_input_stream(part.path, compression=None) as stream,
            self.part_file(part.context) as file,
        ):
            records = reorder(BufferedReader(stream), indexes, self.delimiter, step_id)
            while chunk := b"".join(islice(records, _RECORDS)):
                file.stream.write(chunk)
            file.rows = part.rows
        return file.parts(after)

    def _batches(self, step_id: str, batches: Iterator[Written]) -> Iterator[pa.RecordBatch]:
        """Yield the items in the columns to write; only names matter without a schema."""
        known = None if self.schema is not None else self.known_schema()
        for written in merge_small(batches):
            rows = as_columns(written, self.schema, step_id)
            known = known or _all_text(rows.schema.names)
            new = [name for name in rows.schema.names if name not in known.names]
            if new and self.schema is None:
                raise SinkError(
                    f"step {step_id!r}: field {new[0]!r} is not among the columns that the files "
                    f"have, {shorten(known.names)}: give the sink a schema, or map the items "
                    "before the output"
                )
            yield rows if self.schema is not None else _in_order(rows, known.names)


def _in_order(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    missing = pa.nulls(batch.num_rows, pa.string())
    columns = [batch.column(n) if n in batch.schema.names else missing for n in names]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _all_text(names: Iterable[str]) -> pa.Schema:
    return pa.schema([(name, pa.string()) for name in names])


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield tables of consecutive batches, one for each row group."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        rows = sum(member.num_rows for member in group)
        if rows >= GROUP_ROWS or sum(member.nbytes for member in group) >= GROUP_BYTES:
            yield pa.Table.from_batches(group)
            group = []
    if group:
        yield pa.Table.from_batches(group)


def _as_columns(schema: object) -> Any:
    checked = as_schema(schema)
    for name in [] if checked is None else checked.names:
        if name.lower() == EPOCH_COLUMN:
            raise FlowBuildError(
                f"schema: a column cannot be called {name!r}: the directories of the output make "
                "one of that name"
            )
    return checked
