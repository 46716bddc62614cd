"""Tables of SQL databases as sinks."""

from __future__ import annotations

from flow.connectors.sql.postgres import PostgresSink
from flow.connectors.sql.rows import Delete
from flow.connectors.sql.sqlite import SqliteSink

__all__ = ["Delete", "PostgresSink", "SqliteSink"]
