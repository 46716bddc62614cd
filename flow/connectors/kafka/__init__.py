"""Topics of Apache Kafka as sources and sinks."""

from __future__ import annotations

from flow.connectors.kafka.broker.message import BadMessage, KafkaMessage
from flow.connectors.kafka.dead_letters import dead_letters
from flow.connectors.kafka.sink import KafkaSink
from flow.connectors.kafka.source import KafkaSource
from flow.connectors.kafka.writing.records import KafkaRecord
from flow.connectors.kafka.writing.serializers import Avro

__all__ = [
    "Avro",
    "BadMessage",
    "KafkaMessage",
    "KafkaRecord",
    "KafkaSink",
    "KafkaSource",
    "dead_letters",
]
