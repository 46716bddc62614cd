"""Connector to tables of Delta Lake, by the package deltalake: `DeltaSink` and `DeltaSource`."""

from flow.connectors.delta.sink import DeltaSink
from flow.connectors.delta.source import DeltaSource

__all__ = ["DeltaSink", "DeltaSource"]
