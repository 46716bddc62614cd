"""Formats that connectors share: columns, JSON, CSV, Avro and lines of text."""
