"""Casts of columns that keep every value.

Arrow checks its casts between whole numbers, decimals and times. It does not check those with
floats: it rounds a float to the scale of a decimal, and makes it infinite where a type ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flow.columns.arrow_types import with_leaves
from flow.errors import first_line, shorten

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
        value = ", ".join(map(shorten, column.slice(0, 1).to_pylist()))
        raise ValueError(f"value {value}: {first_line(error)}") from None


def _cast(column: Any, kind: Any, is_exact: bool) -> Any:
    found, types = column.type, pa.types
    if types.is_null(found):
        return column.cast(kind)
    if types.is_dictionary(found) or types.is_dictionary(kind):
        plain = column.dictionary_decode() if types.is_dictionary(found) else column
        return _cast(plain, getattr(kind, "value_type", kind), is_exact).cast(kind)
    if types.is_nested(found):
        for part, part_kind in _parts(column, kind):
            _cast(part, part_kind, is_exact)
        return column.cast(with_leaves(found, _text_of_decimals)).cast(kind)
    cast = _through_text(column, kind)
    is_kept = types.is_integer(found) and kind != pa.float16()
    if types.is_floating(kind) and not is_kept and _is_changed(column, cast, is_exact):
        raise ValueError(f"the cast of {found} to {kind} changes it")
    return cast


def _parts(column: Any, kind: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the parts of a struct or list, each with its new type."""
    if pa.types.is_struct(kind):
        for field, part in zip(column.type, column.flatten(), strict=True):
            number = kind.get_field_index(field.name)
            if number >= 0:
                yield part, kind.field(number).type
    else:
        yield column.flatten(), kind.value_type


def _text_of_decimals(kind: Any) -> Any:
    return pa.string() if pa.types.is_decimal(kind) else kind


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


def _is_changed(column: Any, cast: Any, is_exact: bool) -> bool:
    """Return True if a cast to floats has changed a value, beyond rounding to the nearest float."""
    found = column.type
    if is_exact or pa.types.is_decimal(found) or pa.types.is_integer(found):
        back = _through_text(cast, found)
        return not column.cast(pa.string()).equals(back.cast(pa.string()))  # NaN is equal as text.
    floats = cast.cast(pa.float64())
    suspects = column.filter(pc.or_(pc.is_inf(floats), pc.equal(floats, 0)))
    return bool(pc.any(pc.match_substring_regex(suspects.cast(pa.string()), _NOT_ZERO)).as_py())
