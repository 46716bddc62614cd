"""Source that reads topics of Apache Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

from typing_extensions import override

from flow.checks import check_choice, check_whole, wrong_type
from flow.connectors.kafka.client import (
    Properties,
    as_properties,
    checked_servers,
    datasets_of_topics,
)
from flow.connectors.kafka.cluster import (
    EARLIEST,
    LATEST,
    Cluster,
    Position,
    TopicPartition,
    checked_position,
    reads_topic,
)
from flow.connectors.kafka.deserializers import (
    AnySchema,
    Deserializer,
    FormName,
    deserializer_of,
)
from flow.connectors.kafka.message_items import METADATA, Items, ObjectItems, RecordItems
from flow.connectors.kafka.messages import KafkaMessage
from flow.connectors.kafka.planner import KafkaPlanner, Reach
from flow.connectors.kafka.ranges import MOST_RECORDS, Access, OnDataLoss, Scales, lend_reader
from flow.connectors.kafka.registry import Registry, client_of
from flow.connectors.source import (
    Batch,
    Dataset,
    OnInvalid,
    Planner,
    Source,
    SourceLog,
    Split,
    TaskServers,
)
from flow.durations import Duration, duration_us, positive_us
from flow.errors import FlowBuildError, FlowError, FlowTypeError, SourceError, shorten
from flow.garbage import no_collection

ItemKind: TypeAlias = Literal["messages", "records"]
"""Kind of items: `KafkaMessage` objects, or records in columns."""
_OWN_PROPERTIES = {
    "bootstrap.servers": "use the argument servers",
    "enable.auto.commit": "the flow's checkpoint keeps offsets, not the broker",
    "enable.auto.offset.store": "the flow's checkpoint keeps offsets, not the broker",
    "enable.partition.eof": "the source sets it itself",
    "auto.offset.reset": "use the arguments start and on_data_loss",
    "error_cb": "the source sets it itself",
    "logger": "the source sets it itself",
}


@dataclass(frozen=True)
class KafkaSource(Source[Any]):
    """Source of the messages of one or more topics of Apache Kafka.

    The source needs the packages of the extra ``kafka`` (confluent-kafka, and fastavro for Avro) on
    the driver and the workers. Only the flow's checkpoint holds the offsets: a replayed epoch reads
    the same messages, and no consumer group is used. Each partition of a topic is a source
    partition. Partitions that are added while the flow runs are read from their beginning, as are
    topics that match `pattern`. Of messages in transactions only the committed ones are read,
    unless the property ``isolation.level`` is set to another value.

    Items are `KafkaMessage` objects, or records in columns if there is a `schema`; records are
    several times faster. A record has the fields of the message's value, or one field ``value`` for
    text or bytes, and the metadata fields ``key``, ``topic``, ``partition``, ``offset``,
    ``timestamp``, ``timestamp_type`` and ``headers``. If the value has a field of one of these
    names, `prefix` renames the metadata fields. So ``EventClock("timestamp", ...)`` uses the time
    of the message, set by the producer or the broker, and other paths use fields of the value.

    A message is bad if its key or value is not UTF-8, not JSON, not an object that fits the schema
    (see `JsonLinesSource`) or not Avro; if a record of JSON or Avro has no value; and if its time
    is read and lies outside the years 1 to 9999. The ``errors`` stream carries bad messages as
    `BadMessage`.

    Args:
        servers: addresses of the first brokers to connect to: ``"localhost:9092"``, or several
            separated by commas.
        topics: name of a topic, or a list of names.
        pattern: regular expression that the whole name of a topic must match, in place of `topics`.
            Topics that appear later are read too; Kafka's own topics are not.
        start: position at which a flow without a checkpoint starts: ``"earliest"``; ``"latest"``;
            an aware datetime, for the first messages at or after it, with a warning if the broker
            may have deleted some of them; or offsets by topic and partition, such as ``{"orders":
            {0: 17}}``, where other partitions start at their earliest offset.
        end: position at which the source ends, exclusive: ``None`` for never; ``"latest"`` for the
            ends at the start of the run; an aware datetime; or offsets. With an end the source is
            bounded.
        key: format of keys: ``"bytes"``, ``"text"``, ``"json"`` or ``"avro"``.
        value: format of values, likewise; or a `Registry`, which has the schemas of Avro, Protobuf
            or JSON values.
        schema: columns of JSON values, as a `pyarrow.Schema` or a mapping of names to pyarrow
            types; or the Avro schema of values, as JSON text or the value that the text stands for.
        key_schema: schema of keys, likewise.
        items: ``"records"`` or ``"messages"``; by default, records if there is a schema.
        prefix: prefix of the names of the metadata fields.
        on_invalid: action for a bad message.
        max_records_per_epoch: greatest number of messages in an epoch. A backlog is read in epochs
            of this size, and the partitions furthest behind in event time are read first. By
            default, an epoch reads about 800 MB by the size of the next messages, and at most four
            million messages.
        on_data_loss: action if messages to read, or the topic, are no longer on the broker:
            ``"fail"``, or ``"warn"`` to continue with the rest.
        discover_every: interval of looking for new partitions.
        patience: time to wait for brokers that do not answer; at most 20 seconds if no broker has
            answered in this run.
        properties: other properties of the client, librdkafka; values that may be secret are never
            shown.

    Raises:
        FlowTypeError, FlowBuildError: an argument is not valid.
        EnvironmentProblem: confluent-kafka or fastavro is not installed.
        SourceError: when the flow runs: no broker answers, a topic does not exist, or messages are
            lost.

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
    value: FormName | Registry = "bytes"
    schema: AnySchema | None = None
    key_schema: AnySchema | None = None
    items: ItemKind | None = None
    prefix: str = ""
    on_invalid: OnInvalid = "fail"
    max_records_per_epoch: int | None = None
    on_data_loss: OnDataLoss = "fail"
    discover_every: Duration = "10s"
    patience: Duration = "2m"
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        self._set("servers", checked_servers(self.servers))
        self._set("topics", _checked_topics(self.topics, self.pattern))
        self._set("start", checked_position("start", self.start, (EARLIEST, LATEST)))
        if self.end is not None:
            self._set("end", checked_position("end", self.end, (LATEST,)))
        for name in ("start", "end"):
            self._check_offsets_given(name, getattr(self, name))
        self._set("bounded", self.end is not None)
        self._set("properties", as_properties(self.properties, _OWN_PROPERTIES))
        check_choice("on_invalid", self.on_invalid, get_args(OnInvalid))
        check_choice("on_data_loss", self.on_data_loss, ("fail", "warn"))
        if self.max_records_per_epoch is not None:
            check_whole("max_records_per_epoch", self.max_records_per_epoch, 1)
        for name in ("discover_every", "patience"):
            positive_us(getattr(self, name), f"KafkaSource: {name}")
        self._set("items", self._checked_items())
        self._check_names()

    @property
    def names(self) -> list[str]:
        """Names of the columns of records; empty if items are messages, or with a registry."""
        if isinstance(self.value, Registry) or not isinstance(self._conversion, RecordItems):
            return []
        return self._names(self._conversion)

    @override
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        reach = Reach(
            self._topic_names,
            self.pattern,
            self.start,
            self.end,
            self.max_records_per_epoch or MOST_RECORDS,
            self.on_data_loss,
            duration_us(self.discover_every) / 1e6,
            self._access.patience_seconds,
        )
        scales = None
        if self.max_records_per_epoch is None:
            scales = Scales(self._access, records=self.items == "records")
        cluster = Cluster(self.servers, self._access.properties)
        if not isinstance(self.value, Registry):
            return KafkaPlanner(reach, cluster, parallelism, scales=scales)
        from flow.connectors.kafka.registry_reading import Readers, RegistryPlanner

        readers = Readers(self.value, log, as_records=self.items == "records")
        return RegistryPlanner(readers, reach, cluster, parallelism, scales=scales)

    @override
    def check(self) -> None:
        if isinstance(self.value, Registry):
            for topic in self._topic_names or [""]:  # A pattern has no names yet.
                client_of(self.value, SourceError).check(self.value.subject_of(topic))

    @override
    def read(self, split: Split) -> Iterator[Batch]:
        return self.read_fields(split, None)

    @override
    def read_fields(self, split: Split, fields: frozenset[str] | None) -> Iterator[Batch]:
        topic, number, start, end, *schema = split.what
        if bool(schema) != isinstance(self.value, Registry):
            raise SourceError(
                "the interrupted epoch was planned for values of another format: run it with the "
                "value= of before, then change it"
            )
        conversion = self._conversion_of(*schema) if schema else self._conversion
        with lend_reader(self._access) as reader:
            for messages in reader.messages(TopicPartition(topic, number), start, end):
                with no_collection():
                    batches = list(conversion.batches(messages, fields))
                yield from batches

    @property
    def _topic_names(self) -> tuple[str, ...]:
        return (self.topics,) if isinstance(self.topics, str) else tuple(self.topics or ())

    @property
    def _access(self) -> Access:
        patience = duration_us(self.patience) / 1e6
        return Access(self.servers, Properties(self.properties), self.on_data_loss, patience)

    @property
    @override
    def task_servers(self) -> Sequence[TaskServers]:
        way = (
            "open the network of the workers, or read the topic with Spark's own connector as a "
            "DataFrameSource (docs/reference/kafka.md, Through Spark's own connector)"
        )
        own = TaskServers(self.servers.split(","), way)
        return (own, self.value.task_servers) if isinstance(self.value, Registry) else (own,)

    @override
    def datasets(self) -> Sequence[Dataset]:
        return datasets_of_topics(self.servers, self._topic_names)

    @override
    def record_columns(self) -> Any:
        if self.items != "records" or isinstance(self.value, Registry):
            return None
        empty: Any = self._conversion.batch([], None)
        return empty.schema

    @override
    def item_type(self) -> type:
        return dict if self.items == "records" else KafkaMessage

    @override
    def starting_at(self, position: Position) -> KafkaSource:
        return replace(self, start=position)

    @cached_property
    def _conversion(self) -> Items:
        records = self.items == "records"
        value = deserializer_of("value", str(self.value), self.schema, records=records)
        return self._conversion_to(value)

    def _conversion_of(self, schema: str) -> Items:
        """Return the conversion of values that a registry describes, read as a schema."""
        from flow.connectors.kafka.registry_reading import registry_deserializer

        registry: Any = self.value
        value = registry_deserializer(registry, schema, self._access.patience_seconds)
        conversion = self._conversion_to(value)
        if isinstance(conversion, RecordItems):
            self._check_unique(self._names(conversion), SourceError)
        return conversion

    def _conversion_to(self, value: Deserializer) -> Items:
        records = self.items == "records"
        key = deserializer_of("key", self.key, self.key_schema, records=records)
        return RecordItems(key, value, prefix=self.prefix) if records else ObjectItems(key, value)

    def _names(self, conversion: RecordItems) -> list[str]:
        return [*conversion.value_names, *(self.prefix + name for name in METADATA)]

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_offsets_given(self, name: str, position: Position | None) -> None:
        """Raise a `FlowBuildError` if offsets are given for a topic that is not read."""
        for topic in position if isinstance(position, Mapping) else ():
            if not reads_topic(topic, self._topic_names, self.pattern):
                raise FlowBuildError(
                    f"KafkaSource: {name} has offsets of topic {topic!r}, which it does not read"
                )

    def _checked_items(self) -> ItemKind:
        if self.items is None:
            has_schema = self.schema is not None or isinstance(self.value, Registry)
            return "records" if has_schema else "messages"
        check_choice("items", self.items, ("messages", "records"))
        return self.items

    def _check_names(self) -> None:
        """Check the schemas, and that no two columns have the same name."""
        if not isinstance(self.prefix, str):
            raise FlowTypeError(f"KafkaSource: prefix must be text, got {shorten(self.prefix)}")
        if not isinstance(self.value, Registry):
            self._check_unique(self.names, FlowBuildError)
        elif self.schema is not None:
            raise FlowBuildError(
                "KafkaSource: schema is not for values of a Registry, which has their schemas"
            )

    def _check_unique(self, names: list[str], error: type[FlowError]) -> None:
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            listed = ", ".join(map(repr, repeated))
            raise error(
                f"KafkaSource: the value's schema has {listed}, the name of a column that "
                "records have in any case: set those apart with a prefix, such as prefix='kafka_'"
            )


def _checked_topics(topics: object, pattern: object) -> object:
    if (topics is None) == (pattern is None):
        raise FlowBuildError("KafkaSource: give either topics or a pattern")
    if pattern is not None:
        _check_pattern(pattern)
        return None
    names = [topics] if isinstance(topics, str) else topics
    if not (
        isinstance(names, Sequence)
        and names
        and all(isinstance(name, str) and name for name in names)
    ):
        raise FlowTypeError(
            f"KafkaSource: topics must be the name of a topic or a list of names, "
            f"got {shorten(topics)}"
        )
    if len(set(names)) < len(names):
        raise FlowBuildError(f"KafkaSource: topics has a name twice: {shorten(topics)}")
    return topics if isinstance(topics, str) else tuple(names)


def _check_pattern(pattern: object) -> None:
    if not isinstance(pattern, str):
        raise wrong_type("KafkaSource: pattern must be the text of a regular expression", pattern)
    try:
        re.compile(pattern)
    except re.error as error:
        raise FlowBuildError(
            f"KafkaSource: pattern {pattern!r} is not a regular expression: {error}"
        ) from None
