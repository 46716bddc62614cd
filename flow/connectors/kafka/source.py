"""Reading topics of Apache Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

from typing_extensions import override

from flow.checks import check_choice, check_whole
from flow.connectors.formats.json_decoding import check_json_types
from flow.connectors.formats.schema import Schema, as_schema
from flow.connectors.kafka.client import checked_servers
from flow.connectors.kafka.cluster import Cluster, TopicPartition, matches
from flow.connectors.kafka.properties import Properties, as_properties
from flow.connectors.kafka.reading.deserializers import (
    AvroForm,
    BytesForm,
    Form,
    JsonColumns,
    JsonForm,
    TextForm,
)
from flow.connectors.kafka.reading.flat_json import FlatJsonColumns, is_flat
from flow.connectors.kafka.reading.items import METADATA, Items, ObjectItems, RecordItems
from flow.connectors.kafka.reading.losses import OnDataLoss
from flow.connectors.kafka.reading.planner import KafkaPlanner, Reach
from flow.connectors.kafka.reading.positions import EARLIEST, LATEST, Position, checked_position
from flow.connectors.kafka.reading.ranges import Access, connection
from flow.connectors.kafka.reading.weighing import MOST_RECORDS, OBJECT_BYTES, RECORD_BYTES, Scales
from flow.connectors.source import ON_INVALID, Batch, OnInvalid, Planner, Source, SourceLog, Split
from flow.durations import Duration, duration_us
from flow.errors import FlowBuildError, FlowTypeError, shorten
from flow.garbage import no_collection

FormName: TypeAlias = Literal["bytes", "text", "json", "avro"]
"""How the bytes of keys or values are read."""
ItemKind: TypeAlias = Literal["messages", "records"]
"""Whether items are `KafkaMessage` objects, or records in columns."""
AnySchema: TypeAlias = "Schema | str | Mapping[str, Any] | Sequence[Any]"
"""The columns of JSON objects, or an Avro schema."""

_FORMS = ("bytes", "text", "json", "avro")
_OWN = {
    "bootstrap.servers": "it is the argument servers",
    "enable.auto.commit": "offsets are kept with the flow's checkpoint, not on the broker",
    "enable.auto.offset.store": "offsets are kept with the flow's checkpoint, not on the broker",
    "enable.partition.eof": "the source sets it itself",
    "auto.offset.reset": "it is the arguments start and on_data_loss",
    "error_cb": "the source sets it itself",
    "logger": "the source sets it itself",
}


@dataclass(frozen=True)
class KafkaSource(Source[Any]):
    """Read topics of Apache Kafka.

    Needs confluent-kafka, and for Avro fastavro, the extra ``kafka``, where the flow is started and
    in the workers. How far the flow has come is kept with its checkpoint, and nowhere else: an
    epoch that is run again reads the same messages, and a consumer group has no part in it. Each
    partition of a topic is a source partition. Partitions, and with `pattern` topics, that are
    added while the flow runs are read from their beginning. Of messages that are written in
    transactions, those that have been committed are read, unless the property ``isolation.level``
    says otherwise.

    Items are `KafkaMessage` objects, or, when there is a `schema`, records in columns, which are
    several times faster. A record has the fields of the message's value, or one field ``value``
    when that is text or bytes, and beside them ``key``, ``topic``, ``partition``, ``offset``,
    ``timestamp``, ``timestamp_type`` and ``headers``. Where the value has a field of such a name,
    `prefix` keeps the two apart. So ``EventClock("timestamp", ...)`` takes the time that the
    producer or the broker has given the message, and any other path a field of the value.

    A bad message is one whose key or value cannot be read: not UTF-8, not JSON, not an object that
    fits the schema, see `JsonLinesSource`, not Avro; a record of JSON or Avro without a value; one
    whose time is read and is not within the years 1 to 9999; and a message without a key, if
    `null_key` says so. The ``errors`` stream carries them as `BadMessage`.

    Args:
        servers: the brokers to ask first, ``"localhost:9092"``, or several with commas between.
        topics: the topics, one or several by name.
        pattern: a regular expression that the whole name of a topic must match, instead of
            `topics`; topics that appear later are read, too. Kafka's own are left out.
        start: where a flow starts that has no checkpoint: ``"earliest"``, ``"latest"``, an aware
            datetime, at the first messages at or after it, or offsets by topic and partition, such
            as ``{"orders": {0: 17}}``; partitions that are not named there start at their earliest.
        end: where to end: ``None`` for never, ``"latest"`` for the ends there are when the run
            starts, an aware datetime, or offsets. With an end the source is bounded.
        key: how keys are read: ``"bytes"``, ``"text"``, ``"json"`` or ``"avro"``.
        value: how values are read, likewise.
        schema: the columns of JSON values, as a `pyarrow.Schema` or a mapping of names to pyarrow
            types; or the Avro schema of values, as JSON text or what that means.
        key_schema: the same for keys.
        items: ``"records"`` or ``"messages"``; when left out, records if there is a `schema`.
        prefix: what the names of the columns beside the value's fields begin with.
        null_key: ``"invalid"`` to take a message without a key for a bad one.
        on_invalid: what to do with a bad message.
        max_records_per_epoch: how many messages an epoch reads, at most: a backlog comes in epochs
            of this size, and the partitions furthest behind in event time are read first. When left
            out, as many as take some 800 MB by the size of the next ones, and four million at most.
        on_data_loss: what to do when messages that were to be read are gone from the broker, or the
            topic is: ``"fail"``, or ``"warn"`` and go on with what is left.
        discover_every: how often to look for new partitions.
        patience: how long to wait for brokers that do not answer, or that answer no more. A run
            that has never had an answer waits for 20 seconds at most.
        properties: any other property of the client, librdkafka; their values are not shown.

    Raises:
        FlowTypeError, FlowBuildError: when an argument is not fit.
        EnvironmentProblem: when a client or Avro is not installed.
        SourceError: when the flow runs: no broker answers, a topic is not there, or messages are
            gone.

    >>> import pyarrow as pa
    >>> prices = {"price": pa.float64()}
    >>> source = KafkaSource("localhost:9092", "orders", value="json", schema=prices)
    >>> source.names
    ['price', 'key', 'topic', 'partition', 'offset', 'timestamp', 'timestamp_type', 'headers']
    """

    servers: str
    topics: str | Sequence[str] | None = None
    _: KW_ONLY
    pattern: str | None = None
    start: Position = EARLIEST
    end: Position | None = None
    key: FormName = "bytes"
    value: FormName = "bytes"
    schema: AnySchema | None = None
    key_schema: AnySchema | None = None
    items: ItemKind | None = None
    prefix: str = ""
    null_key: Literal["keep", "invalid"] = "keep"
    on_invalid: OnInvalid = "fail"
    max_records_per_epoch: int | None = None
    on_data_loss: OnDataLoss = "fail"
    discover_every: Duration = "10s"
    patience: Duration = "2m"
    properties: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._set("servers", checked_servers(self.servers))
        self._set("topics", _checked_topics(self.topics, self.pattern))
        self._set("start", checked_position("start", self.start, (EARLIEST, LATEST)))
        if self.end is not None:
            self._set("end", checked_position("end", self.end, (LATEST,)))
        for name in ("start", "end"):
            self._check_offsets_read(name, getattr(self, name))
        self._set("bounded", self.end is not None)
        self._set("properties", as_properties(self.properties, _OWN))
        check_choice("on_invalid", self.on_invalid, ON_INVALID)
        check_choice("null_key", self.null_key, ("keep", "invalid"))
        check_choice("on_data_loss", self.on_data_loss, ("fail", "warn"))
        if self.max_records_per_epoch is not None:
            check_whole("max_records_per_epoch", self.max_records_per_epoch, 1)
        for name in ("discover_every", "patience"):
            _check_positive(name, getattr(self, name))
        self._set("items", self._checked_items())
        self._check_names()

    @property
    def names(self) -> list[str]:
        """The names of the columns of records; none when items are messages."""
        reader = self._reader
        if not isinstance(reader, RecordItems):
            return []
        return [*reader.value_names, *(self.prefix + name for name in METADATA)]

    @override
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        topics = (self.topics,) if isinstance(self.topics, str) else tuple(self.topics or ())
        reach = Reach(
            topics,
            self.pattern,
            self.start,
            self.end,
            self.max_records_per_epoch or MOST_RECORDS,
            self.on_data_loss,
            duration_us(self.discover_every) / 1e6,
            duration_us(self.patience) / 1e6,
        )
        scales = None
        if self.max_records_per_epoch is None:
            besides = RECORD_BYTES if self.items == "records" else OBJECT_BYTES
            scales = Scales(self._access, besides)
        cluster = Cluster(self.servers, self._client_properties)
        return KafkaPlanner(reach, cluster, parallelism, scales=scales)

    @override
    def read(self, split: Split) -> Iterator[Batch]:
        return self._read(split, None)

    @override
    def read_fields(self, split: Split, fields: frozenset[str]) -> Iterator[Batch]:
        return self._read(split, fields)

    def _read(self, split: Split, fields: frozenset[str] | None) -> Iterator[Batch]:
        topic, number, start, end = split.what
        with connection(self._access) as reader:
            for messages in reader.messages(TopicPartition(topic, number), start, end):
                with no_collection():
                    made = list(self._reader.batches(messages, fields))
                yield from made

    @property
    def _access(self) -> Access:
        patience = duration_us(self.patience) / 1e6
        return Access(self.servers, self._client_properties, self.on_data_loss, patience)

    @property
    def _client_properties(self) -> Properties:
        return as_properties(self.properties, _OWN)

    @cached_property
    def _reader(self) -> Items:
        records = self.items == "records"
        key = _form("key", self.key, self.key_schema, records=records)
        value = _form("value", self.value, self.schema, records=records)
        needed = self.null_key == "invalid"
        if records:
            return RecordItems(key, value, key_needed=needed, prefix=self.prefix)
        return ObjectItems(key, value, key_needed=needed)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_offsets_read(self, name: str, position: Position | None) -> None:
        """Offsets must be those of topics that are read."""
        topics = (self.topics,) if isinstance(self.topics, str) else self.topics
        for topic in position if isinstance(position, Mapping) else ():
            if not (matches(self.pattern or "", topic) if topics is None else topic in topics):
                raise FlowBuildError(
                    f"KafkaSource: {name} has offsets of topic {topic!r}, which it does not read"
                )

    def _checked_items(self) -> ItemKind:
        if self.items is None:
            return "messages" if self.schema is None else "records"
        check_choice("items", self.items, ("messages", "records"))
        return self.items

    def _check_names(self) -> None:
        """Make the forms, which checks the schemas, and let no two columns have one name."""
        if not isinstance(self.prefix, str):
            raise FlowTypeError(f"KafkaSource: prefix must be text, got {shorten(self.prefix)}")
        names = self.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            listed = ", ".join(map(repr, twice))
            raise FlowBuildError(
                f"KafkaSource: the value's schema has {listed}, which is the name of a column that "
                "each record has of its message: give a prefix for those, such as prefix='kafka_'"
            )


def _form(name: str, form: str, schema: AnySchema | None, *, records: bool) -> Form:
    """How keys or values are read.

    Raises:
        FlowTypeError, FlowBuildError: when the schema does not fit.
    """
    check_choice(name, form, _FORMS)
    argument = "schema" if name == "value" else "key_schema"
    if schema is not None and form not in ("json", "avro"):
        raise FlowBuildError(
            f"KafkaSource: {argument} is for {name}='json' or {name}='avro', got {name}={form!r}"
        )
    needs = form == "avro" or (form == "json" and records)
    if needs and schema is None:
        raise FlowBuildError(f"KafkaSource: {name}={form!r} needs {argument}")
    match form:
        case "bytes":
            return BytesForm()
        case "text":
            return TextForm()
        case "avro":
            made = AvroForm(schema)
            if records:
                _ = made.kind
            return made
    if not records:
        if schema is not None:
            raise FlowBuildError(
                f"KafkaSource: {argument} says which columns records have: leave it out for "
                "messages, whose JSON is read as it is"
            )
        return JsonForm()
    columns = as_schema(schema)
    check_json_types(columns)
    return FlatJsonColumns(columns) if is_flat(columns) else JsonColumns(columns)


def _checked_topics(topics: object, pattern: object) -> object:
    if (topics is None) == (pattern is None):
        raise FlowBuildError("KafkaSource: give either topics or a pattern")
    if pattern is not None:
        _check_pattern(pattern)
        return None
    listed: list[Any]
    if isinstance(topics, str):
        listed = [topics]
    elif isinstance(topics, Sequence):
        listed = list(topics)
    else:
        listed = []
    if not listed or not all(isinstance(one, str) and one for one in listed):
        raise FlowTypeError(
            f"KafkaSource: topics must be the name of a topic, or several, got {shorten(topics)}"
        )
    if len(set(listed)) < len(listed):
        raise FlowBuildError(f"KafkaSource: topics has a name twice: {shorten(topics)}")
    return topics if isinstance(topics, str) else tuple(listed)


def _check_pattern(pattern: object) -> None:
    if not isinstance(pattern, str):
        raise FlowTypeError(
            "KafkaSource: pattern must be the text of a regular expression, "
            f"got {type(pattern).__name__} {shorten(pattern)}"
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise FlowBuildError(
            f"KafkaSource: pattern {pattern!r} is not a regular expression: {error}"
        ) from None


def _check_positive(name: str, duration: Duration) -> None:
    if duration_us(duration, name) <= 0:
        raise FlowBuildError(f"KafkaSource: {name} must be more than nothing, got {duration!r}")
