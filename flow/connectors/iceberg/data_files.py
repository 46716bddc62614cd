"""Data files of an Iceberg table: how they are written, replaced by an upsert, and read."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flow.connectors.files.parquet_source import parquet_file, read_rows
from flow.connectors.formats.columns import fit
from flow.connectors.formats.partition_columns import LONGEST_NAME, groups_of
from flow.connectors.formats.pushdown import groups_with
from flow.connectors.iceberg.table import COMPACT, arrow_columns
from flow.connectors.lakehouse.lake_sink import DELETED
from flow.errors import SinkError

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionKey
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata

    from flow.columns.predicate import ColumnPredicate

_MEMORY = 128 * 2**20
"""Bytes of rows in memory after which their files are written."""

_VALUES = 200
"""Values of a key column by which files are chosen, at most; pyiceberg looks at no more."""

_OLD, _NEW = "_flow_old_row", "_flow_new_row"


def write_data_files(
    io: FileIO, metadata: TableMetadata, rows: Iterable[pa.RecordBatch], step_id: str
) -> Iterator[DataFile]:
    """Write rows as data files of a table, one or more for each partition.

    Args:
        io: access to the table's files.
        metadata: the table.
        rows: record batches of columns of the table; those that a batch lacks are null.
        step_id: the output's step, for errors.
    """
    schema, names = metadata.schema(), (f"{uuid.uuid4()}-{n}.parquet" for n in itertools.count())
    columns = arrow_columns(schema)
    parts: dict[tuple[Any, ...], list[pa.RecordBatch]] = {}

    def files() -> Iterator[DataFile]:
        for values, batches in parts.items():
            yield _write_file(io, metadata, next(names), values, pa.Table.from_batches(batches))
        parts.clear()

    size = 0
    for batch in rows:
        fitted = fit(batch, columns, step_id, whole=True)
        _check_required(metadata, fitted, step_id)
        for values, part in _partitioned(metadata, fitted):
            parts.setdefault(values, []).append(part)
        size += fitted.nbytes
        if size >= _MEMORY:
            yield from files()
            size = 0
    yield from files()


def _write_file(
    io: FileIO, metadata: TableMetadata, name: str, values: tuple[Any, ...], rows: pa.Table
) -> DataFile:
    """Write a data file with the values of its partition, and return what a manifest has of it.

    ``write_file`` of pyiceberg does the same, but makes empty lists of nulls in a column of lists
    of structs.
    """
    from pyiceberg.io.fileformat import FileFormatFactory
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.table.locations import load_location_provider
    from pyiceberg.typedef import Record

    schema, key = metadata.schema(), _key_of(metadata, values)
    provider = load_location_provider(metadata.location, metadata.properties)
    path = provider.new_data_location(name, key)
    if max(len(part.encode()) for part in path.split("/")) > LONGEST_NAME:
        path = provider.new_data_location(name)  # Readers take no value from a path.
    output = io.new_output(path)
    model = FileFormatFactory.get(FileFormat.PARQUET)
    with model.create_writer(output, schema, metadata.properties) as writer:
        writer.write(rows.cast(schema_to_pyarrow(schema)))
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=key.partition if key else Record(),
        file_size_in_bytes=len(output),
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **writer.result().to_serialized_dict(),
    )


def _check_required(metadata: TableMetadata, rows: pa.RecordBatch, step_id: str) -> None:
    for one in metadata.schema().fields:
        if one.required and rows.column(one.name).null_count:
            raise SinkError(
                f"step {step_id!r}: column {one.name!r} of the table is required, and a row has "
                "no value for it: map the items before the output"
            )


def _partitioned(
    metadata: TableMetadata, rows: pa.RecordBatch
) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Yield the rows of each partition, with the values of its fields."""
    spec, schema = metadata.spec(), metadata.schema()
    if not spec.fields:
        yield (), rows
        return
    keys = []
    for one in spec.fields:
        first, *rest = (schema.find_column_name(one.source_id) or "").split(".")
        whole = ".".join([first, *rest])
        if whole in rows.schema.names:
            column = rows.column(whole)
        else:
            column = pc.struct_field(rows.column(first), rest)
        keys.append(_transformed(one.transform, schema.find_type(one.source_id), column))
    yield from groups_of(rows, keys, rows.schema.names)


def _transformed(transform: Any, kind: Any, column: Any) -> Any:
    """Return the values of a partition field, as pyiceberg has them in memory."""
    # The transform over columns needs a package more, and the one over values is as fast here.
    encoded = column.dictionary_encode()
    values = encoded.dictionary
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if pa.types.is_date(values.type) else pa.int64())
    changed = pa.array(map(transform.transform(kind), values.to_pylist()))
    return changed.take(encoded.indices)


def _key_of(metadata: TableMetadata, values: tuple[Any, ...]) -> PartitionKey | None:
    from pyiceberg.partitioning import PartitionFieldValue, PartitionKey

    spec = metadata.spec()
    pairs = [PartitionFieldValue(*pair) for pair in zip(spec.fields, values, strict=True)]
    return PartitionKey(pairs, spec, metadata.schema()) if pairs else None


# --- upserts -------------------------------------------------------------------------------------


def replaced_files(
    table: Table, metadata: TableMetadata, rows: pa.Table, key: Sequence[str], step_id: str
) -> tuple[list[DataFile], list[DataFile]]:
    """Write the files of an upsert, and return those to remove from the table and those to add.

    A file with a row whose key comes again is written anew: the new row takes the place of the row.

    Args:
        table: the table.
        metadata: the table, with columns that the same commit adds.
        rows: a row for each key, with the table's columns and `DELETED`.
        key: the columns that identify a row.
        step_id: the output's step, for errors.
    """
    is_left = ~rows.column(DELETED).to_numpy()
    rows = rows.drop_columns([DELETED])
    removed, added = list[Any](), list[Any]()

    def write(part: pa.Table) -> None:
        added.extend(write_data_files(table.io, metadata, part.to_batches(), step_id))

    for task in table.scan(row_filter=_files_with(rows, key)).plan_files():
        if task.delete_files:
            raise SinkError(f"step {step_id!r}: Iceberg table has files of deleted rows: {COMPACT}")
        same = _same_keys(_rows_of(table, metadata, task, key), rows, key)
        if not same.num_rows:
            continue
        old, new = (np.unique(same.column(name).to_numpy()) for name in (_OLD, _NEW))
        whole = _rows_of(table, metadata, task, rows.column_names)
        is_kept = np.ones(whole.num_rows, bool)
        is_kept[old] = False
        corrected = new[is_left[new]]
        is_left[new] = False
        removed.append(task.file)
        write(pa.concat_tables([whole.filter(pa.array(is_kept)), rows.take(corrected)]))
    write(rows.filter(pa.array(is_left)))
    return removed, added


def _rows_of(
    table: Table, metadata: TableMetadata, task: FileScanTask, names: Sequence[str]
) -> pa.Table:
    """Return columns of the rows of a file, in order."""
    schema = selected(metadata.schema(), names)
    given = partition_values(metadata, task.file)
    rows = list(read_data_file(table, task.file.file_path, schema, given=given))
    return pa.Table.from_batches(rows, arrow_columns(schema))


def _same_keys(old: pa.Table, new: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the pairs of the numbers of rows in two tables that have one key."""
    # By numbers, as Arrow takes a name that begins with a period for a path.
    names = list(map(str, range(len(key))))
    sides = [
        side.select(list(key))
        .rename_columns(names)
        .append_column(name, pa.array(np.arange(side.num_rows)))
        for side, name in ((old, _OLD), (new, _NEW))
    ]
    return sides[0].join(sides[1], names, join_type="inner")


def _files_with(rows: pa.Table, key: Sequence[str]) -> BooleanExpression:
    """Return a filter that is true for files that may have a key of some rows."""
    from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, In, LessThanOrEqual

    found: BooleanExpression = AlwaysTrue()
    types = pa.types
    for name in key:
        kind = rows.schema.field(name).type
        if not (types.is_integer(kind) or types.is_string(kind) or types.is_temporal(kind)):
            continue
        values = rows.column(name).unique()
        if len(values) <= _VALUES:
            found = And(found, In(name, values.to_pylist()))
        elif len(values):
            ends = pc.min_max(values).as_py()
            between = And(GreaterThanOrEqual(name, ends["min"]), LessThanOrEqual(name, ends["max"]))
            found = And(found, between)
    return found


# --- reading -------------------------------------------------------------------------------------


def selected(schema: Schema, names: Sequence[str]) -> Schema:
    """Return columns of a schema, in the order of their names."""
    from pyiceberg.schema import Schema

    return Schema(*(schema.find_field(name) for name in names))


def partition_values(metadata: TableMetadata, file: DataFile) -> dict[str, Any]:
    """Return the values of columns by which the files are divided, by the ids of the columns.

    Files that were not written as those of Iceberg may lack these columns.
    """
    fields = metadata.specs()[file.spec_id].fields
    return {
        str(one.source_id): value
        for one, value in zip(fields, file.partition, strict=True)
        if str(one.transform) == "identity" and isinstance(value, (str, int, float))
    }


def _has_same_names(predicate: ColumnPredicate, file: Schema, schema: Schema) -> bool:
    """Return True if no column that a predicate names is another one in a file, by its id."""
    from pyiceberg.schema import index_by_name

    ids, wanted = index_by_name(file), index_by_name(schema)
    return all(ids.get(path, wanted.get(path)) == wanted.get(path) for path in predicate.paths)


def scalars_of(schema: Schema, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by the ids of their columns, as scalars by the names of a schema's columns."""
    columns = arrow_columns(schema)
    return {
        one.name: pa.scalar(given[str(one.field_id)], columns.field(one.name).type)
        for one in schema.fields
        if str(one.field_id) in given
    }


def read_data_file(
    table: Table,
    path: str,
    schema: Schema,
    start: int = 0,
    end: int | None = None,
    given: Mapping[str, Any] | None = None,
    wanted: ColumnPredicate | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield rows of a data file with the columns of a schema; those that it lacks are null.

    Args:
        table: the table.
        path: the file.
        schema: the columns, which are found by their ids.
        start: number of the first row.
        end: number after the last row; ``None`` for all.
        given: values of columns that the file lacks; see `partition_values`.
        wanted: a predicate; row groups that have no rows for which it is true may be left out.
    """
    from pyiceberg.io.pyarrow import pyarrow_to_schema
    from pyiceberg.schema import prune_columns
    from pyiceberg.types import ListType, MapType

    from flow.connectors.iceberg.projection import project

    columns = arrow_columns(schema)
    leaves = {
        number
        for number in schema.field_ids
        if not isinstance(schema.find_type(number), (ListType, MapType))
    }
    with table.io.new_input(path).open() as stream:
        parquet = parquet_file(stream)
        whole = pyarrow_to_schema(
            parquet.schema_arrow,
            table.name_mapping(),
            downcast_ns_timestamp_to_us=True,
            format_version=table.format_version,
        )
        inside = prune_columns(whole, leaves, select_full_types=False)
        # A file that has none of the columns still says how many rows there are.
        names = [one.name for one in inside.fields] or parquet.schema_arrow.names[:1]
        last = parquet.metadata.num_rows if end is None else end
        groups = None
        if wanted is not None and _has_same_names(wanted, whole, schema):
            groups = groups_with(wanted, stream, scalars_of(schema, given or {}))
        for rows in read_rows(parquet, start, last, names, groups):
            yield project(rows, inside, schema, given or {}).cast(columns)
