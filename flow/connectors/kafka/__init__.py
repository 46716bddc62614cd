"""Apache Kafka: topics as sinks."""

from __future__ import annotations

from flow.connectors.kafka.dead_letters import dead_letters
from flow.connectors.kafka.records import KafkaRecord
from flow.connectors.kafka.serializers import Avro
from flow.connectors.kafka.sink import KafkaSink

__all__ = ["Avro", "KafkaRecord", "KafkaSink", "dead_letters"]
