"""Deserializer of flat JSON objects to columns of numbers, text and booleans.

msgspec decodes only the wanted fields of an object. Arrow's reader, which decodes many objects
at a time to columns of any type, looks up every field. One of seven fields of an object of 130
bytes takes 3,500 instructions with msgspec and 7,600 with Arrow (kernel ``read-json`` of
`benchmarks/kernels`), or 0.3 and 0.7 µs; all seven take 1.0 and 1.2 µs (a core of an AMD EPYC,
msgspec 0.22, Arrow 26).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.connectors.formats.line_parsers import is_utf8, type_as_read
from flow.connectors.kafka.reading.deserializers import Data, JsonColumns
from flow.errors import package_of_extra

_PYTHON_TYPES: tuple[tuple[Callable[[Any], bool], type], ...] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_float64, float),
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
)
"""Python type of a column's values. Arrow's reader reads narrower floats, as it rounds once; a
conversion through Python's float would round twice."""

_REFUSED = (ValueError, OverflowError, RecursionError)
"""Errors for an object that does not fit; those of msgspec and Arrow are ValueErrors."""


class FlatJsonColumns(JsonColumns):
    """JSON objects as columns of a schema for which `is_flat` is True.

    Arrow's reader reads the objects that msgspec refuses, such as those with ``NaN`` and
    ``Infinity`` as Python writes them; an object that both refuse is bad. If an object has a wanted
    field twice, the last value counts, as in Python; Arrow's reader refuses such an object.
    """

    def __reduce__(self) -> Any:
        return FlatJsonColumns, (self.schema,)

    @override
    def column(self, data: Data) -> Any | None:
        # msgspec does not check the text of fields that it skips.
        if None in data or not is_utf8(b"\n".join(data)):  # type: ignore[arg-type]
            return None
        try:
            return self._struct(list(map(self._decode, data)))
        except _REFUSED:
            return self._column_with_refused(data)

    def _column_with_refused(self, data: Data) -> Any | None:
        """Return the column of objects if msgspec refuses some of them, which Arrow then reads."""
        objects: list[Any] = []
        refused: list[bytes | None] = []
        is_decoded = np.ones(len(data), np.bool_)
        for row, text in enumerate(data):
            try:
                objects.append(self._decode(text))
            except _REFUSED:
                refused.append(text)
                is_decoded[row] = False
        others = super().column(refused)
        if others is None:
            return None
        try:
            both = pa.concat_arrays([self._struct(objects), others])
        except _REFUSED:
            return None
        rows = (
            np.where(is_decoded, np.cumsum(is_decoded), len(objects) + np.cumsum(~is_decoded)) - 1
        )
        return both.take(pa.array(rows))

    def _struct(self, objects: list[Any]) -> Any:
        columns = [
            pa.array(list(map(attrgetter(_name(number)), objects)), type_as_read(field.type))
            for number, field in enumerate(self.schema)
        ]
        fitting = [
            column.cast(field.type) for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.StructArray.from_arrays(fitting, fields=list(self.schema))

    @cached_property
    def _decode(self) -> Callable[[Any], Any]:
        """Decoder of one object.

        Raises:
            EnvironmentProblem: msgspec is not installed.
        """
        with package_of_extra("kafka", "msgspec", "JSON of Kafka", on_workers=True):
            import msgspec
        names = {_name(number): field.name for number, field in enumerate(self.schema)}
        kinds: list[Any] = [_python_type(field.type) for field in self.schema]
        fields = [(name, kind | None, None) for name, kind in zip(names, kinds, strict=True)]
        object_type = msgspec.defstruct("Object", fields, rename=names, gc=False)
        decode: Callable[[Any], Any] = msgspec.json.Decoder(object_type).decode
        return decode


def is_flat(schema: pa.Schema) -> bool:
    """Return True if all columns are whole numbers, 64-bit floats, text, times or booleans."""
    return all(_python_type(field.type) is not None for field in schema)


def _python_type(kind: Any) -> Any | None:
    """Return the Python type of a column's values; ``None`` if Arrow's reader must read them."""
    read = kind if pa.types.is_dictionary(kind) else type_as_read(kind)
    return next((python for is_kind, python in _PYTHON_TYPES if is_kind(read)), None)


def _name(number: int) -> str:
    """Return the Python name of a field, as not every name is an identifier."""
    return f"field_{number}"
