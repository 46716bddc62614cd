"""Topics of a sink: queries and creation."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from flow.connectors.kafka.broker.client import administration, kafka
from flow.connectors.kafka.broker.connection import Clients
from flow.errors import SinkError

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
        partition_of = kafka().TopicPartition
        answers = {
            partition_of(self.name, number): latest for number in self._wait_for_partitions()
        }
        ends = self._clients.admin.list_offsets(answers, request_timeout=_QUERY_SECONDS)
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
