"""Sources and sinks of files: Parquet, JSON lines, CSV and text, local or in an object store."""

from __future__ import annotations

from flow.connectors.files.reading.csv_lines import CsvSource
from flow.connectors.files.reading.json_lines import JsonLinesSource
from flow.connectors.files.reading.parquet_source import ParquetSource
from flow.connectors.files.reading.text_lines import TextSource
from flow.connectors.files.writing.column_sinks import CsvSink, ParquetSink
from flow.connectors.files.writing.line_sinks import JsonLinesSink, TextSink

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
