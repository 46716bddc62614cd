"""Limit of an epoch of a backlog by the sizes of its messages.

A large epoch spreads its fixed cost over more messages, but needs memory for them. So an epoch
reads as many messages as fit a number of bytes, by the mean size of a sample of the next messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flow.connectors.kafka.broker.cluster import Ends, TopicPartition
from flow.connectors.kafka.broker.properties import Properties
from flow.connectors.kafka.reading.ranges import Access, RangeReader
from flow.errors import SourceError

MOST_RECORDS = 4_000_000
"""Greatest number of messages in an epoch, however small they are."""
EPOCH_BYTES = 800_000_000
"""Greatest size of an epoch's messages, uncompressed."""
RECORD_BYTES = 40
"""Memory of a record in columns beyond the bytes of its message."""
OBJECT_BYTES = 700
"""Memory of a message as a Python object beyond its bytes."""
_SMALL_BACKLOG = 100_000
"""Backlog in messages up to which no sample is read."""
_UNKNOWN_BYTES = 800.0
"""Assumed size of messages of which no sample can be read now."""
_SAMPLE = 200
_MOST_TOPICS = 8
_PATIENCE_SECONDS = 2.0
# A sample is few messages, and does not wait until the next ones are fetched.
_GLANCE = {"queued.min.messages": 1, "fetch.message.max.bytes": 100_000}


class Scales:
    """Estimate of the number of messages that fit an epoch.

    Args:
        access: access to the brokers.
        overhead: memory of a message beyond its bytes.
    """

    def __init__(self, access: Access, overhead: int) -> None:
        properties = Properties({**access.properties, **_GLANCE})
        self._access = replace(
            access,
            properties=properties,
            on_data_loss="fail",  # no warning of a loss, which the reader of the messages logs
            patience_seconds=_PATIENCE_SECONDS,
        )
        self._overhead = overhead

    def most(self, offsets: Ends, backlog: Mapping[TopicPartition, int]) -> int:
        """Return the greatest number of messages that an epoch may read.

        Args:
            offsets: offset of each partition's next message.
            backlog: number of messages to read, positive, by partition.
        """
        if sum(backlog.values()) <= _SMALL_BACKLOG:
            return MOST_RECORDS
        fullest: dict[str, TopicPartition] = {}
        of_topic: Counter[str] = Counter()
        for partition in sorted(backlog, key=backlog.__getitem__):
            fullest[partition.topic] = partition
            of_topic[partition.topic] += backlog[partition]
        sampled = dict(of_topic.most_common(_MOST_TOPICS))
        total_bytes = sum(
            count * self._mean_bytes(fullest[topic], offsets[fullest[topic]])
            for topic, count in sampled.items()
        )
        mean = total_bytes / sum(sampled.values())
        return max(1, min(MOST_RECORDS, int(EPOCH_BYTES / mean)))

    def _mean_bytes(self, partition: TopicPartition, start: int) -> float:
        """Return the mean size of the next messages of a partition, in bytes."""
        try:
            reader = RangeReader(self._access)
            try:
                batches = list(reader.messages(partition, start, start + _SAMPLE))
            finally:
                reader.close()
        except SourceError:  # The reader of the messages reports the error.
            return _UNKNOWN_BYTES
        weights = [_bytes_of(message) for batch in batches for message in batch]
        return self._overhead + sum(weights) / len(weights) if weights else _UNKNOWN_BYTES


def _bytes_of(message: Any) -> int:
    headers = message.headers() or ()
    parts = [message.key(), message.value(), *(value for _, value in headers)]
    return sum(len(part) for part in parts if part is not None)
