"""Row views: the conversion of records to Python values that are not dicts.

A step that runs over columns may emit records that represent other values, such as pairs of window
metadata and a result. The metadata of the records' Arrow schema has the view as JSON: the kind of
view and its settings. The metadata passes through shuffles, so that users' functions and sinks
receive these values.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

from flow.errors import EngineError

_NAME = b"flow.rows"


class RowView(ABC):
    """Conversion of records of one schema to the Python values that they represent."""

    @abstractmethod
    def values(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the value of each row."""

    @abstractmethod
    def columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the columns that sinks of tables write for the values, by name.

        The columns are those of the records that `flow.connectors.sink.to_record` returns.
        """


def is_window(value: Any) -> bool:
    """Return True for the metadata of a window."""
    return all(hasattr(value, name) for name in ("window_id", "open_time", "close_time"))


def is_retraction(value: Any) -> bool:
    """Return True for the retraction of a result, whose class has the mark `is_retraction`."""
    return getattr(type(value), "is_retraction", False) is True


ViewReader: TypeAlias = Callable[[Any], RowView]
"""Function that returns the view with given settings; settings are plain JSON."""

_readers: dict[str, ViewReader] = {}


def register(kind: str, reader: ViewReader) -> None:
    """Register a kind of view in this process.

    A module that makes records with a view registers the kind when it is imported, so every process
    that reads such records has to import the module.
    """
    _readers[kind] = reader


def with_view(batch: pa.RecordBatch, kind: str, settings: Any) -> pa.RecordBatch:
    """Return records with a view in the metadata of their schema."""
    return batch.replace_schema_metadata({_NAME: json.dumps([kind, settings]).encode()})


def view_of(batch: pa.RecordBatch) -> RowView | None:
    """Return the view of records; ``None`` for records that represent dicts."""
    metadata = batch.schema.metadata
    return None if not metadata or _NAME not in metadata else _read(metadata[_NAME])


@lru_cache(maxsize=256)
def _read(description: bytes) -> RowView:
    kind, settings = json.loads(description)
    if kind not in _readers:
        raise EngineError(
            f"no row view is registered for kind {kind!r}: "
            "import the package that makes these records in this process"
        )
    return _readers[kind](settings)
