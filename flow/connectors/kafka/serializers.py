"""Serializers of keys and values, and the encoding of items as columns of messages.

Record batches laid out by `flow.connectors.sink.to_record` are encoded column by column. Functions
of the item, or headers, need encoding item by item. Both give the same messages.
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from flow.columns.arrow_types import is_instant
from flow.columns.record_batches import as_objects, rows_as_dicts
from flow.connectors.formats.columns import merge_small
from flow.connectors.formats.json_encoding import json_objects, json_text, json_values
from flow.connectors.kafka import avro_types
from flow.connectors.kafka.messages import KafkaMessage, KafkaRecord
from flow.connectors.sink import SinkBatch, to_record
from flow.errors import (
    FlowBuildError,
    FlowError,
    SinkError,
    TimestampError,
    brief,
    shorten,
    step_error,
)
from flow.fields import field_path
from flow.instants import instant_us

_ERRORS = (TypeError, ValueError, OverflowError, RecursionError, pa.ArrowException)


class Serializer(ABC):
    """Encoder of values as bytes; ``None`` and bytes are not changed."""

    _errors: ClassVar[tuple[type[Exception], ...]] = _ERRORS
    """Errors of values without a form in this format."""

    def open(self) -> None:  # noqa: B027  (most formats need nothing)
        """Prepare the format; called once on the driver before the first epoch of a run."""

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
        if str(column.type).startswith(("binary", "large_binary", "fixed_size_binary")):
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


KEY = "key"
"""Column of the key if the sink names no other."""

TIMESTAMP = "timestamp"
"""Column of the time if the sink names no other."""

Headers: TypeAlias = "Mapping[str, Any] | Iterable[tuple[str, Any]]"
"""Headers by name, or as pairs; a value is text, bytes, `None`, or becomes JSON."""

Getter: TypeAlias = "str | Callable[[Any], Any]"
"""Path of a field, such as ``"details.id"``, or a function of the item."""

HeaderGetter: TypeAlias = "Mapping[str, Getter] | Callable[[Any], Headers]"
"""Getter of each header by name, or a function of the item that returns all of them."""

_HEADER = pa.struct([("name", pa.string()), ("value", pa.binary())])

SCHEMA = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "timestamp": pa.int64(),
        "headers": pa.list_(_HEADER),
    }
)
"""Columns of encoded messages; times are milliseconds since the Unix epoch."""

_PIECE_ROWS = 10_000


@dataclass(frozen=True)
class Encoding:
    """Conversion of items to messages; `KafkaSink` describes the fields."""

    key: Getter | None
    value: Getter | None
    headers: HeaderGetter | None
    timestamp: Getter | None
    key_format: Serializer
    value_format: Serializer

    @property
    def columnar(self) -> bool:
        """True if record batches can be encoded column by column."""
        asked = (self.key, self.value, self.timestamp)
        return self.headers is None and not any(map(callable, asked))

    def encoded(self, batches: Iterable[SinkBatch], step_id: str) -> Iterator[pa.RecordBatch]:
        """Yield messages in the columns of `SCHEMA`, in the order of their items.

        Raises:
            FlowError: an item cannot be written; the error names the step and the item.
        """
        for batch in merge_small(batches):
            if isinstance(batch, list):
                yield self._from_items(batch, step_id)
            elif self.columnar:
                yield self._from_columns(batch, step_id)
            else:
                for start in range(0, batch.num_rows, _PIECE_ROWS):
                    items = rows_as_dicts(batch.slice(start, _PIECE_ROWS))
                    yield self._from_items(items, step_id)

    def _from_columns(self, batch: pa.RecordBatch, step_id: str) -> pa.RecordBatch:
        rest, key = batch, None
        if self.key is not None:
            key = _column_at(batch, str(self.key), "key", step_id)
        elif KEY in batch.schema.names:
            rest, key = batch.drop_columns([KEY]), batch.column(KEY)
        if self.value is None:
            value = self.value_format.rows(rest, step_id)
        else:
            found = _column_at(batch, str(self.value), "value", step_id)
            value = self.value_format.column(found, "value", step_id)
        times = self._times(batch, step_id)
        nothing = pa.nulls(batch.num_rows)
        columns = [
            nothing if key is None else self.key_format.column(key, "key", step_id),
            value,
            nothing if times is None else _column_ms(times, step_id),
            nothing,
        ]
        fitting = [one.cast(kind) for one, kind in zip(columns, SCHEMA.types, strict=True)]
        return pa.RecordBatch.from_arrays(fitting, schema=SCHEMA)

    def _times(self, batch: pa.RecordBatch, step_id: str) -> pa.Array | None:
        if self.timestamp is not None:
            return _column_at(batch, str(self.timestamp), "timestamp", step_id)
        if TIMESTAMP not in batch.schema.names:
            return None
        found = batch.column(TIMESTAMP)
        return found if is_instant(found.type) else None

    def _from_items(self, items: list[Any], step_id: str) -> pa.RecordBatch:
        records = [self._record(item, step_id) for item in items]
        keys = self.key_format.values([one.key for one in records], "key", step_id)
        values = self.value_format.values([one.value for one in records], "value", step_id)
        times = [_time_ms(one.timestamp, step_id) for one in records]
        headers = [_header_list(one.headers, step_id) for one in records]
        columns = zip((keys, values, times, headers), SCHEMA.types, strict=True)
        arrays = [pa.array(column, kind) for column, kind in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def _record(self, item: Any, step_id: str) -> KafkaRecord:
        if isinstance(item, KafkaRecord):
            return item
        if isinstance(item, KafkaMessage):
            return KafkaRecord(item.value, item.key, item.headers, item.timestamp)
        record = to_record(item)
        try:
            return KafkaRecord(
                self._value(item, record, step_id),
                record.get(KEY) if self.key is None else _value_at(self.key, item, record),
                self._headers(item, record),
                self._time(item, record),
            )
        except FlowError:
            raise
        except Exception as error:  # A user's function may raise any exception.
            problem = f"no message can be made of the item: {brief(error)}"
            raise step_error(step_id, problem, item=item) from error

    def _value(self, item: Any, record: dict[str, Any], step_id: str) -> Any:
        if self.value is not None:
            return _value_at(self.value, item, record)
        if self.key is None and KEY in record:
            record = {name: value for name, value in record.items() if name != KEY}
        return self.value_format.whole(record, step_id)

    def _headers(self, item: Any, record: dict[str, Any]) -> Headers:
        if self.headers is None:
            return ()
        if isinstance(self.headers, Mapping):
            return {name: _value_at(getter, item, record) for name, getter in self.headers.items()}
        return self.headers(item)

    def _time(self, item: Any, record: dict[str, Any]) -> Any:
        if self.timestamp is not None:
            return _value_at(self.timestamp, item, record)
        found = record.get(TIMESTAMP)
        return found if isinstance(found, datetime) and found.tzinfo is not None else None


def _value_at(getter: Getter, item: Any, record: dict[str, Any]) -> Any:
    return field_path(getter).value_in(record) if isinstance(getter, str) else getter(item)


def _column_at(batch: pa.RecordBatch, path: str, what: str, step_id: str) -> pa.Array:
    """Return the column at a path, also inside structs."""
    found = field_path(path).column_in(batch)
    if found is None:
        raise SinkError(
            f"step {step_id!r}: {what}={path!r} is not a field of the records, which have "
            f"{shorten(batch.schema.names)}"
        )
    return found


def _column_ms(column: pa.Array, step_id: str) -> pa.Array:
    if not is_instant(column.type):
        return pa.array([_time_ms(value, step_id) for value in as_objects(column)], pa.int64())
    times = column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    least = pc.min(times).as_py()
    if least is not None:
        _checked_ms(least, least, step_id)
    return times


def _time_ms(value: Any, step_id: str) -> int | None:
    if value is None:
        return None
    try:
        return _checked_ms(instant_us(value) // 1000, value, step_id)
    except TimestampError as error:
        raise SinkError(f"step {step_id!r}: the timestamp cannot be read: {error}") from error


def _checked_ms(millis: int, value: Any, step_id: str) -> int:
    if millis < 1:
        raise SinkError(
            f"step {step_id!r}: the timestamp {shorten(value)} must be after "
            "1970-01-01T00:00:00Z, as Kafka's client writes no earlier one"
        )
    return millis


def _header_list(headers: Any, step_id: str) -> list[tuple[str, bytes | None]] | None:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return [(_header_name(name), _header_value(value)) for name, value in pairs or ()] or None
    except (TypeError, ValueError) as error:
        problem = (
            f"headers must be pairs of a name and a value, such as {{'unit': 'flights'}}: {error}"
        )
        raise step_error(step_id, problem, item=headers) from error


def _header_name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a header's name must be text, got {shorten(name)}")
    return name


def _header_value(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json_text(value).encode()
