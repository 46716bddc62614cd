"""Tables of SQL databases as sinks."""

from __future__ import annotations

from flow.connectors.sql.postgres import PostgresSink
from flow.connectors.sql.sqlite import SqliteSink
from flow.connectors.sql.table_sink import Delete

__all__ = ["Delete", "PostgresSink", "SqliteSink"]
