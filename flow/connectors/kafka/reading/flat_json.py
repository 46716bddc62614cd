"""JSON objects read to columns of numbers, text and truth values, one object after the other.

msgspec makes something of the wanted fields of an object alone, and passes over the others. Arrow's
reader, which takes many objects at a time and columns of any type, looks up and keeps track of each
field that it meets. Of objects of 130 bytes, one field of seven takes 3,500 instructions with the
one and 7,600 with the other (the kernel ``read-json`` of `benchmarks/kernels`, and the same with
Arrow's reader), or 0.3 and 0.7 µs; all seven take 1.0 and 1.2 µs (a core of an AMD EPYC, msgspec
0.22, Arrow 26, by a script that is not kept).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.connectors.formats.json_decoding import type_as_read
from flow.connectors.formats.line_parser import is_utf8
from flow.connectors.kafka.reading.deserializers import Data, JsonColumns
from flow.errors import EnvironmentProblem

_PYTHON: tuple[tuple[Callable[[Any], bool], type], ...] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_float64, float),
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
)
"""What the values of a column are to Python. Arrow's reader rounds a narrower float once; by way of
Python's it would be rounded twice."""

_REFUSED = (ValueError, OverflowError, RecursionError)
"""What is raised of an object that does not fit; errors of msgspec and Arrow are ValueErrors."""


class FlatJsonColumns(JsonColumns):
    """JSON objects, as columns of a schema of which `is_flat` holds.

    What msgspec refuses is bad if Arrow's reader refuses it too: that one takes ``NaN`` and
    ``Infinity``, which Python writes, though they are not JSON. Where an object has a wanted field
    twice, which JSON leaves open, the last one counts, as in Python; Arrow's reader refuses it.
    """

    def __reduce__(self) -> Any:
        return FlatJsonColumns, (self.schema,)

    @override
    def column(self, data: Data) -> Any | None:
        # What is passed over is not looked at as text.
        if None in data or not is_utf8(b"\n".join(data)):  # type: ignore[arg-type]
            return None
        try:
            return self._struct(list(map(self._decode, data)))
        except _REFUSED:
            return self._with_refused(data)

    def _with_refused(self, data: Data) -> Any | None:
        """Of objects some of which msgspec refuses. What becomes of one depends on it alone."""
        objects: list[Any] = []
        refused: list[bytes | None] = []
        taken = np.ones(len(data), np.bool_)
        for at, one in enumerate(data):
            try:
                objects.append(self._decode(one))
            except _REFUSED:
                refused.append(one)
                taken[at] = False
        others = super().column(refused)
        if others is None:
            return None
        try:
            both = pa.concat_arrays([self._struct(objects), others])
        except _REFUSED:
            return None
        places = np.where(taken, np.cumsum(taken), len(objects) + np.cumsum(~taken)) - 1
        return both.take(pa.array(places))

    def _struct(self, objects: list[Any]) -> Any:
        columns = [
            pa.array(list(map(attrgetter(_name(at)), objects)), type_as_read(field.type))
            for at, field in enumerate(self.schema)
        ]
        fitting = [
            column.cast(field.type) for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.StructArray.from_arrays(fitting, fields=list(self.schema))

    @cached_property
    def _decode(self) -> Callable[[Any], Any]:
        """Reads one object.

        Raises:
            EnvironmentProblem: msgspec is not there.
        """
        try:
            import msgspec
        except ImportError as error:
            raise EnvironmentProblem(
                f"JSON of Kafka needs msgspec, which cannot be imported ({error}): install it with "
                "pip install 'flow-windows[kafka]', where the flow is started and on its workers"
            ) from error
        names = {_name(at): field.name for at, field in enumerate(self.schema)}
        kinds: list[Any] = [_python(field.type) for field in self.schema]
        fields = [(name, kind | None, None) for name, kind in zip(names, kinds, strict=True)]
        made = msgspec.defstruct("Object", fields, rename=names, gc=False)
        decode: Callable[[Any], Any] = msgspec.json.Decoder(made).decode
        return decode


def is_flat(schema: pa.Schema) -> bool:
    """Whether all columns are whole numbers, floats of 64 bits, text, times or truth values."""
    return all(_python(field.type) is not None for field in schema)


def _python(kind: Any) -> Any | None:
    """What a column's values are to Python; ``None`` where Arrow's reader is to read them."""
    read = kind if pa.types.is_dictionary(kind) else type_as_read(kind)
    return next((python for is_kind, python in _PYTHON if is_kind(read)), None)


def _name(at: int) -> str:
    """What a field is called in Python, where not all names can be."""
    return f"field_{at}"
