"""Errors of readers of views."""

from __future__ import annotations

from flow.errors import FlowError


class ViewError(FlowError, RuntimeError):
    """A file of views that cannot be read."""


class QueryError(FlowError, ValueError):
    """A query that a view cannot answer, such as one with an invalid limit."""


class UnknownViewError(QueryError, LookupError):
    """A query of a view that the file does not have."""
