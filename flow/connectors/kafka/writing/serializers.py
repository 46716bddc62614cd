"""Serializers of keys and values: JSON, text, bytes and Avro."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from flow.columns.record_batches import as_objects, rows_as_dicts
from flow.connectors.formats import avro_types
from flow.connectors.formats.json_encoding import json_objects, json_text, json_values
from flow.errors import FlowBuildError, SinkError, brief, shorten, step_error

_ERRORS = (TypeError, ValueError, OverflowError, RecursionError, pa.ArrowException)


class Serializer(ABC):
    """Encoder of values as bytes; ``None`` and bytes are not changed."""

    _errors: ClassVar[tuple[type[Exception], ...]] = _ERRORS
    """Errors of values without a form in this format."""

    @abstractmethod
    def encoded(self, value: Any) -> bytes:
        """Return a value as bytes.

        Raises:
            TypeError, ValueError: the value has no form in this format.
        """

    def values(self, values: Iterable[Any], what: str, step_id: str) -> list[bytes | None]:
        """Return values as bytes.

        Args:
            values: the values.
            what: ``"key"`` or ``"value"``, for errors.
            step_id: the output's step, for errors.

        Raises:
            StepError: a value has no form in this format; the error names the value and the step.
        """
        return [self._encode(value, what, step_id) for value in values]

    def column(self, column: pa.Array, what: str, step_id: str) -> pa.Array:
        """Return a column as bytes; raises the errors of `values`."""
        return pa.array(self.values(as_objects(column), what, step_id), pa.binary())

    def rows(self, batch: pa.RecordBatch, step_id: str) -> pa.Array:
        """Return whole rows as bytes; raises the errors of `values`."""
        return pa.array(self.values(rows_as_dicts(batch), "value", step_id), pa.binary())

    def whole(self, record: dict[str, Any], step_id: str) -> Any:  # noqa: ARG002
        """Return the part of a record that is written if the sink names no field."""
        return record

    def _encode(self, value: Any, what: str, step_id: str) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        try:
            return self.encoded(value)
        except self._errors as error:
            problem = f"the {what} cannot be written as {self}: {brief(error)}"
            raise step_error(step_id, problem, item=value) from error


class Json(Serializer):
    """JSON in UTF-8."""

    def __str__(self) -> str:
        return "JSON"

    @override
    def encoded(self, value: Any) -> bytes:
        return json_text(value).encode()

    @override
    def column(self, column: pa.Array, what: str, step_id: str) -> pa.Array:
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            return column.cast(pa.binary())
        try:
            texts = json_values(column)
        except _ERRORS as error:
            raise SinkError(
                f"step {step_id!r}: the {what} cannot be written as JSON: {error}"
            ) from error
        nothing = pa.scalar(None, pa.binary())
        found = texts.cast(pa.binary())
        return pc.if_else(column.is_valid(), found, nothing) if column.null_count else found

    @override
    def rows(self, batch: pa.RecordBatch, step_id: str) -> pa.Array:
        return json_objects(batch, step_id).cast(pa.binary())


class Text(Serializer):
    """Text in UTF-8; whole numbers are written in digits."""

    def __str__(self) -> str:
        return "text"

    @override
    def encoded(self, value: Any) -> bytes:
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value).encode()
        if not isinstance(value, str):
            raise TypeError(
                f"it is {_type_and_value(value)}. Map it to text, or choose another format"
            )
        return value.encode()

    @override
    def column(self, column: pa.Array, what: str, step_id: str) -> pa.Array:
        kind = column.type
        if pa.types.is_dictionary(kind):
            return self.column(column.dictionary_decode(), what, step_id)
        if any(is_kind(kind) for is_kind in _TEXT):
            return column.cast(pa.binary())
        if pa.types.is_integer(kind):
            return column.cast(pa.string()).cast(pa.binary())
        return super().column(column, what, step_id)

    @override
    def rows(self, batch: pa.RecordBatch, step_id: str) -> pa.Array:
        field = _value_field(batch.schema.names, batch, self, step_id)
        return self.column(field, "value", step_id)

    @override
    def whole(self, record: dict[str, Any], step_id: str) -> Any:
        return _value_field(list(record), record, self, step_id)


class Bytes(Text):
    """Bytes, unchanged; other values are errors."""

    def __str__(self) -> str:
        return "bytes"

    @override
    def encoded(self, value: Any) -> bytes:
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        raise TypeError(
            f"it is {_type_and_value(value)}. Map it to bytes, or choose another format"
        )

    @override
    def column(self, column: pa.Array, what: str, step_id: str) -> pa.Array:
        return Serializer.column(self, column, what, step_id)


@dataclass(frozen=True)
class Avro(Serializer):
    """Avro in its binary encoding, without a header: readers must know the schema.

    Args:
        schema: the schema, as JSON text or as the value that the text stands for.

    Raises:
        FlowBuildError: the schema is not an Avro schema.
        EnvironmentProblem: the package fastavro is not installed.

    >>> Avro({"type": "record", "name": "Sum", "fields": [{"name": "sum", "type": "long"}]})
    Avro('{"type": "record", "name": "Sum", "fields": [{"name": "sum", "type": "long"}]}')
    """

    _errors = (*_ERRORS, KeyError, AttributeError)

    schema: str | Mapping[str, Any]
    _parsed: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._parsed.append(avro_types.parse_schema(self.schema))
        text = self.schema if isinstance(self.schema, str) else json.dumps(self.schema)
        object.__setattr__(self, "schema", text)

    def __repr__(self) -> str:
        return f"Avro({self.schema!r})"

    def __str__(self) -> str:
        return "Avro"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the text of the schema, which workers parse."""
        return Avro, (self.schema,)

    @override
    def encoded(self, value: Any) -> bytes:
        to = io.BytesIO()
        avro_types.fastavro().schemaless_writer(to, self._parsed[0], value)
        return to.getvalue()


Format: TypeAlias = Literal["json", "text", "bytes"] | Serializer
"""Format of a key or a value."""

JSON, TEXT = Json(), Text()
_FORMATS: dict[str, Serializer] = {"json": JSON, "text": TEXT, "bytes": Bytes()}
_TEXT = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


def serializer_of(parameter: str, chosen: object) -> Serializer:
    """Return the serializer of a format.

    Raises:
        FlowBuildError: there is no such format.
    """
    if isinstance(chosen, Serializer):
        return chosen
    if isinstance(chosen, str) and chosen in _FORMATS:
        return _FORMATS[chosen]
    raise FlowBuildError(
        f"{parameter} must be 'json', 'text', 'bytes' or Avro(schema), got {shorten(chosen)}"
    )


def _value_field(names: list[str], record: Any, format: Serializer, step_id: str) -> Any:
    """Return the field ``value`` of a record or batch that has no other fields.

    Raises:
        SinkError: the record has other fields, or none.
    """
    if names != ["value"]:
        raise SinkError(
            f"step {step_id!r}: a record with the fields {shorten(names)} cannot be written as "
            f"{format}: name the field that is the value, such as "
            f"value={next(iter(names), 'name')!r}, or choose value_format='json'"
        )
    return record["value"]


def _type_and_value(value: Any) -> str:
    return f"{type(value).__name__} {shorten(value)}"
