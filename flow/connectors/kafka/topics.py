"""Topics that an output writes to, and the topic of epochs.

The topic of epochs holds the last epoch of each output; its entry is part of the epoch's
transaction.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from flow.connectors.kafka.client import Clients, administration, kafka
from flow.connectors.kafka.cluster import is_passing
from flow.errors import SinkError, shorten
from flow.format_version import VERSION, check_format

_QUERY_SECONDS = 15.0

NEWS_SECONDS = 10.0
"""Greatest time until every broker knows a new topic, in seconds."""


class Topic:
    """Topic on a cluster.

    Attributes:
        name: name of the topic.
    """

    def __init__(self, clients: Clients, name: str) -> None:
        self._clients = clients
        self.name = name

    def exists(self) -> bool:
        """Return True if the topic exists; the query does not create it."""
        return self._partitions() is not None

    def make(self, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Create the topic, unless another process creates it at the same time.

        Raises:
            SinkError: the topic cannot be created.
        """
        new = administration().NewTopic(self.name, partitions, config=dict(settings or {}))
        answers = self._clients.admin.create_topics([new], request_timeout=_QUERY_SECONDS)
        try:
            answers[self.name].result()
        except kafka().KafkaException as error:
            reason = error.args[0]
            if reason.name() == "TOPIC_ALREADY_EXISTS":
                return
            config = "".join(f" --config {one}={value}" for one, value in (settings or {}).items())
            raise SinkError(
                f"topic {self.name!r} does not exist and cannot be created: "
                f"{self._clients.explanation(reason)}. Ask an administrator to run: "
                f"kafka-topics.sh --create --topic {self.name} --partitions {partitions}{config}"
            ) from None

    def setting(self, name: str) -> str | None:
        """Return a setting of the topic; `None` if the user has no right to see it."""
        kind = administration().ConfigResource
        resource = kind(kind.Type.TOPIC, self.name)
        answers = self._clients.admin.describe_configs([resource], request_timeout=_QUERY_SECONDS)
        try:
            found: Mapping[str, Any] = answers[resource].result()
        except kafka().KafkaException:
            return None
        return None if name not in found else str(found[name].value)

    def ends(self) -> dict[int, int]:
        """Return the offset after the last message of each partition, committed or not.

        Raises:
            SinkError: the topic does not exist, even after the time that a new one needs.
        """
        latest = administration().OffsetSpec.latest()
        numbers = self._wait_for_partitions()
        asked = {kafka().TopicPartition(self.name, number): latest for number in numbers}
        ends = self._clients.admin.list_offsets(asked, request_timeout=_QUERY_SECONDS)
        return {one.partition: end.result().offset for one, end in ends.items()}

    def _wait_for_partitions(self) -> list[int]:
        deadline = time.monotonic() + NEWS_SECONDS
        while (found := self._partitions()) is None:
            if time.monotonic() > deadline:
                raise SinkError(f"topic {self.name!r} does not exist any more")
            time.sleep(0.1)
        return found

    def _partitions(self) -> list[int] | None:
        collection = kafka().TopicCollection([self.name])
        answers = self._clients.admin.describe_topics(collection, request_timeout=_QUERY_SECONDS)
        try:
            return [one.id for one in answers[self.name].result().partitions]
        except kafka().KafkaException as error:
            if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
                return None
            raise


EPOCHS_TOPIC = "_flow_epochs"

EPOCHS_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20)}
"""Settings of the topic of epochs.

Segments are small, as the last one is never compacted and the whole topic is read.
"""

_READ_SECONDS = 120.0

_BATCH = 1000

_WAIT = 0.05


@dataclass(frozen=True)
class Entry:
    """Last epoch of an output; `EpochsTopic` describes the fields."""

    epoch: int
    count: int
    rewinds: int

    def encoded(self) -> bytes:
        """Return the entry as the value of a message."""
        return json.dumps({"version": VERSION, **asdict(self)}).encode()

    @classmethod
    def decoded(cls, value: bytes) -> Entry:
        """Return the entry of a value that `encoded` returned."""
        found = json.loads(value)
        check_format("the last epoch of an output", found.get("version"), SinkError, "topic")
        return cls(int(found["epoch"]), int(found["count"]), int(found["rewinds"]))


def entry_key(run_id: str, step_id: str, topic: str) -> bytes:
    """Return the key of an output's entry."""
    return json.dumps([run_id, step_id, topic]).encode()


class EpochsTopic(Topic):
    """Topic of epochs: the last epoch that each output of each run has written.

    The topic is compacted, so the last message of each key stays. A message is written in the
    transaction of its epoch's records::

        _flow_epochs
          key    ["1a2b…", "totals_out", "totals"]        run, step and topic
          value  {"version": 1, "epoch": 41, "count": 96, "rewinds": 0}

    `epoch` is the last epoch that wrote records, and `count` is their number. `rewinds` is the
    number of times that the run had been set back, which distinguishes epochs of the same number. A
    committed consumer offset would need no topic, and is part of a transaction too. But brokers
    delete the offsets of a group that is unused for `offsets.retention.minutes`, a week by default,
    so a flow that was down for longer would not know its last epoch.

    A reader of committed messages stops at the oldest open transaction. Outputs share the topic, so
    an entry may lie behind another flow's transaction: reading waits until all transactions that
    began earlier have ended, at most as long as brokers keep a transaction open.
    """

    def make_if_missing(self) -> bool:
        """Create the topic if it is missing, and return True if the topic was missing.

        Raises:
            SinkError: the topic cannot be created, or would delete entries.
        """
        missing = not self.exists()
        if missing:
            self.make(1, EPOCHS_SETTINGS)
        policy = self.setting("cleanup.policy")
        if policy is not None and policy != "compact":
            raise SinkError(
                f"the topic of epochs {self.name!r} has cleanup.policy={policy!r}, which would "
                "delete a flow's last epoch: set it to 'compact', or give epochs_topic another name"
            )
        return missing

    def read(self, key: bytes) -> Entry | None:
        """Return the last committed entry of a key; ``None`` for a key without entries."""
        ends = self.ends()
        consumer = self._clients.consumer(
            {
                "group.id": "flow-epochs",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
            }
        )
        try:
            return self._read(consumer, key, ends)
        finally:
            consumer.close()

    def _read(self, consumer: Any, key: bytes, ends: dict[int, int]) -> Entry | None:
        partition = kafka().TopicPartition
        consumer.assign([partition(self.name, number, 0) for number in ends])
        unread = {number for number, end in ends.items() if end}
        found: Entry | None = None
        deadline = time.monotonic() + _READ_SECONDS
        while unread:
            if time.monotonic() > deadline:
                raise SinkError(
                    f"the topic of epochs {self.name!r} could not be read to its end in "
                    f"{_READ_SECONDS:.0f} s: the brokers cannot be reached, or a flow's "
                    "transaction on it stays open; see kafka-transactions.sh"
                )
            for message in consumer.consume(_BATCH, _WAIT):
                error = message.error()
                if error is None:
                    found = _decode(message) if message.key() == key else found
                elif error.name() == "_PARTITION_EOF":
                    if message.offset() >= ends[message.partition()]:
                        unread.discard(message.partition())
                # The client asks for the coordinator of a group, which the reader does not need.
                elif error.name() != "GROUP_AUTHORIZATION_FAILED" and not is_passing(error):
                    raise kafka().KafkaException(error)
        return found


def _decode(message: Any) -> Entry | None:
    value = message.value()
    try:
        return None if value is None else Entry.decoded(value)
    except (ValueError, KeyError, TypeError) as error:
        raise SinkError(
            f"the topic of epochs {message.topic()!r} holds {shorten(value)}, which no flow wrote: "
            "give epochs_topic another name"
        ) from error
