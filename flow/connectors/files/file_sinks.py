"""Sinks of files by format: text, JSON lines, Parquet and CSV."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from io import BufferedReader
from itertools import groupby, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from typing_extensions import override

from flow.columns.record_batches import rows_as_dicts
from flow.connectors.files.epoch_directory import DirectorySink, Part
from flow.connectors.formats.columns import (
    Schema,
    as_columns,
    as_schema,
    check_names,
    check_no_epoch,
    fit,
    merge_small,
    typed_batches,
    widen,
)
from flow.connectors.formats.csv_text import check_delimiter, csv_cells, reorder
from flow.connectors.formats.json_encoding import json_text
from flow.connectors.formats.partition_columns import (
    as_names,
    check_partition_types,
    directory_of,
    groups_of,
)
from flow.connectors.sink import SinkBatch, WriteContext, to_record
from flow.errors import FlowBuildError, SinkError, shorten

GROUP_ROWS = 131_072
"""Rows of a Parquet row group: a group is written once it has as many."""
GROUP_BYTES = 64 << 20
"""Bytes of a row group in memory: a group is written once it has as many."""
_HELD_BYTES = 4 * GROUP_BYTES
"""Bytes of rows of directories that a task holds, before it writes files."""
_RECORDS = 10_000  # CSV records that are reordered at a time.
_SAMPLE = 4_096
"""Rows of each of the two samples of a column."""
_LEAST_ROWS = 4 * _SAMPLE
"""The rows from which a choice pays."""


@dataclass(frozen=True, repr=False)
class TextSink(DirectorySink[str]):
    """Sink of `str` items in text files, one line each; an item with line ends takes several lines.

    The output is a directory. Each epoch with items adds a directory such as
    ``epoch=00000012-1a2b3c4d``, named by the number of the epoch and a short name of the run, with
    a file for each task that had items. An epoch becomes visible as a whole, and exactly once: a
    replay of the epoch replaces its files. Readers such as Spark, pandas and pyarrow read the whole
    directory, with an additional column ``epoch``. (Object stores such as S3 cannot rename a
    directory: there the files of an epoch appear one after another.)

    Args:
        path: the directory, new or empty; on this machine or as a URI that
            `pyarrow.fs.FileSystem.from_uri` takes, such as ``hdfs://host:8020/out``.
        if_exists: what to do when the directory has content: ``"error"``; ``"replace"`` deletes
            the output of another run, but never files that no flow wrote; ``"append"`` writes
            beside any content. A run that continues from a checkpoint always continues its output.

    Raises:
        SinkError: when the flow runs: the directory cannot be used, or an item cannot be written.

    >>> TextSink("out/").if_exists
    'error'
    """

    suffix = ".txt"

    @override
    def write_parts(self, context: WriteContext, batches: Iterator[SinkBatch]) -> list[Part]:
        with self.part_file(context) as file:
            for batch in merge_small(batches):
                file.stream.write(_text_lines(batch, context.step_id))
                file.rows += len(batch)
        return file.parts()


@dataclass(frozen=True, repr=False)
class JsonLinesSink(DirectorySink[Any]):
    """Sink of items in files with one JSON object on each line.

    `flow.connectors.sink.to_record` defines the fields of the object: those of a mapping or
    dataclass; of a ``(key, value)`` pair, ``key`` and the fields of the value. In fields,
    dataclasses become objects, tuples become lists, and sets become sorted lists; aware datetimes
    become RFC 3339 text, with ``Z`` for UTC, durations become seconds, and decimals become text.
    See `TextSink` for the files in the directory.

    Args:
        path: the directory; see `TextSink`.
        if_exists: ``"error"``, ``"replace"`` or ``"append"``, for a directory with content; see
            `TextSink`.

    Raises:
        SinkError: when the flow runs: the directory cannot be used, or an item cannot be written,
            such as a naive datetime, a float that is not finite, or a field called ``epoch``.

    >>> JsonLinesSink("out/", if_exists="replace")
    JsonLinesSink(path='out/', if_exists='replace')
    """

    suffix = ".jsonl"

    @override
    def write_parts(self, context: WriteContext, batches: Iterator[SinkBatch]) -> list[Part]:
        with self.part_file(context) as file:
            for batch in merge_small(batches):
                rows = batch if isinstance(batch, list) else rows_as_dicts(batch)
                lines = [_json_line(row, context.step_id) for row in rows]
                file.stream.write(b"\n".join([*lines, b""]))
                file.rows += len(rows)
        return file.parts()


def _json_line(item: Any, step_id: str) -> bytes:
    """Return an item as a line of JSON, without a line end.

    Raises:
        SinkError: a field has no form in JSON; the error names it.
    """
    record = to_record(item)
    check_names(record, step_id)
    try:
        return json_text(record).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SinkError(f"step {step_id!r}: {_json_problem(record)}") from error


def _json_problem(record: Mapping[Any, Any]) -> str:
    for name, value in record.items():
        try:
            json_text({name: value}).encode()
        except (TypeError, ValueError, RecursionError) as error:
            what = f"{type(value).__name__} {shorten(value)}"
            return f"field {shorten(name)} ({what}) {_why(value, error)}"
    return f"{shorten(record)} cannot be written as JSON"


def _why(value: Any, error: Exception) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "has no form in JSON: map it to None or to text before the output"
    return f"cannot be written as JSON: {error}. Map it to text, numbers, lists or dicts before"


def _text_lines(batch: SinkBatch, step_id: str) -> bytes:
    if not isinstance(batch, list):
        raise SinkError(
            f"step {step_id!r}: TextSink writes text, and these items are records with the columns "
            f"{shorten(batch.schema.names)}: map them to text, or write JSON lines, CSV or Parquet"
        )
    for item in batch:
        if not isinstance(item, str):
            raise SinkError(
                f"step {step_id!r}: TextSink writes text, got {type(item).__name__} "
                f"{shorten(item)}: map the items to text before the output"
            )
    try:
        return "\n".join([*batch, ""]).encode()
    except UnicodeEncodeError as error:
        raise SinkError(f"step {step_id!r}: text cannot be written as UTF-8: {error}") from error


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
            A missing field is null, other fields are ignored, and text is parsed as the type. A
            value that the type would change is an error, except that a float becomes the nearest
            one of a narrower type.
        partition_by: columns whose values name directories in that of the epoch, such as
            ``epoch=.../dt=2026-11-26/shop=4/``, in the layout of Hive, by which readers skip files:
            columns of text, whole numbers, booleans or dates. The files lack them.

    Raises:
        SinkError: when the flow runs: the directory cannot be used, or an item cannot be written,
            such as a value that does not fit its column, or a field called ``epoch``.

    >>> import pyarrow as pa
    >>> ParquetSink("out/", schema={"key": pa.string(), "flights": pa.int64()}).schema.names
    ['key', 'flights']
    """

    _: KW_ONLY
    schema: Schema | None = None
    partition_by: str | Sequence[str] = ()

    suffix = ".parquet"
    lays_out = True
    NAMES_FIELDS = ("partition_by",)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "schema", _as_columns(self.schema))
        object.__setattr__(self, "partition_by", as_names(self.partition_by))
        if self.schema is not None and self.partition_by:
            check_partition_types(self.schema, self.partition_by, "schema", FlowBuildError)

    @override
    def write_parts(self, context: WriteContext, batches: Iterator[SinkBatch]) -> list[Part]:
        parts: list[Part] = []
        rows = self._batches(context.step_id, batches)
        if self.partition_by:
            return self._write_partitions(context, rows)
        for schema, same in groupby(rows, lambda batch: batch.schema):
            parts += self._write_file(context, schema, same)
        return parts

    def _write_partitions(
        self, context: WriteContext, batches: Iterator[pa.RecordBatch]
    ) -> list[Part]:
        """Write a file for each directory, and more of them after so many bytes."""
        parts: list[Part] = []
        held: dict[tuple[pa.Schema, str], list[pa.RecordBatch]] = {}
        size = 0
        for batch in batches:
            check_partition_types(batch.schema, self.partition_by, f"step {context.step_id!r}")
            keys = [batch.column(name) for name in self.partition_by]
            for values, rows in groups_of(batch, keys, self._in_files(batch.schema).names):
                directory = directory_of(self.partition_by, values, context.step_id)
                held.setdefault((batch.schema, directory), []).append(rows)
            size += batch.nbytes
            if size >= _HELD_BYTES:
                parts += self._write_held(context, held)
                size = 0
        return parts + self._write_held(context, held)

    def _write_held(
        self, context: WriteContext, held: dict[tuple[pa.Schema, str], list[pa.RecordBatch]]
    ) -> list[Part]:
        """Write rows to files, and remove them from the argument."""
        parts: list[Part] = []
        for (schema, directory), rows in held.items():
            parts += self._write_file(context, schema, rows, directory)
        held.clear()
        return parts

    def _in_files(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns that files have, of those of the items."""
        if not self.partition_by:
            return schema
        return pa.schema([column for column in schema if column.name not in self.partition_by])

    @override
    def common_schema(
        self, schemas: list[pa.Schema], known: pa.Schema | None, step_id: str
    ) -> pa.Schema | None:
        if self.schema is not None:
            return None
        schema = before = known or pa.schema([])
        for new in schemas:
            schema = widen(schema, new, before.names, step_id)
        return schema

    @override
    def rewrite(self, part: Part, before: pa.Schema, after: pa.Schema) -> list[Part]:
        with self.filesystem().open_input_file(part.path) as stream:
            batches = pq.ParquetFile(stream).iter_batches()
            step_id = part.context.step_id
            if self.partition_by:
                check_partition_types(after, self.partition_by, f"step {step_id!r}")
            columns = self._in_files(after)
            rows = (fit(batch, columns, step_id, whole=True) for batch in batches)
            return self._write_file(part.context, after, rows, part.directory)

    def _batches(self, step_id: str, batches: Iterator[SinkBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the items in the columns to write."""
        if self.schema is not None:
            for written in merge_small(batches):
                yield as_columns(written, self.schema, step_id)
            return
        for rows in typed_batches(batches, self.known_schema() or pa.schema([]), step_id):
            check_names(rows.schema.names, step_id)
            yield rows

    def _write_file(
        self,
        context: WriteContext,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        directory: str = "",
    ) -> list[Part]:
        with self.part_file(context) as file:
            file.rows = write_parquet(file.stream, self._in_files(schema), batches).num_rows
        return file.parts(schema, directory)


@dataclass(frozen=True, repr=False)
class CsvSink(DirectorySink[Any]):
    """Sink of items in CSV files with a header.

    Records in columns are written as they are; other items become rows by
    `flow.connectors.sink.to_record`, see `JsonLinesSink`. See `TextSink` for the files in the
    directory.

    All files have the same columns in the same order; without a `schema`, those of the first items.
    A file of the first epoch with another order of fields is rewritten. Null is an empty cell, in
    quotes if it is the only column, as readers skip blank lines. Text is in quotes; aware datetimes
    are RFC 3339 text; lists, dicts and other nested values are JSON.

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
    lays_out = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "schema", _as_columns(self.schema))
        check_delimiter(self.delimiter)

    @override
    def write_parts(self, context: WriteContext, batches: Iterator[SinkBatch]) -> list[Part]:
        names: list[str] = []
        with self.part_file(context) as file:
            for batch in self._batches(context.step_id, batches):
                names = batch.schema.names
                options = pyarrow.csv.WriteOptions(
                    include_header=not file.rows, delimiter=self.delimiter
                )
                cells = csv_cells(batch, self.delimiter, context.step_id)
                pyarrow.csv.write_csv(cells, file.stream, options)
                file.rows += batch.num_rows
        return file.parts(_all_text(names))

    @override
    def common_schema(
        self, schemas: list[pa.Schema], known: pa.Schema | None, step_id: str
    ) -> pa.Schema | None:
        if self.schema is not None:
            return None
        first = known or schemas[0]
        for schema in schemas:
            if sorted(schema.names) != sorted(first.names):
                raise SinkError(
                    f"step {step_id!r}: some items have the fields {shorten(first.names)}, "
                    f"others {shorten(schema.names)}: give the sink a schema, or map the items "
                    "before the output"
                )
        return first

    @override
    def rewrite(self, part: Part, before: pa.Schema, after: pa.Schema) -> list[Part]:
        indexes = [before.names.index(name) for name in after.names]
        with (
            self.filesystem().open_input_stream(part.path, compression=None) as stream,
            self.part_file(part.context) as file,
        ):
            records = reorder(BufferedReader(stream), indexes, self.delimiter)
            while chunk := b"".join(islice(records, _RECORDS)):
                file.stream.write(chunk)
            file.rows = part.rows
        return file.parts(after)

    def _batches(self, step_id: str, batches: Iterator[SinkBatch]) -> Iterator[pa.RecordBatch]:
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


def write_parquet(stream: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Any:
    """Write batches as a Parquet file, and return the metadata of the file.

    Args:
        stream: an open file.
        schema: the columns, also those of the batches.
        batches: the rows; may be an iterator, of which one row group is in memory.

    Returns:
        A `pyarrow.parquet.FileMetaData`.
    """
    groups, written = _row_groups(batches), list[Any]()
    group = next(groups, None)
    chosen = True if group is None else dictionary_columns(group)
    with pq.ParquetWriter(
        stream, schema, use_dictionary=chosen, metadata_collector=written
    ) as writer:
        while group is not None:
            writer.write_table(group, row_group_size=group.num_rows)
            group = next(groups, None)
    return written[0]


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


def dictionary_columns(rows: pa.Table) -> bool | list[str]:
    """Return the names of columns whose values repeat; True to encode all columns.

    A dictionary of values that hardly repeat takes three times as long to write as the values, and
    more space. Files with nested columns, or with few rows, have a dictionary for each column.

    Args:
        rows: the first rows of the file.
    """
    if rows.num_rows < _LEAST_ROWS or any(pa.types.is_nested(kind) for kind in rows.schema.types):
        return True
    names = rows.schema.names
    repeating = [name for at, name in enumerate(names) if not _mostly_differ(rows.column(at))]
    return True if len(repeating) == len(names) else repeating


def _mostly_differ(column: pa.ChunkedArray) -> bool:
    """Return True if more than 19 in 20 sampled values are distinct.

    The first rows show values that repeat in a row, and rows drawn from the whole column show those
    that come again later. The seed is fixed, so that an epoch run again writes the same file.
    """
    if pa.types.is_dictionary(column.type) or pa.types.is_boolean(column.type):
        return False
    drawn = np.random.default_rng(0).choice(len(column), _SAMPLE, replace=False, shuffle=False)
    samples = (column.slice(0, _SAMPLE), column.take(pa.array(np.sort(drawn))))
    return all(20 * len(sample.unique()) > 19 * _SAMPLE for sample in samples)


def _as_columns(schema: object) -> Any:
    checked = as_schema(schema)
    check_no_epoch("schema", [] if checked is None else checked.names)
    return checked
