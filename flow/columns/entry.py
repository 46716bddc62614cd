"""Columns as they enter a flow: each name once, in types that all steps process."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flow.columns.arrow_types import with_leaves
from flow.errors import StepError

_known: dict[str, tuple[pa.Schema, list[tuple[int, Any, Any]]]] = {}
"""The last schema of each step in this process, and its columns to cast: number, type, and type
with microseconds. A comparison of schemas takes a hundredth of a hash."""


def entering(columns: Any, step_id: str) -> Any:
    """Return columns that a source, a lookup or a user's function made, as steps process them.

    Views of text and bytes become plain, and run-end encoded columns are decoded. Nanoseconds
    become microseconds in a column where that changes no time.

    Args:
        columns: a record batch or a table.
        step_id: the step through which the columns enter.

    Raises:
        StepError: two columns, or two parts of a struct, have one name, or steps cannot process
            the type of a column; the error names it.

    >>> views = pa.record_batch({"code": pa.array(["JFK"], pa.string_view())})
    >>> entering(views, "flights").schema.field("code").type
    DataType(string)
    """
    known = _known.get(step_id)
    if known is None or not known[0].equals(columns.schema):
        known = _known[step_id] = (columns.schema, _changes(columns.schema, step_id))
    for number, kind, in_micros in known[1]:
        field, column = columns.schema.field(number), columns.column(number)
        try:
            if pa.types.is_run_end_encoded(field.type):
                column = pc.run_end_decode(column)
            column = column.cast(kind)
        except pa.ArrowNotImplementedError as error:
            raise _refusal(field, step_id) from error
        with contextlib.suppress(pa.ArrowInvalid):  # The column has parts of a microsecond.
            column = column.cast(in_micros)
        columns = columns.set_column(number, field.with_type(column.type), column)
    return columns


def _changes(schema: pa.Schema, step_id: str) -> list[tuple[int, Any, Any]]:
    _check_names(schema, step_id)
    changes = []
    for number, field in enumerate(schema):
        is_encoded = pa.types.is_run_end_encoded(field.type)
        try:
            kind = with_leaves(field.type.value_type if is_encoded else field.type, _plain)
        except (LookupError, OSError, ValueError) as error:
            raise _refusal(field, step_id) from error
        in_micros = with_leaves(kind, _microseconds)
        if in_micros != field.type:
            changes.append((number, kind, in_micros))
    return changes


def _check_names(fields: pa.Schema | list[pa.Field], step_id: str, path: str = "") -> None:
    names = [field.name for field in fields]
    for field in fields:
        if names.count(field.name) > 1:
            problem = f"{names.count(field.name)} fields have the name {path + field.name!r}"
            raise StepError(step_id, f"{problem}: rename them where the columns are made")
        parts = [field.type.field(number) for number in range(field.type.num_fields)]
        _check_names(parts, step_id, f"{path}{field.name}.")


def _refusal(field: pa.Field, step_id: str) -> StepError:
    problem = f"field {field.name!r} is {field.type}, which steps cannot process"
    return StepError(step_id, f"{problem}: cast it where the columns are made, or leave it out")


_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def _plain(leaf: Any) -> Any:
    """Return the type that steps process for a leaf, or for a list that is no plain list.

    Raises:
        LookupError, OSError, ValueError: there is none.
    """
    types = pa.types
    if types.is_dictionary(leaf):
        values = with_leaves(leaf.value_type, _plain)
        return pa.dictionary(leaf.index_type, values, leaf.ordered)
    if types.is_large_list(leaf):
        return pa.large_list(leaf.value_field.with_type(with_leaves(leaf.value_type, _plain)))
    parts = [leaf.field(number).type for number in range(leaf.num_fields)]
    is_other = types.is_interval(leaf) or types.is_run_end_encoded(leaf)
    if is_other or any(with_leaves(part, _plain) != part for part in parts):
        raise ValueError(leaf)
    if types.is_timestamp(leaf):
        pa.array([0], leaf).to_pylist()  # The time zone may be unknown.
    return _PLAIN.get(leaf, leaf)


def _microseconds(leaf: Any) -> Any:
    is_nanos = pa.types.is_timestamp(leaf) and leaf.unit == "ns"
    return pa.timestamp("us", leaf.tz) if is_nanos else leaf
