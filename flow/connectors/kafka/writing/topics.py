"""What there is to know of a topic before it is written to, and making one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from flow.connectors.kafka.client import administration, kafka
from flow.connectors.kafka.connection import Clients
from flow.errors import SinkError

_SECONDS = 15.0
NEWS_SECONDS = 10.0
"""How long it may take until each broker knows of a topic that has been made."""


class Topic:
    """A topic on a cluster.

    Attributes:
        name: its name.
    """

    def __init__(self, clients: Clients, name: str) -> None:
        self._clients = clients
        self.name = name

    def exists(self) -> bool:
        """Whether it is there. Asking does not make it."""
        return self._partitions() is not None

    def make(self, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Make it, unless somebody else has done so by now.

        Raises:
            SinkError: it cannot be made.
        """
        new = administration().NewTopic(self.name, partitions, config=dict(settings or {}))
        made = self._clients.admin.create_topics([new], request_timeout=_SECONDS)
        try:
            made[self.name].result()
        except kafka().KafkaException as error:
            reason = error.args[0]
            if reason.name() == "TOPIC_ALREADY_EXISTS":
                return
            config = "".join(f" --config {one}={value}" for one, value in (settings or {}).items())
            raise SinkError(
                f"topic {self.name!r} is not there and cannot be made: "
                f"{self._clients.explanation(reason)}. Let somebody who may make it: "
                f"kafka-topics.sh --create --topic {self.name} --partitions {partitions}{config}"
            ) from None

    def setting(self, name: str) -> str | None:
        """One of its settings; `None` where the user may not know."""
        kind = administration().ConfigResource
        resource = kind(kind.Type.TOPIC, self.name)
        asked = self._clients.admin.describe_configs([resource], request_timeout=_SECONDS)
        try:
            found: Mapping[str, Any] = asked[resource].result()
        except kafka().KafkaException:
            return None
        return None if name not in found else str(found[name].value)

    def ends(self) -> dict[int, int]:
        """The offset after the last message of each partition, committed or not.

        Raises:
            SinkError: it is not there, and that is not because it has just been made.
        """
        latest = administration().OffsetSpec.latest()
        made = kafka().TopicPartition
        asked = {made(self.name, one): latest for one in self._partitions_soon()}
        ends = self._clients.admin.list_offsets(asked, request_timeout=_SECONDS)
        return {one.partition: end.result().offset for one, end in ends.items()}

    def _partitions_soon(self) -> list[int]:
        last = time.monotonic() + NEWS_SECONDS
        while (found := self._partitions()) is None:
            if time.monotonic() > last:
                raise SinkError(f"topic {self.name!r} is not there any more")
            time.sleep(0.1)
        return found

    def _partitions(self) -> list[int] | None:
        collection = kafka().TopicCollection([self.name])
        asked = self._clients.admin.describe_topics(collection, request_timeout=_SECONDS)
        try:
            return [one.id for one in asked[self.name].result().partitions]
        except kafka().KafkaException as error:
            if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
                return None
            raise
