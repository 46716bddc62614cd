"""Items as columns, with the types of a schema or inferred types.

Without a schema, a column has the type of its first values, and the type is the same in all files.
A column that has only nulls and empty lists has no type, and is left out until it has a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from flow.checks import wrong_type
from flow.columns.arrow_types import array_of, is_instant, lossless_cast
from flow.connectors.formats.json_encoding import naive_problem, plain
from flow.connectors.sink import SinkBatch, to_record
from flow.errors import FlowBuildError, FlowTypeError, SinkError, first_line, shorten

EPOCH_COLUMN = "epoch"
"""Name of the column: the part of the name of an epoch's folder before the equals sign."""
METADATA_NAMES = {"window_id", "open_time", "close_time", "merged_ids"}
"""Names of the columns of a window's metadata."""
MERGED_ROWS = 20_000
"""Objects in a merged list, at least, so that few objects do not become columns of their own."""

_ARROW_READY = {type(None), bool, int, float, str, bytes, Decimal, date, time, timedelta}
_DIGITS = 38
_REFUSED = (pa.ArrowException, ValueError, TypeError, OverflowError)
FIX = "give the sink a schema, or map the items before the output"
"""Advice in errors of items that do not fit."""


def check_names(names: Iterable[object], step_id: str) -> None:
    """Raise a `SinkError` if a field has the name of the epoch column, in any case."""
    for name in names:
        if isinstance(name, str) and name.lower() == EPOCH_COLUMN:
            raise SinkError(
                f"step {step_id!r}: field {name!r} cannot be written: the directories of the "
                f"output make a column of the name {EPOCH_COLUMN!r}. Give the field another name"
            )


def check_no_epoch(argument: str, names: Iterable[str]) -> None:
    """Raise a `FlowBuildError` if an argument names a column like the epoch column."""
    for name in names:
        if name.lower() == EPOCH_COLUMN:
            raise FlowBuildError(
                f"{argument}: a column cannot be called {name!r}: the directories of the output "
                "make one of that name"
            )


Schema: TypeAlias = "pa.Schema | Mapping[str, pa.DataType]"
"""Columns in order: a `pyarrow.Schema`, or a mapping of names to pyarrow types."""


def as_schema(schema: object, argument: str = "schema") -> Any:
    """Return an argument as a `pyarrow.Schema`; ``None`` if it is ``None``.

    Raises:
        FlowTypeError: it is neither a schema nor a mapping of names to pyarrow types.
        FlowBuildError: it has no columns, or a name twice.
    """
    if schema is None:
        return None
    if isinstance(schema, Mapping):
        for name, kind in schema.items():
            if not isinstance(name, str) or not isinstance(kind, pa.DataType):
                raise FlowTypeError(
                    f"{argument} must map names to pyarrow types, such as {{'delay': pa.int64()}}, "
                    f"got {shorten(name)}: {shorten(kind)}"
                )
        schema = pa.schema(list(schema.items()))
    if not isinstance(schema, pa.Schema):
        raise wrong_type(
            f"{argument} must be a pyarrow.Schema or a mapping of names to pyarrow types", schema
        )
    names = schema.names
    if not names or len(set(names)) < len(names):
        raise FlowBuildError(f"{argument} must have columns, each name once, got {shorten(names)}")
    return schema


def merge_small(batches: Iterable[SinkBatch]) -> Iterator[SinkBatch]:
    """Merge small lists of objects and drop empty batches; the order of items stays."""
    merged: list[Any] = []
    for batch in batches:
        if isinstance(batch, list):
            merged += batch
        if merged and (len(merged) >= MERGED_ROWS or not isinstance(batch, list)):
            yield merged
            merged = []
        if not isinstance(batch, list) and batch.num_rows:
            yield batch
    if merged:
        yield merged


def as_columns(written: SinkBatch, schema: pa.Schema | None, step_id: str) -> pa.RecordBatch:
    """Lay items out as the columns of a schema, or of all fields if there is none.

    Raises:
        SinkError: the values of a field do not fit; the error names it.
    """
    if schema is None:
        rows = laid_out_rows(written, step_id)
        check_names(rows.schema.names, step_id)
        return rows
    if not isinstance(written, list):
        return fit(written, schema, step_id)
    records = [to_record(item) for item in written]
    columns = [
        column_of(name, [record.get(name) for record in records], kind, step_id)
        for name, kind in _types(schema).items()
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def typed_batches(
    batches: Iterable[SinkBatch], known: pa.Schema, step_id: str
) -> Iterator[pa.RecordBatch]:
    """Yield items as rows of the columns that are known so far, without columns of only nulls.

    Args:
        batches: the items.
        known: columns of earlier epochs, whose types are fixed.
        step_id: the output's step, for errors.

    Raises:
        SinkError: the values of a field do not fit, or no field has a value.
    """
    schema = known
    for written in merge_small(batches):
        rows = laid_out_rows(written, step_id)
        schema = widen(schema, known_columns(rows.schema), known.names, step_id)
        if not schema.names:
            raise SinkError(
                f"step {step_id!r}: no item has a value in any field, so the types of the "
                f"columns {shorten(rows.schema.names)} are not known: give the sink a schema"
            )
        yield fit(rows, schema, step_id, whole=True)


def laid_out_rows(written: SinkBatch, step_id: str) -> pa.RecordBatch:
    """Return items as columns of all their fields, with the types of their values."""
    if not isinstance(written, list):
        return written
    return inferred_columns([to_record(item) for item in written], step_id)


def inferred_columns(
    records: Sequence[dict[str, Any]],
    step_id: str,
    fix: str = FIX,
    problems: dict[str, SinkError] | None = None,
) -> pa.RecordBatch:
    """Return one or more records as columns of all their fields, with the types of their values.

    Args:
        records: the records; a field that a record lacks is null.
        step_id: the step, for errors.
        fix: the advice in errors.
        problems: takes the errors of fields, which are then left out; ``None`` to raise them.

    Raises:
        SinkError: the values of a field have no common type; the error names it.
    """
    names = _names_of(records, step_id)
    if not names:
        raise SinkError(f"step {step_id!r}: {shorten(records[0])} has no field to write: {fix}")
    columns = {}
    for name in names:
        try:
            columns[name] = column_of(name, [one.get(name) for one in records], None, step_id, fix)
        except SinkError as error:
            if problems is None:
                raise
            problems[name] = error
    merged = columns.get("merged_ids")
    # Empty lists have no type of their own, and most windows have merged no others.
    if merged is not None and merged.type == pa.list_(pa.null()) and names.keys() >= METADATA_NAMES:
        columns["merged_ids"] = merged.cast(pa.list_(pa.int64()))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def fit(
    batch: pa.RecordBatch, schema: pa.Schema, step_id: str, *, whole: bool = False
) -> pa.RecordBatch:
    """Return a batch with the columns of a schema: missing ones are null, others are dropped.

    Args:
        batch: the items.
        schema: the columns.
        step_id: the output's step, for the error.
        whole: True if no part of a struct may be dropped, and text may not be cast to another
            type; for inferred types.

    Raises:
        SinkError: the values of a field do not fit; the error names it.
    """
    columns = []
    for field in schema:
        if field.name not in batch.schema.names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(field.name)
        try:
            check_kind(column.type, field.type, whole=whole)
            columns.append(lossless_cast(column, field.type, is_exact=whole))
        except (pa.ArrowException, ValueError) as error:
            raise SinkError(
                f"step {step_id!r}: field {field.name!r} is {column.type} here, which does not fit "
                f"{field.type}, the type of its column: {error}. To fix it, {FIX}"
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def check_kind(found: Any, wanted: Any, *, whole: bool, path: str = "") -> None:
    """Raise if a cast between two types might change a value.

    Args:
        found: type of the values.
        wanted: type to cast to.
        whole: True if no part of a struct may be dropped, and text may not be cast to another type.
        path: position of the type in its column, as ``.outer.inner``.

    Raises:
        ValueError: the cast might change a value.
    """
    types = pa.types
    if found == wanted or types.is_null(found):
        return
    at = f"its part {path[1:]!r} is" if path else "that is"
    if types.is_dictionary(found) or types.is_dictionary(wanted):
        plain_kinds = [getattr(kind, "value_type", kind) for kind in (found, wanted)]
        check_kind(*plain_kinds, whole=whole, path=path)
    elif types.is_struct(found) and types.is_struct(wanted):
        for field in found:
            inner = f"{path}.{field.name}"
            number = wanted.get_field_index(field.name)
            if number >= 0:
                check_kind(field.type, wanted.field(number).type, whole=whole, path=inner)
            elif whole and _known(field.type) is not None:
                raise ValueError(f"its part {inner[1:]!r} is not among the parts of the column")
    elif _is_list(found) and _is_list(wanted):
        check_kind(found.value_type, wanted.value_type, whole=whole, path=path)
    elif types.is_map(found) and types.is_map(wanted):
        check_kind(found.key_type, wanted.key_type, whole=whole, path=path)
        check_kind(found.item_type, wanted.item_type, whole=whole, path=path)
    elif not _is_lossless(_family(found), _family(wanted), whole):
        raise ValueError(f"{at} {_family(found)}, and not {_family(wanted)}")


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_lossless(found: str, wanted: str, whole: bool) -> bool:
    """Return True if a cast from one family of types to the other may be lossless."""
    as_text = found == _TEXT or (found, wanted) == (_NUMBER, _TEXT)
    return found == wanted or (found, wanted) == (_DATE, _CLOCK_TIME) or (as_text and not whole)


def _family(kind: Any) -> str:
    if is_instant(kind):
        return "a time with a zone"
    families = (word for is_kind, word in _FAMILIES if is_kind(kind))
    return next(families, str(kind))


_TEXT, _NUMBER, _DATE, _CLOCK_TIME = "text", "a number", "a date", "a time without a zone"
_FAMILIES: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (pa.types.is_integer, _NUMBER),
    (pa.types.is_floating, _NUMBER),
    (pa.types.is_decimal, _NUMBER),
    (pa.types.is_string, _TEXT),
    (pa.types.is_large_string, _TEXT),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
    (pa.types.is_timestamp, _CLOCK_TIME),
    (pa.types.is_date, _DATE),
    (pa.types.is_time, "a time of day"),
    (pa.types.is_duration, "a duration"),
)


def known_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns whose types are known, without metadata, and with instants in UTC."""
    known = [(field.name, _known(field.type)) for field in schema]
    return pa.schema([(name, kind) for name, kind in known if kind is not None])


def widen(schema: pa.Schema, new: pa.Schema, fixed: Sequence[str], step_id: str) -> pa.Schema:
    """Return a schema extended by the columns of another one.

    Args:
        schema: the schema so far.
        new: columns to add.
        fixed: names of columns whose types cannot change any more.
        step_id: the output's step, for the error.

    Raises:
        SinkError: a column has two types in the schemas, and no type holds both.
    """
    types = _types(schema)
    for field in new:
        if field.name in fixed:
            continue
        both = [pa.schema([(field.name, types.get(field.name, field.type))]), pa.schema([field])]
        try:
            unified = pa.unify_schemas(both, promote_options="permissive")
        except pa.ArrowException as error:
            raise SinkError(
                f"step {step_id!r}: field {field.name!r} is {types[field.name]} in some items and "
                f"{field.type} in others: {FIX}"
            ) from error
        types[field.name] = _known(unified.field(field.name).type)
    return pa.schema(list(types.items()))


def _types(schema: pa.Schema) -> dict[str, Any]:
    return dict(zip(schema.names, schema.types, strict=True))


def _names_of(records: Iterable[dict[str, Any]], step_id: str) -> dict[str, None]:
    """Return the names of all fields, in order of first appearance."""
    names = {name: None for record in records for name in record}
    for name in names:
        if not isinstance(name, str):
            raise SinkError(
                f"step {step_id!r}: the names of fields must be text, got {type(name).__name__} "
                f"{shorten(name)}: map the items before the output"
            )
    return names


def column_of(name: str, values: list[Any], kind: Any, step_id: str, fix: str = FIX) -> Any:
    """Return the values of a field as a column.

    Args:
        name: the field.
        values: the values.
        kind: type of the column; ``None`` for the type of the values.
        step_id: the step, for errors.
        fix: the advice in errors.

    Raises:
        SinkError: a value does not fit without loss, or the values have no common type.
    """
    try:
        if not set(map(type, values)) <= _ARROW_READY:
            values = [plain(value) for value in values]
            _check_zones(name, values, kind, step_id)
        return _array(values, kind)
    except _REFUSED as error:
        raise SinkError(
            f"step {step_id!r}: field {name!r} {_problem(values, kind, error)}: {fix}"
        ) from error


def _array(values: list[Any], kind: Any) -> Any:
    if kind is None:
        return array_of(values)
    if {float, Decimal} <= set(map(type, values)):  # pyarrow infers no type for both.
        floats = [value if isinstance(value, float) else None for value in values]
        others = [None if isinstance(value, float) else value for value in values]
        return pc.coalesce(_array(floats, kind), _array(others, kind))
    try:
        # With the type as an argument, pyarrow would truncate 1.5 to the whole number 1.
        inferred = array_of(values)
        check_kind(inferred.type, kind, whole=False)
        return lossless_cast(inferred, kind)
    except OverflowError:  # PyArrow infers no type for a whole number beyond int64.
        return _array([value if value is None else Decimal(value) for value in values], kind)
    except _REFUSED:
        if "map<" not in str(kind):
            raise
    # pyarrow never infers a map from a dict.
    array = pa.array([_with_pairs(value, kind) for value in values], type=kind)
    _check_parts([value for value in values if value is not None], kind)
    return array


def _with_pairs(value: Any, kind: Any) -> Any:
    """Return a value whose maps are lists of tuples, which `plain` has made lists of lists.

    >>> _with_pairs([[["a", 1]], {"b": 2}], pa.list_(pa.map_(pa.string(), pa.int64())))
    [[('a', 1)], [('b', 2)]]
    """
    if pa.types.is_map(kind) and isinstance(value, (dict, list)):
        pairs = value.items() if isinstance(value, dict) else value
        if not any(isinstance(pair, str) for pair in pairs):
            return [(key, _with_pairs(part, kind.item_type)) for key, part in pairs]
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {field.name: _with_pairs(value.get(field.name), field.type) for field in kind}
    if _is_list(kind) and isinstance(value, list):
        return [_with_pairs(part, kind.value_type) for part in value]
    return value


def _check_parts(values: list[Any], kind: Any) -> None:
    """Raise unless the parts of maps, structs and lists fit their types."""
    if pa.types.is_map(kind):
        pairs = [pair for value in values for pair in dict(value).items()]
        _array([key for key, _ in pairs], kind.key_type)
        _array([part for _, part in pairs], kind.item_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            _array([value.get(field.name) for value in values], field.type)
    else:
        _array([part for value in values for part in value], kind.value_type)


def _check_zones(name: str, values: list[Any], kind: Any, step_id: str) -> None:
    """Raise a `SinkError` for a naive datetime, which pyarrow would treat as UTC."""
    times = [time for value in values for time in _times_in(value)]
    naive = [value for value in times if value.utcoffset() is None]
    zoned = kind is not None and is_instant(kind)
    if naive and (zoned or (kind is None and len(naive) < len(times))):
        raise SinkError(f"step {step_id!r}: field {name!r}: {naive_problem(naive[0].isoformat())}")


def _times_in(value: Any) -> Iterator[datetime]:
    if isinstance(value, datetime):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _times_in(part)


def _problem(values: list[Any], kind: Any, error: Exception) -> str:
    types = sorted({type(value).__name__ for value in values if value is not None})
    mixed = f"holds {' and '.join(types)}, which do not fit one column"
    if kind is None and len(types) > 1:
        return mixed
    for value in values:
        try:
            _array([value], kind)
        except _REFUSED:
            wanted = "written as a column" if kind is None else f"written as {kind}"
            return f"holds {type(value).__name__} {shorten(value)}, which cannot be {wanted}"
    return mixed if len(types) > 1 else f"cannot be written as a column, {first_line(error)}"


def _known(kind: Any) -> Any:
    """Return a type without the parts that hold only nulls; ``None`` if nothing is left."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_list(kind):
        inner = _known(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(kind):
        parts = [(field.name, _known(field.type)) for field in kind]
        parts = [(name, part) for name, part in parts if part is not None]
        return pa.struct(parts) if parts else None
    if pa.types.is_decimal(kind):
        # Later values may have more digits, so the precision is the greatest one of Spark.
        return pa.decimal128(_DIGITS, min(kind.scale, _DIGITS))
    return pa.timestamp(kind.unit, "UTC") if is_instant(kind) else kind
