"""Topics of Apache Kafka as sources and sinks."""

from __future__ import annotations

from flow.connectors.kafka.messages import BadMessage, KafkaMessage, KafkaRecord
from flow.connectors.kafka.registry import Registry
from flow.connectors.kafka.serializers import Avro
from flow.connectors.kafka.sink import KafkaSink
from flow.connectors.kafka.source import KafkaSource

__all__ = [
    "Avro",
    "BadMessage",
    "KafkaMessage",
    "KafkaRecord",
    "KafkaSink",
    "KafkaSource",
    "Registry",
]
