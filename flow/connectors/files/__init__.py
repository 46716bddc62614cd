"""Sources and sinks of files: Parquet, JSON lines, CSV and text, local or in an object store."""

from __future__ import annotations

from flow.connectors.files.csv_source import CsvSource
from flow.connectors.files.file_sinks import CsvSink, JsonLinesSink, ParquetSink, TextSink
from flow.connectors.files.line_sources import JsonLinesSource, TextSource
from flow.connectors.files.parquet_source import ParquetSource

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
