"""Connector to tables of Apache Iceberg, by the package pyiceberg."""

from flow.connectors.iceberg.sink import IcebergSink
from flow.connectors.iceberg.source import IcebergSource

__all__ = ["IcebergSink", "IcebergSource"]
