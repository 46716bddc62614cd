"""Items as columns: types found or given, kept the same from file to file.

Where no schema is given, a column has the type that its first values have, and keeps it. What
holds nothing but nulls and empty lists has no type yet, and is left out until it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from flow.connectors.files.plain_values import check_names, naive_problem, plain
from flow.connectors.sink import Written, to_record
from flow.errors import SinkError, shorten

GATHERED = 20_000
"""Objects that are laid out as columns at a time, so that there are not many small pieces."""

_SIMPLE = {type(None), bool, int, float, str, bytes, Decimal, date, time, timedelta}
_REFUSED = (pa.ArrowException, ValueError, TypeError, OverflowError)
_HOW = "give the sink a schema, or map the items before the output"


def gathered(batches: Iterable[Written]) -> Iterator[Written]:
    """The same items, in order, with small lists put together and nothing empty."""
    waiting: list[Any] = []
    for batch in batches:
        if isinstance(batch, list):
            waiting += batch
        if waiting and (len(waiting) >= GATHERED or not isinstance(batch, list)):
            yield waiting
            waiting = []
        if not isinstance(batch, list) and batch.num_rows:
            yield batch
    if waiting:
        yield waiting


def as_columns(written: Written, schema: pa.Schema | None, step_id: str) -> pa.RecordBatch:
    """Lay items out as columns: those of the schema, or all that there are.

    Raises:
        SinkError: naming the field whose values do not fit.
    """
    if not isinstance(written, list):
        if schema is not None:
            return fit(written, schema, step_id)
        check_names(written.schema.names, step_id)
        return written
    records = [to_record(item) for item in written]
    kinds = _found_names(records, step_id) if schema is None else _types(schema)
    if schema is None:
        check_names(kinds, step_id)
    if not kinds:
        raise SinkError(f"step {step_id!r}: {shorten(written[0])} has no field to write: {_HOW}")
    columns = [
        _column(name, [record.get(name) for record in records], kind, step_id)
        for name, kind in kinds.items()
    ]
    fields = schema or [
        pa.field(name, column.type) for name, column in zip(kinds, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def fit(batch: pa.RecordBatch, schema: pa.Schema, step_id: str) -> pa.RecordBatch:
    """The columns of a schema: with its types, null where they are missing, no others."""
    columns = []
    for field in schema:
        if field.name not in batch.schema.names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowException, ValueError) as error:
            raise SinkError(
                f"step {step_id!r}: field {field.name!r} is {column.type} here, which does not fit "
                f"{field.type}, the type of its column: {error}. To fix it, {_HOW}"
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def known_columns(schema: pa.Schema) -> pa.Schema:
    """The columns of a schema whose types are known, without metadata, and with times in UTC."""
    known = [(field.name, _known(field.type)) for field in schema]
    return pa.schema([(name, kind) for name, kind in known if kind is not None])


def widened(schema: pa.Schema, new: pa.Schema, fixed: Sequence[str], step_id: str) -> pa.Schema:
    """A schema with the columns of another one added.

    Args:
        schema: the schema so far.
        new: what there is now.
        fixed: the names of columns whose type cannot change any more.
        step_id: the output's step, for the error.

    Raises:
        SinkError: a column has types that no type holds both of.
    """
    types = _types(schema)
    for field in new:
        if field.name in fixed:
            continue
        both = [pa.schema([(field.name, types.get(field.name, field.type))]), pa.schema([field])]
        try:
            one = pa.unify_schemas(both, promote_options="permissive")
        except pa.ArrowException as error:
            raise SinkError(
                f"step {step_id!r}: field {field.name!r} is {types[field.name]} in some items and "
                f"{field.type} in others: {_HOW}"
            ) from error
        types[field.name] = one.field(field.name).type
    return pa.schema(list(types.items()))


def _types(schema: pa.Schema) -> dict[str, Any]:
    return dict(zip(schema.names, schema.types, strict=True))


def _found_names(records: Iterable[dict[str, Any]], step_id: str) -> dict[str, None]:
    """All fields, in the order in which they turn up."""
    names = {name: None for record in records for name in record}
    for name in names:
        if not isinstance(name, str):
            raise SinkError(
                f"step {step_id!r}: the names of fields must be text, got {type(name).__name__} "
                f"{shorten(name)}: map the items before the output"
            )
    return names


def _column(name: str, values: list[Any], kind: Any, step_id: str) -> Any:
    if not set(map(type, values)) <= _SIMPLE:
        values = [plain(value) for value in values]
        _check_zones(name, values, kind, step_id)
    try:
        return _array(values, kind)
    except _REFUSED as error:
        raise SinkError(
            f"step {step_id!r}: field {name!r} {_problem(values, kind)}: {_HOW}"
        ) from error


def _array(values: list[Any], kind: Any) -> Any:
    if kind is None:
        return pa.array(values)
    try:
        # Given a type at once, pyarrow would cut 1.5 to the whole number 1.
        return pa.array(values).cast(kind)
    except _REFUSED:
        if pa.types.is_nested(kind):
            return pa.array(values, type=kind)
        raise


def _check_zones(name: str, values: list[Any], kind: Any, step_id: str) -> None:
    """Raise where pyarrow would take a naive datetime for UTC."""
    times = [value for value in values if isinstance(value, datetime)]
    naive = [value for value in times if value.utcoffset() is None]
    zoned = kind is not None and pa.types.is_timestamp(kind) and kind.tz is not None
    if naive and (zoned or (kind is None and len(naive) < len(times))):
        raise SinkError(f"step {step_id!r}: field {name!r}: {naive_problem(naive[0].isoformat())}")


def _problem(values: list[Any], kind: Any) -> str:
    if kind is None:
        types = sorted({type(value).__name__ for value in values if value is not None})
        if len(types) > 1:
            return f"holds {' and '.join(types)}, which do not fit one column"
    for value in values:
        try:
            _array([value], kind)
        except _REFUSED:
            wanted = "written as a column" if kind is None else f"written as {kind}"
            return f"holds {type(value).__name__} {shorten(value)}, which cannot be {wanted}"
    return "cannot be written as a column"


def _known(kind: Any) -> Any:
    """A type without its parts that hold nulls only; ``None`` when nothing is left."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_list(kind):
        inner = _known(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(kind):
        parts = [(field.name, _known(field.type)) for field in kind]
        parts = [(name, part) for name, part in parts if part is not None]
        return pa.struct(parts) if parts else None
    return _in_utc(kind)


def _in_utc(kind: Any) -> Any:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return kind
