"""Records of windows: the metadata of each window, alone or with its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints
from flow.columns.record_batches import RowView, as_objects, register, with_view
from flow.instants import MAX_US, MIN_US, from_us
from flow_windowing.columnar.state.shard_state import MergedIds
from flow_windowing.rules.metadata import WindowMetadata

KIND = "window"
_ID, _OPEN, _CLOSE, _MERGED, _TIMESTAMP = "id", "open", "close", "merged", "timestamp"
_UTC = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class ResultColumn:
    """A column with an aggregate's result of each window.

    Attributes:
        name: the name of the result; ``None`` for a single result without a name.
        empty_value: the value that a null in the column means.
    """

    name: str | None
    empty_value: int | None


@dataclass(frozen=True)
class WindowView(RowView):
    """Windows with their results, ``(WindowMetadata, value)``, or their metadata alone.

    Attributes:
        results: the columns of results; ``None`` for the metadata alone.
    """

    results: tuple[ResultColumn, ...] | None

    @override
    def values(self, batch: pa.RecordBatch) -> list[Any]:
        windows = metadata_of(batch)
        if self.results is None:
            return windows
        columns = [self._column(batch, at) for at in range(len(self.results))]
        return list(zip(windows, values_of(self.results, columns), strict=True))

    @override
    def columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        columns = {
            "window_id": batch.column(_ID),
            "open_time": batch.column(_OPEN).cast(_UTC),
            "close_time": batch.column(_CLOSE).cast(_UTC),
            "merged_ids": _merged_in(batch),
        }
        if _TIMESTAMP in batch.schema.names:
            columns["timestamp"] = batch.column(_TIMESTAMP).cast(_UTC)
        if self.results is not None:
            columns["is_retraction"] = not_retracted(batch.num_rows)
        for at, result in enumerate(self.results or ()):
            column = self._column(batch, at)
            if result.empty_value is not None and column.null_count:
                column = column.fill_null(result.empty_value)
            columns["value" if result.name is None else result.name] = column
        return columns

    def settings(self) -> Any:
        """Return the view as plain JSON."""
        results = self.results
        return None if results is None else [[one.name, one.empty_value] for one in results]

    @classmethod
    def read(cls, settings: Any) -> WindowView:
        """Return the view in JSON made by `settings`."""
        return cls(None if settings is None else tuple(ResultColumn(*one) for one in settings))

    def _column(self, batch: pa.RecordBatch, number: int) -> pa.Array:
        return batch.column(f"result {number}")

    def records(
        self,
        ids: Ints,
        bounds_us: tuple[Ints, Ints],
        timestamps_us: Ints | None,
        results: Sequence[pa.Array] = (),
        merged_ids: MergedIds | None = None,
    ) -> pa.RecordBatch:
        """Return records of windows.

        Args:
            ids: the ids of the windows.
            bounds_us: the open and close times of the windows, int64 µs.
            timestamps_us: the timestamps in the windows' metadata; ``None`` for none.
            results: the results of each aggregate.
            merged_ids: the ids merged into each window; ``None`` if windows do not merge.
        """
        open_us, close_us = bounds_us
        columns = {_ID: pa.array(ids), _OPEN: _clip(open_us), _CLOSE: _clip(close_us)}
        if merged_ids is not None:
            columns[_MERGED] = pa.array(merged_ids.tolist(), pa.list_(pa.int64()))
        if timestamps_us is not None:
            columns[_TIMESTAMP] = _clip(timestamps_us)
        columns.update((f"result {at}", column) for at, column in enumerate(results))
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        return with_view(batch, KIND, self.settings())


register(KIND, WindowView.read)

METADATA = WindowView(None)
"""The view of the metadata alone."""


def values_of(
    results: Sequence[ResultColumn], columns: Sequence[pa.Array | list[Any]]
) -> list[Any]:
    """Return the value of each window as a Python object, given the results of each aggregate."""
    objects = [_objects(result, column) for result, column in zip(results, columns, strict=True)]
    if results[0].name is None:
        return objects[0]
    names = [result.name for result in results]
    return [dict(zip(names, row, strict=True)) for row in zip(*objects, strict=True)]


def _objects(result: ResultColumn, column: pa.Array | list[Any]) -> list[Any]:
    """Return results as Python objects, with the empty value instead of nulls."""
    if isinstance(column, list):
        return column
    values = as_objects(column)
    if result.empty_value is None or not column.null_count:
        return values
    return [result.empty_value if value is None else value for value in values]


def metadata_of(batch: pa.RecordBatch) -> list[Any]:
    """Return the metadata of windows in columns; equal windows share one object."""
    names = [name for name in (_ID, _OPEN, _CLOSE, _TIMESTAMP) if name in batch.schema.names]
    rows = list(zip(*(batch.column(name).to_pylist() for name in names), strict=True))
    if _MERGED in batch.schema.names:
        return _with_merged(rows, batch.column(_MERGED).to_pylist())
    made = {row: _window(*row) for row in set(rows)}
    return [made[row] for row in rows]


def _with_merged(rows: list[tuple[int, ...]], merged: list[list[int]]) -> list[Any]:
    """Return the metadata of windows that may merge; keys rarely share such windows."""
    windows = [_window(*row) for row in rows]
    return [
        replace(window, merged_ids=frozenset(ids)) if ids else window
        for window, ids in zip(windows, merged, strict=True)
    ]


def _window(
    window_id: int, open_us: int, close_us: int, timestamp_us: int | None = None
) -> WindowMetadata:
    timestamp = None if timestamp_us is None else from_us(timestamp_us)
    return WindowMetadata(window_id, from_us(open_us), from_us(close_us), timestamp=timestamp)


def _clip(micros: Ints) -> pa.Array:
    """Return instants, clipped to the range of a datetime."""
    return pa.array(np.clip(micros, MIN_US, MAX_US))


def _merged_in(batch: pa.RecordBatch) -> pa.Array:
    if _MERGED in batch.schema.names:
        return batch.column(_MERGED)
    count = batch.num_rows
    offsets = pa.array(np.zeros(count + 1, np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array([], pa.int64()))


def not_retracted(count: int) -> pa.Array:
    """Return the column ``is_retraction`` of results; retractions are no columns."""
    return pa.array(np.zeros(count, np.bool_))
