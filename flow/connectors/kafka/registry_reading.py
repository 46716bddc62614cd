"""Values with the id of their schema in a registry, read as the schema that a checkpoint holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from typing_extensions import override

from flow.connectors.formats.line_parsers import check_json_types
from flow.connectors.kafka import avro_types, json_schema, protobuf_types
from flow.connectors.kafka.deserializers import (
    AvroDeserializer,
    Data,
    Deserializer,
    FlatJsonColumns,
    JsonColumns,
    is_flat,
)
from flow.connectors.kafka.planner import KafkaPlanner
from flow.connectors.kafka.registry import (
    Registry,
    RegistryClient,
    client_of,
    close_client,
    patiently,
)
from flow.connectors.source import Json, Slice, SourceLog
from flow.errors import FlowBuildError, SourceError

HEAD = np.dtype([("magic", "u1"), ("schema_id", ">u4")])
"""First bytes of a value."""

_RETRY_SECONDS = 5.0
"""Time after which an unknown id is asked for again."""


class ProtobufDeserializer(Deserializer):
    """Protobuf in its binary encoding, after the position of the message in its file.

    Args:
        writer: the schema that the bytes were written with.
        reader: the schema to read them as.
    """

    accepts_null = False

    def __init__(self, writer: str, reader: str) -> None:
        self._writer, self._class = writer, protobuf_types.message_class(reader)
        written = protobuf_types.message_class(writer).DESCRIPTOR
        protobuf_types.check_reads(self._class.DESCRIPTOR, written)
        self.kind = protobuf_types.arrow_type(self._class.DESCRIPTOR)

    @override
    def read(self, data: bytes) -> Any:
        message = [self._message(data)]
        try:
            return protobuf_types.column_of(message, self._class.DESCRIPTOR)[0].as_py()
        except OverflowError:
            raise ValueError("it has a time outside the years 1 to 9999") from None

    @override
    def column(self, data: Data) -> Any | None:
        try:
            messages = [self._message(one or b"") for one in data]
            return protobuf_types.column_of(messages, self._class.DESCRIPTOR)
        except (ValueError, pa.ArrowException, OverflowError):
            return None

    def _message(self, data: bytes) -> Any:
        indexes, body = protobuf_types.split_indexes(data)
        name = protobuf_types.message_at(self._writer, indexes)
        if name != self._class.DESCRIPTOR.full_name:
            wanted = self._class.DESCRIPTOR.full_name
            raise ValueError(f"it is a message {name!r}, and the source reads {wanted!r}")
        try:
            return self._class.FromString(body)
        except DecodeError:
            raise ValueError("not Protobuf of the schema") from None


def _avro_deserializer(writer: str, reader: str) -> Deserializer:
    # fastavro reads two or three times as fast without resolution, which the reader does not need
    # if all that it adds to the writer's schema is that fields may be missing.
    is_same = reader in (writer, avro_types.widened(writer, writer))
    return AvroDeserializer(writer, None if is_same else reader)


def _json_deserializer(_writer: str, reader: str) -> Deserializer:
    columns = json_schema.columns_of(reader)
    check_json_types(columns)
    return FlatJsonColumns(columns) if is_flat(columns) else JsonColumns(columns)


@dataclass(frozen=True)
class _Format:
    """Format of schemas; a schema is text that needs no other schema.

    Attributes:
        self_contained: returns a schema of the registry as text, given the schemas that it refers
            to, and the name of a message; raises a `ValueError` for one that is not valid.
        widened: returns a schema that reads the values of two; raises a `ValueError` if there is
            none.
        deserializer: returns the deserializer of values of one schema that are read as another;
            raises a `ValueError` if there is none.
    """

    self_contained: Callable[[str, Mapping[str, str], str | None], str]
    widened: Callable[[str, str], str]
    deserializer: Callable[[str, str], Deserializer]

    def changes(self, old: str, new: str) -> str:
        """Return the differences of fields as text; empty if there are none."""
        try:
            olds, news = (_types_of(self.deserializer(one, one).kind) for one in (old, new))
        except FlowBuildError:
            return "" if old == new else "its types"  # of messages, which no column can hold
        found = [f"{name!r} is new" for name in news if name not in olds]
        found += [f"{name!r} is gone" for name in olds if name not in news]
        both = [name for name in olds if name in news and olds[name] != news[name]]
        return ", ".join(
            [*found, *(f"{name!r} was {olds[name]} and is {news[name]}" for name in both)]
        )


def _types_of(kind: Any) -> dict[str, Any]:
    fields = kind if pa.types.is_struct(kind) else [pa.field("value", kind)]
    return {field.name: field.type for field in fields}


FORMATS = {
    "avro": _Format(
        lambda text, others, _: avro_types.self_contained(text, others),
        avro_types.widened,
        _avro_deserializer,
    ),
    "json": _Format(
        lambda text, others, _: json_schema.self_contained(text, others),
        json_schema.widened,
        _json_deserializer,
    ),
    "protobuf": _Format(
        protobuf_types.self_contained, protobuf_types.widened, ProtobufDeserializer
    ),
}


def schema_text(registry: Registry, client: RegistryClient, schema: Any, schema_id: int) -> str:
    """Return a schema of a registry as text that needs no other schema.

    Raises:
        SourceError: it is of another format, or not valid.
    """
    found = (schema.schema_type or "avro").lower()
    if found != registry.format:
        raise SourceError(
            f"schema id {schema_id} of {registry} is {found}, and not {registry.format}: pass "
            f"format={found!r}, or read another topic"
        )
    try:
        return FORMATS[found].self_contained(
            schema.schema_str, client.references(schema), registry.message
        )
    except ValueError as problem:
        raise SourceError(
            f"schema id {schema_id} of {registry} cannot be read: {problem}"
        ) from None


class RegistryDeserializer(Deserializer):
    """Values that begin with the id of their schema in a registry, as one schema.

    Args:
        registry: the registry.
        reader: the schema.
        patience_seconds: time to wait for a registry that does not answer.
    """

    accepts_null = False

    def __init__(self, registry: Registry, reader: str, patience_seconds: float) -> None:
        self._registry, self._reader, self._patience = registry, reader, patience_seconds
        self._format = FORMATS[registry.format]
        self._by_id: dict[int, Deserializer] = {}
        self._refused: dict[int, tuple[float, str]] = {}

    @cached_property
    def kind(self) -> Any:
        """Arrow type of a column."""
        return self._format.deserializer(self._reader, self._reader).kind

    @override
    def read(self, data: bytes) -> Any:
        return self._of(data).read(data[HEAD.itemsize :])

    @override
    def problem(self, data: bytes | None) -> str | None:
        if data is None:
            return super().problem(data)
        try:
            return self._of(data).problem(data[HEAD.itemsize :])
        except ValueError as error:
            return str(error)

    @override
    def column(self, data: Data) -> Any | None:
        heads = [(one or b"")[: HEAD.itemsize] for one in data]
        if any(len(head) < HEAD.itemsize for head in heads):
            return None
        found = np.frombuffer(b"".join(heads), HEAD)
        if found["magic"].any():
            return None
        bodies = [(one or b"")[HEAD.itemsize :] for one in data]
        columns, rows = [pa.array([], self.kind)], []
        for schema_id in np.unique(found["schema_id"]).tolist():
            of_id = np.flatnonzero(found["schema_id"] == schema_id)
            column = self._column(schema_id, [bodies[row] for row in of_id.tolist()])
            if column is None:
                return None
            columns.append(column)
            rows.append(of_id)
        if len(rows) == 1:
            return columns[1]
        order = np.argsort(np.concatenate([*rows, np.empty(0, np.int64)]))
        return pa.concat_arrays(columns).take(pa.array(order))

    def _column(self, schema_id: int, bodies: list[bytes]) -> Any | None:
        try:
            return self._of_id(schema_id).column(bodies)
        except ValueError:
            return None

    def _of(self, data: bytes) -> Deserializer:
        """Return the deserializer of a value; raises the `ValueError` of `read`."""
        if data[:1] != b"\0":
            raise ValueError("it does not begin with the zero byte and the id of a schema")
        if len(data) < HEAD.itemsize:
            raise ValueError("it ends within the id of its schema")
        return self._of_id(int.from_bytes(data[1 : HEAD.itemsize], "big"))

    def _of_id(self, schema_id: int) -> Deserializer:
        until, reason = self._refused.get(schema_id, (0.0, ""))
        if time.monotonic() < until:
            raise ValueError(reason)
        if schema_id not in self._by_id:
            writer = patiently(partial(self._written, schema_id), self._patience, SourceError)
            if writer is None:
                reason = f"the registry has no schema with the id {schema_id}"
                self._refused[schema_id] = time.monotonic() + _RETRY_SECONDS, reason
                raise ValueError(reason)
            try:
                self._by_id[schema_id] = self._format.deserializer(writer, self._reader)
            except ValueError as error:
                reason = f"its schema {schema_id} does not fit: {error}"
                self._refused[schema_id] = float("inf"), reason
                raise ValueError(reason) from None
        return self._by_id[schema_id]

    def _written(self, schema_id: int) -> str | None:
        """Return the schema with an id, with those that it refers to; `None` if there is none."""
        client = client_of(self._registry, SourceError)
        found = client.schema(schema_id)
        return found and schema_text(self._registry, client, found, schema_id)


@lru_cache(maxsize=32)
def registry_deserializer(registry: Registry, reader: str, patience_seconds: float) -> Deserializer:
    """Return this process's deserializer of values that are read as a schema."""
    return RegistryDeserializer(registry, reader, patience_seconds)


class Readers:
    """Schemas as which the values of topics are read, and their log.

    Args:
        registry: the registry.
        log: durable list of the source.
        as_records: True if values become records in columns.
    """

    def __init__(self, registry: Registry, log: SourceLog, *, as_records: bool) -> None:
        self._registry, self._log, self._as_records = registry, log, as_records
        self._format = FORMATS[registry.format]
        self._known = {entry["subject"]: entry for entry in log.entries()}

    def reader(self, topic: str) -> str:
        """Return the schema as which the next epoch reads the values of a topic.

        All values before the ends of the topic that the brokers have reported have a schema that is
        registered now.

        Raises:
            Unreachable: the registry does not answer now.
            SourceError: there is no schema, or no schema reads all versions.
        """
        subject = self._registry.subject_of(topic)
        known = self._known.get(subject)
        if known is not None and self._registry.evolve == "pinned":
            return str(known["reader"])
        client = client_of(self._registry, SourceError)
        versions = client.versions(subject)
        if known is None:
            if not versions:
                raise SourceError(
                    f"{self._registry} has no subject {subject!r}, and topic {topic!r} has "
                    "messages: pass subject=..., if their producers name it otherwise"
                )
            versions = versions[-1:]
        for number in versions:
            if known is None or number > known["version"]:
                known = self._evolve(subject, known, client.version(subject, number))
        return str(known["reader"]) if known else ""

    def close(self) -> None:
        """Close the connections to the registry."""
        close_client(self._registry, SourceError)

    def _evolve(self, subject: str, known: Mapping[str, Any] | None, new: Any) -> dict[str, Any]:
        """Return the entry of a subject after a new version, which the log has then."""
        registry, schema_id = self._registry, new.schema_id
        schema = schema_text(registry, client_of(registry, SourceError), new.schema, schema_id)
        reader = schema if known is None else str(known["reader"])
        what = f"version {new.version} (schema id {schema_id}) of subject {subject!r}"
        try:
            own = self._format.deserializer(schema, schema)
            _ = own.kind if self._as_records else None
            if registry.evolve == "widen":
                reader = self._format.widened(reader, schema)
            elif known is not None and (changes := self._format.changes(reader, schema)):
                raise SourceError(
                    f"{what} differs from version {known['version']}, which the flow reads: "
                    f"{changes}. Pass evolve='widen' to read what is new, or evolve='pinned' to "
                    "read all values as they were"
                )
        except FlowBuildError as problem:
            raise SourceError(f"{what} cannot be read: {problem}") from None
        except ValueError as problem:
            raise SourceError(
                f"{what} cannot be read together with earlier ones: {problem}. Pass "
                "evolve='pinned' to read what fits the earlier ones, or read another topic"
            ) from None
        entry = {"subject": subject, "version": new.version, "reader": reader}
        self._log.append(entry)
        self._known[subject] = entry
        return entry


class RegistryPlanner(KafkaPlanner):
    """Planner whose splits have the schemas as which their values are read.

    Args:
        readers: the schemas of each topic.
        others: the arguments of `KafkaPlanner`.
    """

    def __init__(self, readers: Readers, *others: Any, **named: Any) -> None:
        super().__init__(*others, **named)
        self._readers = readers

    @override
    def _next(self, start: Json | None) -> Slice | None:
        planned = super()._next(start)
        if planned is None or not planned.splits:
            return planned
        self._answered = True  # by the brokers
        topics = {split.what[0] for split in planned.splits}
        readers = {topic: self._readers.reader(topic) for topic in sorted(topics)}
        splits = [
            replace(split, what=[*split.what, readers[split.what[0]]]) for split in planned.splits
        ]
        return replace(planned, splits=splits)

    @override
    def close(self) -> None:
        self._readers.close()
