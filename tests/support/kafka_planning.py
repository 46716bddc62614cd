"""Planners of Kafka offsets, with brokers that the test controls."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from flow.connectors.kafka.broker.cluster import Ends, TopicPartition, Unreachable
from flow.connectors.kafka.reading.planner import KafkaPlanner, Reach
from tests.support.clock import Clock


@dataclass
class Brokers:
    """Partitions by name, each with its first offset and its end."""

    partitions_there: dict[str, tuple[int, int]]
    silent: bool = False
    looks: int = 0
    times: dict[str, int] = field(default_factory=dict)

    def partitions(self, topics: Collection[str], pattern: str | None) -> list[TopicPartition]:
        self._answer()
        self.looks += 1
        return [TopicPartition.of(name) for name in self.partitions_there]

    def earliest(self, partitions: Iterable[TopicPartition]) -> Ends:
        return {one: self.partitions_there[str(one)][0] for one in self._there(partitions)}

    def latest(self, partitions: Iterable[TopicPartition]) -> Ends:
        return {one: self.partitions_there[str(one)][1] for one in self._there(partitions)}

    def since(self, partitions: Iterable[TopicPartition], millis: int) -> Ends:
        return {one: self.times[str(one)] + millis for one in self._there(partitions)}

    def _there(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        self._answer()
        return [one for one in partitions if str(one) in self.partitions_there]

    def _answer(self) -> None:
        if self.silent:
            raise Unreachable("no Kafka broker answers at here:9092: gone")


def new_planner(
    brokers: Brokers, clock: Clock | None = None, cores: int = 1, scales: Any = None, **more: Any
) -> Any:
    settings: dict[str, Any] = {
        "topics": ("t",),
        "pattern": None,
        "start": "earliest",
        "end": None,
        "per_epoch": 1_000_000,
        "on_data_loss": "fail",
        "looking_seconds": 10.0,
        "patience_seconds": 60.0,
    }
    cluster: Any = brokers
    reach = Reach(**{**settings, **more})
    return KafkaPlanner(reach, cluster, cores, clock or Clock(), scales)


def read(planned: Any) -> list[tuple[Any, int, int]]:
    """Return the range, source partition and order of each split of a slice."""
    return [(split.what, split.partition, split.order) for split in planned.splits]
