"""Views: the newest value of each key, or of each window, in a file that can be read at any time.

A flow writes a view with `ViewSink`; any process reads the views of a checkpoint with `open`.
"""

from flow.views.answers import JsonAnswer, answer
from flow.views.queries import (
    Answer,
    Entry,
    Page,
    QueryError,
    UnknownViewError,
    View,
    Views,
    ViewWindow,
    open,
)
from flow.views.view_sink import ViewSink
from flow.views.views_file import VIEWS_FILE, ViewError

__all__ = [
    "VIEWS_FILE",
    "Answer",
    "Entry",
    "JsonAnswer",
    "Page",
    "QueryError",
    "UnknownViewError",
    "View",
    "ViewError",
    "ViewSink",
    "ViewWindow",
    "Views",
    "answer",
    "open",
]
