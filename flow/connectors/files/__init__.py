"""Sources and sinks of files: Parquet, JSON lines, CSV and text, local or in an object store."""

from __future__ import annotations

from flow.connectors.files.reading.csv_source import CsvSource
from flow.connectors.files.reading.line_sources import JsonLinesSource, TextSource
from flow.connectors.files.reading.parquet_source import ParquetSource
from flow.connectors.files.writing.sinks import CsvSink, JsonLinesSink, ParquetSink, TextSink

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
