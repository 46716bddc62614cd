"""Arrow types: annotations, leaves, columns that enter a flow, columns of objects, lossless casts.

PyArrow ships no types, so a type checker of a user's code does not know its classes: it reports
public signatures that name one of them, and a union with one accepts every argument. For checkers
`RecordBatch` is ``Any``, and `Expression` is a protocol with a method that only expressions have;
at run time they are the classes of PyArrow.

Arrow checks its casts between whole numbers and times. It does not check those with floats: it
rounds a float to the scale of a decimal, and makes it infinite where a type ends. A decimal with
more digits than 128 bits hold becomes another number. Nor does PyArrow check the type that it finds
for objects: beside a date, a number and the hours of a datetime become days.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flow.columns.record_batches import as_objects
from flow.errors import StepError, first_line, shorten

if TYPE_CHECKING:
    RecordBatch: TypeAlias = Any

    class Expression(Protocol):
        """An expression over the columns of a record batch."""

        def is_valid(self) -> Any:
            """Return an expression that is true where this one is not null."""
            ...
else:
    RecordBatch = pa.RecordBatch
    Expression = pc.Expression


COMMON_TYPES = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
"""For types of Arrow that most other systems lack, types that hold the same values."""


def is_instant(kind: Any) -> bool:
    """Return True for the types of timestamps with a time zone."""
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def with_leaves(kind: Any, change: Callable[[Any], Any]) -> Any:
    """Return a type with `change` applied to each leaf of its structs, lists and maps, in order.

    >>> texts = pa.list_(pa.struct([("a", pa.string()), ("n", pa.int64())]))
    >>> str(with_leaves(texts, lambda leaf: pa.binary() if leaf == pa.string() else leaf))
    'list<item: struct<a: binary, n: int64>>'
    """
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(with_leaves(field.type, change)) for field in kind])
    if pa.types.is_map(kind):
        key = with_leaves(kind.key_type, change)
        return pa.map_(key, kind.item_field.with_type(with_leaves(kind.item_type, change)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(with_leaves(kind.value_type, change)))
    return change(kind)


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


_NUMBERS = (int, float, Decimal, np.integer, np.float32, np.float16)
_LISTS = (list, tuple)
_KINDS: tuple[Any, ...] = (
    *((bool, np.bool_), _NUMBERS, str, (bytes, bytearray, memoryview)),
    *(datetime, date, time, timedelta, _LISTS, Mapping),
)
"""Kinds of objects, each of which has column types of its own; a subclass comes before its base."""
_PLAIN_KINDS = frozenset(_KINDS[:4])
"""Kinds whose objects have no parts that columns lack."""


def array_of(values: Sequence[Any]) -> Any:
    """Return objects as a column of the type that PyArrow finds for them, with the same values.

    Raises:
        TypeError: the objects are of several kinds, or no column holds one of them as it is.
        pyarrow.ArrowException, OverflowError: the objects have no common type.

    >>> array_of([1, None, 0.5]).type
    DataType(double)
    """
    _check_kind(values)
    return pa.array(values)


def _check_kind(values: Sequence[Any]) -> None:
    """Raise a TypeError unless values, and their parts, are of one kind that a column keeps."""
    types = set(map(type, values)) - {type(None)}
    kinds = {next((kind for kind in _KINDS if issubclass(one, kind)), one) for one in types}
    if len(kinds) > 1:
        names = " and ".join(sorted(one.__name__ for one in types))
        raise TypeError(f"{names} do not fit one column")
    if kinds <= _PLAIN_KINDS or types <= {datetime, timedelta}:
        return
    present = [value for value in values if value is not None]
    if Mapping in kinds:
        for name in dict.fromkeys(chain.from_iterable(present)):
            _check_kind([value.get(name) for value in present])
    elif _LISTS in kinds:
        _check_kind(list(chain.from_iterable(present)))
    for value in present:
        if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
            raise TypeError(f"{value} has nanoseconds, which a column of objects has not")
        if isinstance(value, time) and value.tzinfo is not None:
            raise TypeError(f"{value} has a time zone, which a column of times has not")


_NOT_ZERO = r"^[^eE]*[1-9]"  # Text of a finite number other than zero: "inf" has no digits.


def lossless_cast(column: Any, kind: Any, *, is_exact: bool = False) -> Any:
    """Return a column as another type, with the same values.

    Args:
        column: the column.
        kind: the new type.
        is_exact: False to allow the nearest float of a narrower type, as for text.

    Raises:
        ValueError: a value would change, or has no form in the type; the error names the first.

    >>> lossless_cast(pa.array([0.25]), pa.decimal128(10, 2)).to_pylist()
    [Decimal('0.25')]
    >>> lossless_cast(pa.array([0.25, 0.125]), pa.decimal128(10, 2))
    Traceback (most recent call last):
    ValueError: value 0.125: Rescaling Decimal value would cause data loss
    """
    if column.type == kind:
        return column
    try:
        return _cast(column, kind, is_exact)
    except (pa.ArrowException, ValueError) as error:
        half = len(column) // 2
        for part in (column.slice(0, half), column.slice(half)) if half else ():
            lossless_cast(part, kind, is_exact=is_exact)  # Raises for the first value.
        value = ", ".join(map(shorten, as_objects(column.slice(0, 1))))
        raise ValueError(f"value {value}: {first_line(error)}") from None


def _cast(column: Any, kind: Any, is_exact: bool) -> Any:
    found, types = column.type, pa.types
    if types.is_null(found):
        return column.cast(kind)
    if types.is_dictionary(found) or types.is_dictionary(kind):
        plain = column.dictionary_decode() if types.is_dictionary(found) else column
        return _cast(plain, getattr(kind, "value_type", kind), is_exact).cast(kind)
    if types.is_nested(found):
        if types.is_map(found):  # A slice of maps has the parts of all, and Arrow casts them.
            column = column.take(pa.array(range(len(column))))
        for part, part_kind in _parts(column, kind):
            _cast(part, part_kind, is_exact)
        as_texts = with_leaves(found, lambda leaf: pa.string() if types.is_decimal(leaf) else leaf)
        return column.cast(as_texts).cast(kind)
    cast = _through_text(column, kind)
    if types.is_decimal(kind) and has_overflowed(column, cast):
        raise ValueError(f"{kind} has no room for its digits")
    is_kept = types.is_integer(found) and kind != pa.float16()
    if types.is_floating(kind) and not is_kept and _is_changed(column, cast, is_exact):
        raise ValueError(f"the cast of {found} to {kind} changes it")
    return cast


def _parts(column: Any, kind: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the parts of a struct, map or list, each with its new type."""
    if pa.types.is_map(kind):
        yield from ((column.keys, kind.key_type), (column.items, kind.item_type))
    elif pa.types.is_struct(kind):
        for field, part in zip(column.type, column.flatten(), strict=True):
            number = kind.get_field_index(field.name)
            if number >= 0:
                yield part, kind.field(number).type
    else:
        yield column.flatten(), kind.value_type


def _through_text(column: Any, kind: Any) -> Any:
    """Cast a column; numbers to decimals, and decimals to floats, through text.

    Arrow's own casts add or drop digits, or refuse all whole numbers for a decimal with a scale.
    """
    is_decimal = pa.types.is_decimal(column.type)
    if (pa.types.is_floating(kind) and is_decimal) or (
        pa.types.is_decimal(kind) and not is_decimal
    ):
        column = column.cast(pa.string())
    return column.cast(kind)


def has_overflowed(numbers: Any, decimals: Any) -> bool:
    """Return True if numbers or texts have become decimals that lack high bits of one of them.

    Such a number changes to less than a half of itself.
    """
    before, after = (
        pc.fill_null(each.cast(pa.float64(), safe=False), 0) for each in (numbers, decimals)
    )
    return bool(pc.any(pc.greater(pc.abs(before), pc.multiply(pc.abs(after), 2))).as_py())


def _is_changed(column: Any, cast: Any, is_exact: bool) -> bool:
    """Return True if a cast to floats has changed a value, beyond rounding to the nearest float."""
    found = column.type
    if is_exact or pa.types.is_decimal(found) or pa.types.is_integer(found):
        back = _through_text(cast, found)
        return not column.cast(pa.string()).equals(back.cast(pa.string()))  # NaN is equal as text.
    floats = cast.cast(pa.float64())
    suspects = column.filter(pc.or_(pc.is_inf(floats), pc.equal(floats, 0)))
    return bool(pc.any(pc.match_substring_regex(suspects.cast(pa.string()), _NOT_ZERO)).as_py())
