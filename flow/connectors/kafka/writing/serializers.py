"""How keys and values become bytes: JSON, text, bytes as they are, and Avro."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from flow.connectors.formats.json_encoding import json_objects, json_values
from flow.connectors.formats.plain_values import json_text
from flow.errors import (
    EnvironmentProblem,
    FlowBuildError,
    FlowTypeError,
    SinkError,
    brief,
    shorten,
    step_error,
)

_REFUSED = (TypeError, ValueError, OverflowError, RecursionError, pa.ArrowException)


class Serializer(ABC):
    """Makes bytes of values. `None` stays `None`, which Kafka knows, and bytes stay as they are."""

    @abstractmethod
    def encoded(self, value: Any) -> bytes:
        """One value as bytes.

        Raises:
            TypeError: it has no form in this format.
            ValueError: it has no form in this format.
        """

    def values(self, values: Iterable[Any], what: str, step_id: str) -> list[bytes | None]:
        """Values as bytes.

        Args:
            values: the values.
            what: what they are, for errors.
            step_id: the output's step, for errors.

        Raises:
            StepError: naming the step and the value that cannot be written.
        """
        return [self._checked(value, what, step_id) for value in values]

    def column(self, column: pa.Array, what: str, step_id: str) -> pa.Array:
        """A column as bytes; raises as `values` does."""
        return pa.array(self.values(column.to_pylist(), what, step_id), pa.binary())

    def rows(self, batch: pa.RecordBatch, step_id: str) -> pa.Array:
        """Whole rows as bytes; raises as `values` does."""
        return pa.array(self.values(batch.to_pylist(), "value", step_id), pa.binary())

    def whole(self, record: dict[str, Any], step_id: str) -> Any:  # noqa: ARG002
        """What is written of a record where no field of it was chosen."""
        return record

    def _checked(self, value: Any, what: str, step_id: str) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        try:
            return self.encoded(value)
        except _REFUSED as error:
            problem = f"the {what} cannot be written as {self}: {brief(error)}"
            raise step_error(step_id, problem, item=value) from error


class Json(Serializer):
    """JSON, in UTF-8."""

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
        except _REFUSED as error:
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
    """Text, in UTF-8; whole numbers are written in digits."""

    def __str__(self) -> str:
        return "text"

    @override
    def encoded(self, value: Any) -> bytes:
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value).encode()
        if not isinstance(value, str):
            raise TypeError(f"it is {_a(value)}. Map it to text, or choose another format")
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
        return self.column(_sole(batch.schema.names, batch, self, step_id), "value", step_id)

    @override
    def whole(self, record: dict[str, Any], step_id: str) -> Any:
        return _sole(list(record), record, self, step_id)


class Bytes(Text):
    """Bytes as they are, nothing else."""

    def __str__(self) -> str:
        return "bytes"

    @override
    def encoded(self, value: Any) -> bytes:
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        raise TypeError(f"it is {_a(value)}. Map it to bytes, or choose another format")

    @override
    def column(self, column: pa.Array, what: str, step_id: str) -> pa.Array:
        return Serializer.column(self, column, what, step_id)


@dataclass(frozen=True)
class Avro(Serializer):
    """Avro's binary form, without a header: who reads it has to know the schema.

    Args:
        schema: the schema, as JSON text or as what that says.

    Raises:
        FlowBuildError: the schema is none.
        EnvironmentProblem: the package fastavro is not there.

    >>> Avro({"type": "record", "name": "Sum", "fields": [{"name": "sum", "type": "long"}]})
    Avro('{"type": "record", "name": "Sum", "fields": [{"name": "sum", "type": "long"}]}')
    """

    schema: str | Mapping[str, Any]
    _parsed: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.schema, (str, Mapping)):
            raise FlowTypeError(f"an Avro schema is JSON, got {shorten(self.schema)}")
        text = self.schema if isinstance(self.schema, str) else json.dumps(self.schema)
        object.__setattr__(self, "schema", text)
        self._parsed.append(_parsed_schema(text))

    def __repr__(self) -> str:
        return f"Avro({self.schema!r})"

    def __str__(self) -> str:
        return "Avro"

    def __reduce__(self) -> tuple[Any, ...]:
        """What travels to workers: the text, which is parsed there."""
        return Avro, (self.schema,)

    @override
    def encoded(self, value: Any) -> bytes:
        to = io.BytesIO()
        _fastavro().schemaless_writer(to, self._parsed[0], value)
        return to.getvalue()

    @override
    def _checked(self, value: Any, what: str, step_id: str) -> bytes | None:
        try:
            return super()._checked(value, what, step_id)
        except (KeyError, AttributeError) as error:
            problem = f"the {what} cannot be written as Avro: {brief(error)}"
            raise step_error(step_id, problem, item=value) from error


Format: TypeAlias = Literal["json", "text", "bytes"] | Serializer
"""How a key or a value is written."""

JSON, TEXT = Json(), Text()
_FORMATS: dict[str, Serializer] = {"json": JSON, "text": TEXT, "bytes": Bytes()}
_TEXT = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


def serializer_of(parameter: str, chosen: object) -> Serializer:
    """What a format's name stands for.

    Raises:
        FlowBuildError: it is none of them.
    """
    if isinstance(chosen, Serializer):
        return chosen
    if isinstance(chosen, str) and chosen in _FORMATS:
        return _FORMATS[chosen]
    raise FlowBuildError(
        f"{parameter} must be 'json', 'text', 'bytes' or Avro(schema), got {shorten(chosen)}"
    )


def _sole(names: list[str], record: Any, format: Serializer, step_id: str) -> Any:
    if names != ["value"]:
        raise SinkError(
            f"step {step_id!r}: a record with the fields {shorten(names)} cannot be written as "
            f"{format}: say which field is the value, such as value={next(iter(names), 'name')!r}, "
            "or choose value_format='json'"
        )
    return record["value"]


def _a(value: Any) -> str:
    return f"{type(value).__name__} {shorten(value)}"


def _parsed_schema(text: str) -> Any:
    try:
        return _fastavro().parse_schema(json.loads(text))
    except EnvironmentProblem:
        raise
    except Exception as error:  # fastavro has many, of no one family
        raise FlowBuildError(f"not an Avro schema: {brief(error)}, in {shorten(text)}") from error


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise EnvironmentProblem(
            f"Avro needs fastavro, which cannot be imported ({error}): install it with "
            "pip install 'flow-windows[kafka]'"
        ) from error
    return fastavro
