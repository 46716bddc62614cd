"""What messages weigh, so that an epoch of a backlog holds about as much whatever their size.

What an epoch costs whatever it reads weighs less in a large one, and what it reads needs room.
So it takes as many messages as come to some bytes; what one weighs is the mean of the next few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flow.connectors.kafka.cluster import Ends, TopicPartition
from flow.connectors.kafka.properties import Properties
from flow.connectors.kafka.reading.ranges import Access, Connection
from flow.errors import SourceError

MOST_RECORDS = 4_000_000
"""Messages in an epoch, however small they are."""
EPOCH_BYTES = 800_000_000
"""What the messages of an epoch may weigh, without compression."""
RECORD_BYTES = 40
"""What a record in columns takes besides the bytes of its message."""
OBJECT_BYTES = 700
"""What a message as a Python object takes besides its bytes."""
_FEW = 100_000
"""So many messages are not worth weighing."""
_UNKNOWN_BYTES = 800.0
"""What messages are taken to weigh that cannot be looked at now."""
_SAMPLE = 200
_MOST_TOPICS = 8
_PATIENCE_SECONDS = 2.0
# A look at a few messages, that does not wait for those after them to be fetched.
_GLANCE = {"queued.min.messages": 1, "fetch.message.max.bytes": 100_000}


class Scales:
    """Finds how many messages weigh no more than an epoch may hold.

    Args:
        access: how to read them.
        besides: what a message takes besides its bytes.
    """

    def __init__(self, access: Access, besides: int) -> None:
        properties = Properties({**access.properties, **_GLANCE})
        self._access = replace(
            access,
            properties=properties,
            on_data_loss="fail",  # no word of a loss: whoever reads them says so
            patience_seconds=_PATIENCE_SECONDS,
        )
        self._besides = besides

    def most(self, at: Ends, waiting: Mapping[TopicPartition, int]) -> int:
        """How many of the messages that wait an epoch may read.

        Args:
            at: the offset of each partition's next message.
            waiting: how many messages wait, of partitions that have any.
        """
        if sum(waiting.values()) <= _FEW:
            return MOST_RECORDS
        fullest: dict[str, TopicPartition] = {}
        of_topic: Counter[str] = Counter()
        for one in sorted(waiting, key=waiting.__getitem__):
            fullest[one.topic] = one
            of_topic[one.topic] += waiting[one]
        looked_at = dict(of_topic.most_common(_MOST_TOPICS))
        bytes_in_all = sum(
            count * self._weight(fullest[topic], at[fullest[topic]])
            for topic, count in looked_at.items()
        )
        mean = bytes_in_all / sum(looked_at.values())
        return max(1, min(MOST_RECORDS, int(EPOCH_BYTES / mean)))

    def _weight(self, partition: TopicPartition, start: int) -> float:
        """What one of the next messages of a partition weighs on the average, in bytes."""
        try:
            connection = Connection(self._access)
            try:
                lots = list(connection.messages(partition, start, start + _SAMPLE))
            finally:
                connection.close()
        except SourceError:  # reading says what is wrong
            return _UNKNOWN_BYTES
        weights = [_bytes_of(message) for lot in lots for message in lot]
        return self._besides + sum(weights) / len(weights) if weights else _UNKNOWN_BYTES


def _bytes_of(message: Any) -> int:
    headers = message.headers() or ()
    parts = [message.key(), message.value(), *(value for _, value in headers)]
    return sum(len(part) for part in parts if part is not None)
