"""Sink that writes to a topic."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import pyarrow as pa
from typing_extensions import override

from flow.checks import check_choice, check_whole
from flow.connectors.driver_copies import pickles_for_driver
from flow.connectors.kafka.client import SERVERS, Clients, as_properties, datasets_of_topics
from flow.connectors.kafka.registry import Registry, client_of, close_client
from flow.connectors.kafka.sending import AfterRewind, TransactionalWriter, write_directly
from flow.connectors.kafka.serializers import (
    SCHEMA,
    Encoding,
    Format,
    Getter,
    HeaderGetter,
    Serializer,
    serializer_of,
)
from flow.connectors.kafka.topics import EPOCHS_TOPIC, EpochsTopic, Topic
from flow.connectors.sink import Guarantee, Sink, SinkBatch, WriteContext
from flow.connectors.source import Dataset, TaskServers
from flow.errors import FlowTypeError, SinkError, shorten

Promise: TypeAlias = Literal["exactly once", "at least once"]
"""Delivery guarantee: how often an item is written when its epoch is replayed."""

_PROMISES = tuple(one.value for one in Guarantee)
_OWN_PROPERTIES = {
    SERVERS: "it is the sink's first argument",
    "transactional.id": "the sink makes it of the run and the step",
    "enable.idempotence": "the sink needs it",
    "queue.buffering.max.messages": "the sink limits the queue itself",
    "queue.buffering.max.kbytes": "the sink limits the queue itself",
    "delivery.report.only.error": "the sink needs it",
}
_EPOCHS_LOST = (
    "the topic of epochs %r did not exist and was created: if this run has written to %r before, "
    "the epoch that was running when it stopped may be written twice"
)
_COMPRESSION = pa.ipc.IpcWriteOptions(compression="lz4")

logger = logging.getLogger("flow")


@dataclass(frozen=True)
class _Chunk:
    """Encoded messages of one step in the columns of `SCHEMA`, compressed.

    Chunks travel through Spark to the driver and are copied several times on the way. Compression
    takes less time than the copies; results of windows as JSON shrink to a seventh.
    """

    step_id: str
    rewinds: int
    content: bytes

    @classmethod
    def pack(cls, context: WriteContext, batch: pa.RecordBatch) -> _Chunk:
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, SCHEMA, options=_COMPRESSION) as stream:
            stream.write_batch(batch)
        return cls(context.step_id, context.rewinds, buffer.getvalue().to_pybytes())

    def batch(self) -> pa.RecordBatch:
        return pa.ipc.open_stream(self.content).read_next_batch()


@dataclass
class _Run:
    """State of a sink during a run."""

    run_id: str = ""
    clients: Clients | None = None
    writers: dict[str, TransactionalWriter] = field(default_factory=dict)


@dataclass(frozen=True)
class KafkaSink(Sink[Any]):
    """Sink that writes each item as a message to a topic of Apache Kafka, exactly once.

    `flow.connectors.sink.to_record` turns an item into columns. A mapping or a dataclass gives its
    fields; a ``(key, value)`` pair gives ``key`` and the fields of the value; a result of a window
    gives ``key``, the fields of the window and the fields of the result. The message's key is the
    column ``key``. Its value is a JSON object of the other columns. Its time is the column
    ``timestamp`` if that holds instants (as it does if a windowing operator has the argument
    `timestamp`), and else the time of sending. It has no headers. Each of the four parts can be
    replaced by the path of a field, such as ``"details.id"``, or by a function of the item. A value
    of `None` is a tombstone, and bytes are written unchanged. A `KafkaRecord` holds all four parts.

    An epoch is one transaction: its records, and its number, which goes to a second, compacted
    topic. A reader with ``isolation.level=read_committed`` sees each record once, also after
    crashes; a reader without it may see records of aborted epochs. Messages of a key stay in order.
    A run that is superseded by another run on the same checkpoint can write no more.

    Args:
        servers: addresses of the brokers, such as ``"kafka-1:9092,kafka-2:9092"``.
        topic: name of the topic.
        key: key of the message: a path or a function; by default the column ``key``, which then is
            not part of the value.
        value: value of the message: a path or a function.
        headers: headers of the message: a mapping of names to paths or functions, or a function
            that returns a mapping or pairs of names and values.
        timestamp: time of the message: a path or a function; the result is in a form that an
            `EventClock` takes.
        key_format: format of the key: ``"text"``, ``"json"``, ``"bytes"`` or `Avro`.
        value_format: format of the value, likewise; or a `Registry`, which gets the schema of the
            columns, or has the given one.
        guarantee: ``"exactly once"``, or ``"at least once"``: the workers then write in parallel
            and without transactions, and a replayed epoch writes its messages again.
        properties: properties of the client with librdkafka's names, such as
            ``{"security.protocol": "SASL_SSL", "sasl.password": ...}``. Values that may be secret
            are never shown.
        partitions: number of partitions with which a missing topic is created; if left out, the
            topic must exist.
        after_rewind: action for an epoch that was written and is computed again because the run was
            set back (``python -m recovery rewind``), as Kafka cannot remove messages. ``"refuse"``
            fails; ``"write"`` writes the epoch again, which is right for readers that take the last
            record of each key.
        epochs_topic: topic of the epochs' numbers; it is created if missing.

    Raises:
        FlowBuildError: an argument is not valid.
        EnvironmentProblem: when the flow runs, the package confluent-kafka is not installed.
        SinkError: when the flow runs: brokers cannot be reached, the topic is missing, a record is
            too large, a transaction takes too long, or another run replaces this one. No data is
            lost: the next run continues.

    >>> KafkaSink("localhost:9092", "totals", key="shop", properties={"sasl.password": "s3cr3t"})
    KafkaSink('localhost:9092', 'totals', key='shop', properties={'sasl.password': '***'})
    """

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("key", "value", "timestamp", "headers")

    servers: str
    topic: str
    _: KW_ONLY
    key: Getter | None = None
    value: Getter | None = None
    headers: HeaderGetter | None = None
    timestamp: Getter | None = None
    key_format: Format = "text"
    value_format: Format | Registry = "json"
    # The argument may be text; `__post_init__` turns it into the type of the base class.
    guarantee: Promise | Guarantee = "exactly once"  # type: ignore[assignment]
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)
    partitions: int | None = None
    after_rewind: AfterRewind = "refuse"
    epochs_topic: str = EPOCHS_TOPIC
    lays_out: bool = field(init=False, repr=False, compare=False)
    encoding: Encoding = field(init=False, repr=False, compare=False)
    _run: _Run = field(default_factory=_Run, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("servers", "topic", "epochs_topic"):
            _check_name(name, getattr(self, name))
        for name in ("key", "value", "timestamp"):
            _check_getter(name, getattr(self, name))
        _check_headers(self.headers)
        check_choice("after_rewind", self.after_rewind, get_args(AfterRewind))
        if self.partitions is not None:
            check_whole("partitions", self.partitions, 1)
        if not isinstance(self.guarantee, Guarantee):
            check_choice("guarantee", self.guarantee, _PROMISES)
        object.__setattr__(self, "guarantee", Guarantee(self.guarantee))
        object.__setattr__(self, "properties", as_properties(self.properties, _OWN_PROPERTIES))
        if isinstance(self.value_format, Registry):
            from flow.connectors.kafka.registry_writing import RegistrySerializer

            value_format: Serializer = RegistrySerializer(self.value_format, self.topic)
        else:
            value_format = serializer_of("value_format", self.value_format)
        encoding = Encoding(
            self.key,
            self.value,
            self.headers,
            self.timestamp,
            serializer_of("key_format", self.key_format),
            value_format,
        )
        object.__setattr__(self, "encoding", encoding)
        object.__setattr__(self, "lays_out", self.encoding.columnar)

    def __repr__(self) -> str:
        arguments = [repr(self.servers), repr(self.topic)]
        shown = {**vars(self), "guarantee": Guarantee(self.guarantee).value}
        for one in fields(self)[2:]:
            value = shown[one.name]
            if one.init and value not in (one.default, {}):
                arguments.append(f"{one.name}={value!r}")
        return f"KafkaSink({', '.join(arguments)})"

    def __getstate__(self) -> dict[str, Any]:
        """Send properties to workers only if the workers write."""
        state = {**self.__dict__, "_run": _Run()}
        is_for_workers = self._exactly_once and not pickles_for_driver()
        return {**state, "properties": {}} if is_for_workers else state

    @property
    @override
    def task_servers(self) -> Sequence[TaskServers]:
        registry = self.value_format
        servers = (registry.task_servers,) if isinstance(registry, Registry) else ()
        if self._exactly_once:  # The driver writes.
            return servers
        way = "open the network of the workers, or leave the guarantee 'exactly once'"
        own = TaskServers(self.servers.split(","), f"{way}, by which the driver writes")
        return (own, *servers)

    @override
    def datasets(self) -> Sequence[Dataset]:
        return datasets_of_topics(self.servers, [self.topic])

    @override
    def check(self, resuming: bool) -> None:
        if isinstance(self.value_format, Registry):
            subject = self.value_format.subject_of(self.topic)
            client_of(self.value_format, SinkError).check(subject)

    @override
    def open(self, run_id: str, resuming: bool) -> None:
        clients = Clients(self.servers, self.properties)
        with clients.explained(f"topic {self.topic!r} cannot be opened"):
            clients.producer({})  # checks the properties
            self._check_topic(Topic(clients, self.topic))
            is_new = (
                self._exactly_once and EpochsTopic(clients, self.epochs_topic).make_if_missing()
            )
        if is_new and resuming:
            logger.warning(_EPOCHS_LOST, self.epochs_topic, self.topic)
        self.encoding.value_format.open()
        self._run.run_id, self._run.clients = run_id, clients

    @override
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> list[_Chunk]:
        encoded = self.encoding.encoded(batches, context.step_id)
        if self._exactly_once:
            return [_Chunk.pack(context, batch) for batch in encoded]
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
        if isinstance(self.value_format, Registry):
            close_client(self.value_format, SinkError)

    @property
    def _exactly_once(self) -> bool:
        return self.guarantee is Guarantee.EXACTLY_ONCE

    def _check_topic(self, topic: Topic) -> None:
        if topic.exists():
            return
        if self.partitions is None:
            raise SinkError(
                f"topic {self.topic!r} does not exist (brokers {self.servers!r}): create it, or "
                "pass partitions=... to let the sink create it"
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
    """Raise a `FlowTypeError` unless an argument is text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise FlowTypeError(f"{parameter} must be text, got {shorten(value)}")


def _check_getter(parameter: str, value: object) -> None:
    if isinstance(value, Registry) and parameter == "value":
        raise FlowTypeError("value is a Registry: pass it as value_format")
    if value is not None and not callable(value) and not (isinstance(value, str) and value):
        raise FlowTypeError(
            f"{parameter} must be the path of a field or a function, got {shorten(value)}"
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
