"""The topic of epochs: how far each output of each run has come.

It is compacted, so the last message of each key stays, and is written in the transaction that
writes the epoch's records::

    _flow_epochs
      key    ["1a2b…", "totals_out", "totals"]        run, step and topic
      value  {"epoch": 41, "count": 96, "rewinds": 0}

`epoch` is the last one that wrote records, and `count` how many; `rewinds` is how often the run
had been set back by then, which tells the epoch from another of the same number. A committed
consumer offset would do without a topic, and travels in a transaction as well; but brokers forget
the offsets of a group that nobody has used for `offsets.retention.minutes`, a week by default, and
a flow that was down for longer would not know what it has written.

A reader of committed messages gets no further than the oldest transaction that is open. Outputs
share the topic, so what is to be known may lie behind another flow's: reading waits until nothing
is open that had been begun before. That takes no longer than brokers let a transaction stay open.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any

from flow.connectors.kafka.client import kafka
from flow.connectors.kafka.cluster import is_passing
from flow.connectors.kafka.connection import Clients
from flow.connectors.kafka.writing.topics import Topic
from flow.errors import SinkError, shorten

EPOCHS_TOPIC = "_flow_epochs"
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20)}
"""Small segments, since only what lies in the last one is not compacted, and all is read."""

_SECONDS = 120.0
_BATCH = 1000
_WAIT = 0.05


@dataclass(frozen=True)
class Entry:
    """What is known of an output; all are described in the module."""

    epoch: int
    count: int
    rewinds: int

    def encoded(self) -> bytes:
        """The entry as a message's value."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decoded(cls, value: bytes) -> Entry:
        """Read what `encoded` has made."""
        found = json.loads(value)
        return cls(int(found["epoch"]), int(found["count"]), int(found.get("rewinds", 0)))


def entry_key(run_id: str, step_id: str, topic: str) -> bytes:
    """The key of an output's entry."""
    return json.dumps([run_id, step_id, topic]).encode()


class EpochsTopic:
    """The topic of epochs on a cluster.

    Attributes:
        name: the topic's name.
    """

    def __init__(self, clients: Clients, name: str) -> None:
        self._clients = clients
        self.name = name

    def make(self) -> bool:
        """Make the topic if there is none; returns whether there was none.

        Raises:
            SinkError: it cannot be made, or would not keep what is written to it.
        """
        topic = Topic(self._clients, self.name)
        missing = not topic.exists()
        if missing:
            topic.make(1, SETTINGS)
        policy = topic.setting("cleanup.policy")
        if policy is not None and policy != "compact":
            raise SinkError(
                f"the topic of epochs {self.name!r} has cleanup.policy={policy!r}, which forgets "
                "how far a flow has written: set it to 'compact', or give epochs_topic another name"
            )
        return missing

    def read(self, key: bytes) -> Entry | None:
        """The last committed entry of a key."""
        ends = Topic(self._clients, self.name).ends()
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
        made = kafka().TopicPartition
        consumer.assign([made(self.name, number, 0) for number in ends])
        open_ones = {number for number, end in ends.items() if end}
        found: Entry | None = None
        last = time.monotonic() + _SECONDS
        while open_ones:
            if time.monotonic() > last:
                raise SinkError(
                    f"the topic of epochs {self.name!r} could not be read to its end in "
                    f"{_SECONDS:.0f} s: the brokers cannot be reached, or some flow's transaction "
                    "on it stays open; see kafka-transactions.sh"
                )
            for message in consumer.consume(_BATCH, _WAIT):
                error = message.error()
                if error is None:
                    found = _entry(message) if message.key() == key else found
                elif error.name() == "_PARTITION_EOF":
                    if message.offset() >= ends[message.partition()]:
                        open_ones.discard(message.partition())
                # A client asks for the coordinator of a group, which is not needed here.
                elif error.name() != "GROUP_AUTHORIZATION_FAILED" and not is_passing(error):
                    raise kafka().KafkaException(error)
        return found


def _entry(message: Any) -> Entry | None:
    value = message.value()
    try:
        return None if value is None else Entry.decoded(value)
    except (ValueError, KeyError, TypeError) as error:
        raise SinkError(
            f"the topic of epochs {message.topic()!r} holds {shorten(value)}, which no flow wrote: "
            "give epochs_topic another name"
        ) from error
