"""Writing columns: Parquet, and CSV."""

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

from flow.connectors.files.directory_sink import DirectorySink
from flow.connectors.files.epoch_directory import Marker, Part, read_schema
from flow.connectors.formats.columns import as_columns, fit, known_columns, merge_small, widen
from flow.connectors.formats.csv_text import check_delimiter, csv_cells, reorder
from flow.connectors.formats.epoch_column import EPOCH_COLUMN
from flow.connectors.formats.schema import Schema, as_schema
from flow.connectors.sink import WriteContext, Written
from flow.errors import FlowBuildError, SinkError, shorten

GROUP_ROWS = 131_072
"""Rows in a Parquet row group, about."""
GROUP_BYTES = 64 << 20
"""Bytes of memory that a row group takes before it is written, about."""
_RECORDS = 10_000


@dataclass(frozen=True, repr=False)
class ParquetSink(DirectorySink[Any]):
    """Write items to Parquet files, records in columns straight away.

    Other items become rows as `flow.connectors.sink.to_record` says; see `JsonLinesSink`.

    Without a `schema`, each column has the type that its first values have, in whatever epoch those
    come, and keeps it; types are only widened within the first epoch, such as from whole numbers to
    floats. A value that would have to become another one to fit is an error, and so is one with a
    part that the column does not have. Decimals keep as many places as the first ones have. What
    holds nothing but nulls or empty lists is left out of the files until there is a value. Readers
    that take the columns from the first file, as pyarrow does, then do not see such a column: give
    a schema when values are rare. See `TextSink` for the files that are made.

    Args:
        path: the directory, see `TextSink`.
        if_exists: what to do when something is there, see `TextSink`.
        schema: the columns to write, as a `pyarrow.Schema` or a mapping of names to pyarrow types:
            exactly these, null where an item lacks them; what else an item holds is left out, and
            text is read as what the type asks for.

    Raises:
        SinkError: when the flow runs; see `TextSink`. Values that do not fit the type of their
            column are among what cannot be written, and so is a field called ``epoch``.

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
        object.__setattr__(self, "schema", _checked_columns(self.schema))

    @override
    def write_parts(self, context: WriteContext, batches: Iterator[Written]) -> list[Part]:
        parts = []
        for schema, same in groupby(self._shaped(context.step_id, batches), lambda b: b.schema):
            parts += self._write_file(context, schema, same)
        return parts

    @override
    def settled(self, parts: list[Part], marker: Marker) -> tuple[list[Part], Marker]:
        if self.schema is not None:
            return parts, marker
        before = marker.schema or pa.schema([])
        schemas = [read_schema(part.schema) for part in parts]
        schema = before
        for one in schemas:
            schema = widen(schema, one, before.names, str(marker.step))
        agreeing = []
        for part, one in zip(parts, schemas, strict=True):
            agreeing += [part] if one == schema else self._rewritten(part, schema)
        return agreeing, replace(marker, schema=schema)

    def _shaped(self, step_id: str, batches: Iterator[Written]) -> Iterator[pa.RecordBatch]:
        """The items in the columns to write."""
        if self.schema is not None:
            for written in merge_small(batches):
                yield as_columns(written, self.schema, step_id)
            return
        schema = self.known_schema() or pa.schema([])
        fixed = schema.names
        for written in merge_small(batches):
            found = as_columns(written, None, step_id)
            schema = widen(schema, known_columns(found.schema), fixed, step_id)
            if not schema.names:
                raise SinkError(
                    f"step {step_id!r}: no item has a value in any field, so the types of the "
                    f"columns {shorten(found.schema.names)} are not known: give the sink a schema"
                )
            yield fit(found, schema, step_id, whole=True)

    def _write_file(
        self, context: WriteContext, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> list[Part]:
        with self.part_file(context) as file, pq.ParquetWriter(file.stream, schema) as writer:
            for group in _row_groups(batches):
                writer.write_table(group, row_group_size=group.num_rows)
                file.rows += group.num_rows
        return file.parts(schema)

    def _rewritten(self, part: Part, schema: pa.Schema) -> list[Part]:
        with self.filesystem().open_input_file(part.path) as stream:
            batches = pq.ParquetFile(stream).iter_batches()
            step_id = part.context.step_id
            fitted = (fit(batch, schema, step_id, whole=True) for batch in batches)
            return self._write_file(part.context, schema, fitted)


@dataclass(frozen=True, repr=False)
class CsvSink(DirectorySink[Any]):
    """Write items to CSV files with a header, records in columns straight away.

    Other items become rows as `flow.connectors.sink.to_record` says; see `JsonLinesSink`. All files
    have the same columns in the same order; without a `schema`, those that the first items have.
    Where a worker has met the fields in another order, its file of the first epoch is written anew.
    Null is an empty cell, and text is in quotes; aware datetimes are RFC 3339 text, and lists,
    dicts and the like are JSON. See `TextSink` for the files that are made.

    Args:
        path: the directory, see `TextSink`.
        if_exists: what to do when something is there, see `TextSink`.
        schema: the columns to write; see `ParquetSink`.
        delimiter: the character between cells.

    Raises:
        SinkError: when the flow runs; see `TextSink`. Naive datetimes, bytes, a field that the
            first items do not have, and one called ``epoch`` are among what cannot be written.

    >>> CsvSink("out/", delimiter=";").delimiter
    ';'
    """

    _: KW_ONLY
    schema: Schema | None = None
    delimiter: str = ","

    suffix = ".csv"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "schema", _checked_columns(self.schema))
        check_delimiter(self.delimiter)

    @override
    def write_parts(self, context: WriteContext, batches: Iterator[Written]) -> list[Part]:
        names: list[str] = []
        with self.part_file(context) as file:
            for batch in self._shaped(context.step_id, batches):
                names = batch.schema.names
                options = pyarrow.csv.WriteOptions(
                    include_header=not file.rows, delimiter=self.delimiter
                )
                cells = csv_cells(batch, context.step_id)
                pyarrow.csv.write_csv(cells, file.stream, options)
                file.rows += batch.num_rows
        return file.parts(_all_text(names))

    @override
    def settled(self, parts: list[Part], marker: Marker) -> tuple[list[Part], Marker]:
        if self.schema is not None:
            return parts, marker
        schemas = [read_schema(part.schema) for part in parts]
        first = marker.schema or schemas[0]
        agreeing = []
        for part, schema in zip(parts, schemas, strict=True):
            if sorted(schema.names) != sorted(first.names):
                raise SinkError(
                    f"step {marker.step!r}: some items have the fields {shorten(first.names)}, "
                    f"others {shorten(schema.names)}: give the sink a schema, or map the items "
                    "before the output"
                )
            agreeing += [part] if schema == first else self._rewritten(part, schema, first)
        return agreeing, replace(marker, schema=first)

    def _rewritten(self, part: Part, found: pa.Schema, wanted: pa.Schema) -> list[Part]:
        """A file whose columns have another order, with those of the other files."""
        places = [found.names.index(name) for name in wanted.names]
        step_id = part.context.step_id
        with (
            self.filesystem().open_input_stream(part.path, compression=None) as stream,
            self.part_file(part.context) as file,
        ):
            records = reorder(BufferedReader(stream), places, self.delimiter, step_id)
            while some := b"".join(islice(records, _RECORDS)):
                file.stream.write(some)
            file.rows = part.rows
        return file.parts(wanted)

    def _shaped(self, step_id: str, batches: Iterator[Written]) -> Iterator[pa.RecordBatch]:
        """The items in the columns to write; their types do not matter in CSV."""
        known = None if self.schema is not None else self.known_schema()
        for written in merge_small(batches):
            found = as_columns(written, self.schema, step_id)
            known = known or _all_text(found.schema.names)
            new = [name for name in found.schema.names if name not in known.names]
            if new and self.schema is None:
                raise SinkError(
                    f"step {step_id!r}: field {new[0]!r} is not among the columns that the files "
                    f"have, {shorten(known.names)}: give the sink a schema, or map the items "
                    "before the output"
                )
            yield found if self.schema is not None else _in_order(found, known.names)


def _in_order(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    missing = pa.nulls(batch.num_rows, pa.string())
    columns = [batch.column(n) if n in batch.schema.names else missing for n in names]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _all_text(names: Iterable[str]) -> pa.Schema:
    return pa.schema([(name, pa.string()) for name in names])


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches put together, as many as make a good row group."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        rows = sum(one.num_rows for one in waiting)
        if rows >= GROUP_ROWS or sum(one.nbytes for one in waiting) >= GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def _checked_columns(schema: object) -> Any:
    checked = as_schema(schema)
    for name in [] if checked is None else checked.names:
        if name.lower() == EPOCH_COLUMN:
            raise FlowBuildError(
                f"schema: a column cannot be called {name!r}: the directories of the output make "
                "one of that name"
            )
    return checked
