"""Row views: records that stand for other Python values than dicts.

A step that works on columns may make records that stand for, say, pairs of window metadata and a
figure. What they stand for is written in the metadata of their Arrow schema, as JSON: the name of a
kind of view, and its settings. It stays there through shuffles; a user's function, and a sink, find
the values that the records stand for.
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
    """What records of one shape stand for."""

    @abstractmethod
    def values(self, batch: pa.RecordBatch) -> list[Any]:
        """The value of each row."""

    @abstractmethod
    def columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """The columns in which sinks that write tables lay the values out, by name.

        They are those that `flow.connectors.sink.to_record` would make of each value.
        """


ViewReader: TypeAlias = Callable[[Any], RowView]
"""Makes a view from its settings, plain JSON."""

_readers: dict[str, ViewReader] = {}


def register(kind: str, reader: ViewReader) -> None:
    """Make a kind of view known; whoever makes such records has done so where they are read."""
    _readers[kind] = reader


def viewed(batch: pa.RecordBatch, kind: str, settings: Any) -> pa.RecordBatch:
    """Records that stand for what a view says."""
    return batch.replace_schema_metadata({_NAME: json.dumps([kind, settings]).encode()})


def view_of(batch: pa.RecordBatch) -> RowView | None:
    """The view of records, ``None`` for those that are dicts."""
    metadata = batch.schema.metadata
    return None if not metadata or _NAME not in metadata else _read(metadata[_NAME])


@lru_cache(maxsize=256)
def _read(description: bytes) -> RowView:
    kind, settings = json.loads(description)
    if kind not in _readers:
        raise EngineError(f"nothing here knows how to view rows of kind {kind!r}")
    return _readers[kind](settings)
