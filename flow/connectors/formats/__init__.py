"""Formats that connectors share: columns, JSON, CSV and lines of text."""
