"""Text keys made of fields, by one rule for columns and for Python objects.

==============  ================================
field           key
==============  ================================
text            itself
whole number    its digits: ``-7``
True, False     ``true``, ``false``
date            ISO 8601: ``2024-01-31``
UUID            its 36 characters, in lower case
several fields  a JSON array: ``["acme",7]``
==============  ================================

The type of a field and its key give the value again, and `json.loads` those of several fields.
Other values have no key: a float, a decimal number and a time may be equal and differ as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flow.columns.record_batches import as_objects, view_of
from flow.errors import FlowError, shorten
from flow.fields import field_path
from flow.instants import OutOfRange


class NoTextKey(FlowError, TypeError):
    """An error that names a field whose value has no text key."""


def key_reader(paths: tuple[str, ...]) -> Callable[[Any], str]:
    """Return a function that returns the key of an item, made of the fields at some paths.

    The function raises `NoTextKey` for a value without a key, and a `KeyError` for a missing field.

    >>> from datetime import date
    >>> key_reader(("user", "day"))({"user": 7, "day": date(2024, 1, 31)})
    '[7,"2024-01-31"]'
    """
    fields = [field_path(path) for path in paths]
    if len(fields) > 1:
        return lambda item: _dump([_part(one.text, one.value_in(item)) for one in fields])
    (field,) = fields

    def read(item: Any) -> str:
        value = field.value_in(item)
        part = value if type(value) is str else _part(field.text, value)
        return part if isinstance(part, str) else _dump(part)

    return read


_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _part(path: str, value: Any) -> str | int:
    """Return a field's value as the part of a key: text, a whole number, True or False."""
    match value:
        case None:
            raise NoTextKey(f"the key field {path!r} is null")
        case str():
            return str.__str__(value)  # A subclass such as a text enum may override `__str__`.
        case bool():
            return value
        case int() | np.integer():
            return int(value)
        case UUID():
            return str(value)
        case date() if not isinstance(value, datetime):
            return value.isoformat()
    raise NoTextKey(_without_key(path, f"{type(value).__name__} {shorten(value, 80)}"))


def _without_key(path: str, found: str) -> str:
    return (
        f"the key field {path!r} is {found}, and a key is made "
        "of text, whole numbers, True and False, dates and UUIDs: equal floats, decimals and times "
        "may differ as text. Give a function that returns the text, such as "
        f"lambda item: str(item[{path!r}])"
    )


def key_problem(path: str, kind: pa.DataType | None) -> str | None:
    """Return why no value of a field has a key, by its Arrow type; ``None`` if some may have one.

    Args:
        path: the path of the field.
        kind: the type; ``None`` if it is not known.
    """
    types = pa.types
    without = (types.is_floating, types.is_decimal, types.is_temporal, types.is_nested)
    if kind is None or types.is_date(kind) or not any(is_of(kind) for is_of in without):
        return None
    return _without_key(path, f"a column of {kind}")


def key_column(paths: tuple[str, ...], batch: pa.RecordBatch) -> pa.Array | None:
    """Return the keys of records as a column of text, which may be dictionary-encoded.

    Returns:
        The keys; ``None`` if the records have to become objects, whose keys `key_reader` reads, or
        finds missing.

    >>> batch = pa.RecordBatch.from_pylist([{"tenant": "acme", "user": 7}])
    >>> key_column(("tenant", "user"), batch).to_pylist(), key_column(("user",), batch).to_pylist()
    (['["acme",7]'], ['7'])
    """
    if view_of(batch) is not None:
        return None
    columns = [field_path(path).column_in(batch) for path in paths]
    if len(columns) == 1:
        return _texts(columns[0])
    parts = [_json_parts(column) for column in columns]
    if any(part is None for part in parts):
        return None
    return pc.binary_join_element_wise("[", pc.binary_join_element_wise(*parts, ","), "]", "")


def _ends(column: pa.Array) -> list[Any]:
    """Return the least and the greatest value of a column that is not empty; else null."""
    return as_objects(pa.array(pc.min_max(column).values(), column.type))


def _texts(column: pa.Array | None) -> pa.Array | None:
    """Return a column as text; ``None`` if it has nulls, or a type without keys."""
    if column is None or column.null_count:
        return None
    types, kind = pa.types, column.type
    if types.is_dictionary(kind):
        values = kind.value_type
        is_text = types.is_string(values) or types.is_large_string(values)
        if is_text and not column.dictionary.null_count:
            return column.cast(pa.dictionary(pa.int32(), pa.string()))
        return _texts(column.dictionary_decode())
    if types.is_string(kind) or types.is_large_string(kind):
        return column.cast(pa.string())
    if isinstance(kind, pa.UuidType):
        return _uuid_texts(column.storage)
    is_plain = types.is_integer(kind) or types.is_boolean(kind) or types.is_date32(kind)
    if types.is_date32(kind) and any(isinstance(one, OutOfRange) for one in _ends(column)):
        return None
    return column.cast(pa.string()) if is_plain else None


def _uuid_texts(column: pa.FixedSizeBinaryArray) -> pa.Array:
    raw = memoryview(column.buffers()[1])[16 * column.offset :][: 16 * len(column)]
    digits = pa.py_buffer(raw.hex().encode())
    texts = pa.Array.from_buffers(pa.binary(32), len(column), [None, digits]).cast(pa.binary())
    groups = "^(.{8})(.{4})(.{4})(.{4})", r"\1-\2-\3-\4-"
    return pc.replace_substring_regex(texts.cast(pa.string()), *groups)


def _json_parts(column: pa.Array | None) -> pa.Array | None:
    """Return a column as JSON, part by part; ``None`` as for `_texts`."""
    texts = _texts(column)
    if texts is None or column is None:
        return None
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return texts
    texts = texts.cast(pa.string())
    if pc.any(pc.match_substring_regex(texts, "[\\x00-\\x1f]")).as_py():
        return None  # Arrow has no function that escapes control characters.
    for character in ("\\", '"'):
        texts = pc.replace_substring(texts, character, f"\\{character}")
    return pc.binary_join_element_wise('"', texts, '"', "")
