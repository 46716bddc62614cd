"""Files: Parquet, JSON lines, CSV and plain text, on this machine or in an object store."""

from __future__ import annotations

from flow.connectors.files.column_sinks import CsvSink, ParquetSink
from flow.connectors.files.csv_lines import CsvSource
from flow.connectors.files.json_lines import JsonLinesSource
from flow.connectors.files.line_sinks import JsonLinesSink, TextSink
from flow.connectors.files.parquet_source import ParquetSource
from flow.connectors.files.text_lines import TextSource

__all__ = [
    "CsvSink",
    "CsvSource",
    "JsonLinesSink",
    "JsonLinesSource",
    "ParquetSink",
    "ParquetSource",
    "TextSink",
    "TextSource",
]
