"""The sink that writes to a topic."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, Literal, TypeAlias

import pyarrow as pa
from typing_extensions import override

from flow.checks import check_choice, check_whole
from flow.connectors.kafka.connection import Clients
from flow.connectors.kafka.properties import SERVERS, as_properties
from flow.connectors.kafka.writing.epochs_topic import EPOCHS_TOPIC, EpochsTopic
from flow.connectors.kafka.writing.records import SCHEMA, Encoding, Getter, HeaderGetter
from flow.connectors.kafka.writing.sending import write_directly
from flow.connectors.kafka.writing.serializers import Format, serializer_of
from flow.connectors.kafka.writing.topics import Topic
from flow.connectors.kafka.writing.transactions import (
    AFTER_REWIND,
    AfterRewind,
    TransactionalWriter,
)
from flow.connectors.sink import Guarantee, Sink, WriteContext, Written
from flow.errors import FlowTypeError, SinkError, shorten

Promise: TypeAlias = Literal["exactly once", "at least once"]
"""What a sink promises when an epoch is run again."""

_PROMISES = tuple(one.value for one in Guarantee)
_RESERVED = {
    SERVERS: "it is the sink's first argument",
    "transactional.id": "the sink makes it of the run and the step",
    "enable.idempotence": "the sink needs it",
    "queue.buffering.max.messages": "the sink sees to it that the queue stays small",
    "queue.buffering.max.kbytes": "the sink sees to it that the queue stays small",
    "delivery.report.only.error": "the sink needs it",
}
_FORGOTTEN = (
    "the topic of epochs %r was not there and has been made: if this run has written to %r before, "
    "the epoch that was in hand when it stopped may be written a second time"
)
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")

logger = logging.getLogger("flow")


@dataclass(frozen=True)
class _Chunk:
    """Encoded messages of one step, in columns as in `SCHEMA`, packed.

    They go through Spark to where the flow was started, and are copied several times on the way:
    that takes longer than to compress them, which leaves a seventh of windows as JSON.
    """

    step_id: str
    rewinds: int
    content: bytes

    @classmethod
    def packed(cls, context: WriteContext, batch: pa.RecordBatch) -> _Chunk:
        packed = pa.BufferOutputStream()
        with pa.ipc.new_stream(packed, SCHEMA, options=_COMPRESSED) as stream:
            stream.write_batch(batch)
        return cls(context.step_id, context.rewinds, packed.getvalue().to_pybytes())

    def batch(self) -> pa.RecordBatch:
        return pa.ipc.open_stream(self.content).read_next_batch()


@dataclass
class _Run:
    """What a sink knows of the run that it was opened for."""

    run_id: str = ""
    clients: Clients | None = None
    writers: dict[str, TransactionalWriter] = field(default_factory=dict)


@dataclass(frozen=True)
class KafkaSink(Sink[Any]):
    """Write items to a topic of Apache Kafka, each as a message, each exactly once.

    An item is laid out in columns as `flow.connectors.sink.to_record` says: a mapping or a
    dataclass its fields, a ``(key, value)`` pair ``key`` and the fields of the value, a window's
    result ``key``, the window's fields and the result's. Of these the message is made: its key is
    the column ``key``; its value, a JSON object of the others; its time, the column ``timestamp``,
    where that holds points in time (as it does when a windowing operator was asked for a
    `timestamp`), and else the time when it is sent. Each of the four can be chosen instead: by the
    path of a field, such as ``"details.id"``, or by a function of the item. A value that is `None`
    is a tombstone, and bytes are written as they are. A `KafkaRecord` says all four itself.

    An epoch is one transaction, which holds its records and its number; the number goes to a
    compacted topic beside. So a reader with ``isolation.level=read_committed`` sees each record
    once, whatever happens in between, and a reader without it may see records of epochs that were
    cut off. What one key's items are written as stays in order. A run that is superseded by another
    one on the same checkpoint can write no more.

    Args:
        servers: the brokers' addresses, such as ``"kafka-1:9092,kafka-2:9092"``.
        topic: the topic to write to.
        key: the message's key: a path or a function; the column ``key`` by default, which then is
            not part of the value.
        value: its value: a path or a function.
        headers: its headers: which field or function makes each, by the header's name; or a
            function that returns a mapping, or pairs, of names and values.
        timestamp: its time: a path or a function that gives what an `EventClock` takes.
        key_format: how the key is written: ``"text"``, ``"json"``, ``"bytes"`` or `Avro`.
        value_format: how the value is written; of the same.
        guarantee: ``"at least once"`` is written by the workers, in parallel and without
            transactions: an epoch that is run again writes again what it had written.
        properties: properties of the client (librdkafka's names), such as
            ``{"security.protocol": "SASL_SSL", "sasl.password": ...}``. They are never shown.
        partitions: with how many partitions the topic is made where it is not there; it has to be
            there if left out.
        after_rewind: what to do with an epoch that was written before and is done anew, because
            the run was set back (``python -m recovery rewind``): Kafka takes nothing back.
            ``"refuse"`` fails; ``"write"`` writes it again, which is right where readers take the
            last record of each key.
        epochs_topic: the topic of the epochs' numbers, which is made where it is not there.

    Raises:
        FlowBuildError: an argument that cannot be used.
        EnvironmentProblem: when the flow runs, and the package confluent-kafka is not there.
        SinkError: when the flow runs: brokers that cannot be reached, a topic that is not there, a
            record that is too large, a transaction that takes too long, another run that has taken
            over. Nothing is lost by it: the next run goes on.

    >>> KafkaSink("localhost:9092", "totals", key="shop", properties={"sasl.password": "s3cr3t"})
    KafkaSink('localhost:9092', 'totals', key='shop', properties={'sasl.password': '***'})
    """

    servers: str
    topic: str
    _: KW_ONLY
    key: Getter | None = None
    value: Getter | None = None
    headers: HeaderGetter | None = None
    timestamp: Getter | None = None
    key_format: Format = "text"
    value_format: Format = "json"
    # What is given may be text; what it becomes is what the base class says.
    guarantee: Promise | Guarantee = "exactly once"  # type: ignore[assignment]
    properties: Mapping[str, Any] = field(default_factory=dict)
    partitions: int | None = None
    after_rewind: AfterRewind = "refuse"
    epochs_topic: str = EPOCHS_TOPIC
    lays_out: bool = field(init=False, repr=False, compare=False)
    _encoding: Encoding = field(init=False, repr=False, compare=False)
    _run: _Run = field(default_factory=_Run, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("servers", "topic", "epochs_topic"):
            _check_name(name, getattr(self, name))
        for name in ("key", "value", "timestamp"):
            _check_getter(name, getattr(self, name))
        _check_headers(self.headers)
        check_choice("after_rewind", self.after_rewind, AFTER_REWIND)
        if self.partitions is not None:
            check_whole("partitions", self.partitions, 1)
        if not isinstance(self.guarantee, Guarantee):
            check_choice("guarantee", self.guarantee, _PROMISES)
        object.__setattr__(self, "guarantee", Guarantee(self.guarantee))
        object.__setattr__(self, "properties", as_properties(self.properties, _RESERVED))
        object.__setattr__(self, "_encoding", self._made_encoding())
        object.__setattr__(self, "lays_out", self._encoding.columnar)

    def __repr__(self) -> str:
        arguments = [repr(self.servers), repr(self.topic)]
        for one in fields(self)[2:]:
            value = getattr(self, one.name)
            if not one.init or value == one.default or (one.name == "properties" and not value):
                continue
            if one.name == "guarantee":
                if self._exactly_once:
                    continue
                value = value.value
            arguments.append(f"{one.name}={value!r}")
        return f"KafkaSink({', '.join(arguments)})"

    def __getstate__(self) -> dict[str, Any]:
        """What travels to workers: properties only where they are the ones who write."""
        state = {**self.__dict__, "_run": _Run()}
        return {**state, "properties": {}} if self._exactly_once else state

    @override
    def open(self, run_id: str, resuming: bool) -> None:
        clients = Clients(self.servers, self.properties)
        with clients.explained(f"topic {self.topic!r} cannot be opened"):
            clients.producer({})  # which knows whether the properties are properties
            self._check_topic(Topic(clients, self.topic))
            made = self._exactly_once and EpochsTopic(clients, self.epochs_topic).make()
        if made and resuming:
            logger.warning(_FORGOTTEN, self.epochs_topic, self.topic)
        self._run.run_id, self._run.clients = run_id, clients

    @override
    def write(self, context: WriteContext, batches: Iterator[Written]) -> list[_Chunk]:
        encoded = self._encoding.encoded(batches, context.step_id)
        if self._exactly_once:
            return [_Chunk.packed(context, batch) for batch in encoded]
        what = f"step {context.step_id!r}: epoch {context.epoch} could not be written"
        write_directly(Clients(self.servers, self.properties), self.topic, encoded, what)
        return []

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        chunks: list[_Chunk] = [chunk for message in messages for chunk in message]
        if chunks:
            writer = self._writer(chunks[0].step_id)
            rewinds = max(chunk.rewinds for chunk in chunks)
            batches = [chunk.batch() for chunk in chunks]
            writer.write(epoch, batches, rewinds, self.after_rewind)

    @override
    def close(self) -> None:
        writers, self._run.clients = list(self._run.writers.values()), None
        self._run.writers.clear()
        for writer in writers:
            writer.close()

    @property
    def encoding(self) -> Encoding:
        """How items become messages."""
        return self._encoding

    @property
    def _exactly_once(self) -> bool:
        return self.guarantee is Guarantee.EXACTLY_ONCE

    def _made_encoding(self) -> Encoding:
        return Encoding(
            self.key,
            self.value,
            self.headers,
            self.timestamp,
            serializer_of("key_format", self.key_format),
            serializer_of("value_format", self.value_format),
        )

    def _check_topic(self, topic: Topic) -> None:
        if topic.exists():
            return
        if self.partitions is None:
            raise SinkError(
                f"topic {self.topic!r} is not there (brokers {self.servers!r}): make it, or say "
                "with how many partitions the sink is to make it, partitions=..."
            )
        topic.make(self.partitions)

    def _writer(self, step_id: str) -> TransactionalWriter:
        run = self._run
        if run.clients is None:
            raise SinkError(f"step {step_id!r}: {self} is not open")
        if step_id not in run.writers:
            epochs = EpochsTopic(run.clients, self.epochs_topic)
            run.writers[step_id] = TransactionalWriter(
                run.clients, epochs, self.topic, run.run_id, step_id
            )
        return run.writers[step_id]


def _check_name(parameter: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise FlowTypeError(f"{parameter} must be text, got {shorten(value)}")


def _check_getter(parameter: str, value: object) -> None:
    if value is not None and not callable(value) and not (isinstance(value, str) and value):
        raise FlowTypeError(
            f"{parameter} must be the path of a field, or a function, got {shorten(value)}"
        )


def _check_headers(headers: object) -> None:
    if headers is None or callable(headers):
        return
    if not isinstance(headers, Mapping):
        raise FlowTypeError(
            "headers must map names to fields, such as {'unit': 'details.unit'}, or be a function, "
            f"got {shorten(headers)}"
        )
    for name, getter in headers.items():
        _check_name("a header's name", name)
        _check_getter(f"header {name!r}", getter)
