"""What records of windows stand for: the metadata of each, alone or with its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints
from flow.columns.row_views import RowView, register, viewed
from flow.instants import MAX_US, MIN_US, from_us
from flow_windowing.columnar.state.spans import MergedIds
from flow_windowing.metadata import WindowMetadata

KIND = "window"
_ID, _OPEN, _CLOSE, _MERGED, _TIMESTAMP = "id", "open", "close", "merged", "timestamp"
_UTC = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Figure:
    """A figure of windows, in a column.

    Attributes:
        name: what it is called; ``None`` where it is the only one, and has no name.
        of_nothing: what stands where the column is null: 0, or nothing.
    """

    name: str | None
    of_nothing: int | None


@dataclass(frozen=True)
class WindowView(RowView):
    """Windows with their figures, or without: ``(WindowMetadata, value)``, or the metadata.

    Attributes:
        figures: the figures; ``None`` for the metadata alone.
    """

    figures: tuple[Figure, ...] | None

    @override
    def values(self, batch: pa.RecordBatch) -> list[Any]:
        windows = metadata_of(batch)
        if self.figures is None:
            return windows
        columns = [self._column(batch, at).to_pylist() for at in range(len(self.figures))]
        columns = [
            [figure.of_nothing if one is None else one for one in column]
            if figure.of_nothing is not None and None in column
            else column
            for figure, column in zip(self.figures, columns, strict=True)
        ]
        if self.figures[0].name is None:
            return list(zip(windows, columns[0], strict=True))
        names = [figure.name for figure in self.figures]
        rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        return list(zip(windows, rows, strict=True))

    @override
    def columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        found = {
            "window_id": batch.column(_ID),
            "open_time": batch.column(_OPEN).cast(_UTC),
            "close_time": batch.column(_CLOSE).cast(_UTC),
            "merged_ids": _merged_in(batch),
        }
        if _TIMESTAMP in batch.schema.names:
            found["timestamp"] = batch.column(_TIMESTAMP).cast(_UTC)
        for at, figure in enumerate(self.figures or ()):
            column = self._column(batch, at)
            if figure.of_nothing is not None and column.null_count:
                column = column.fill_null(figure.of_nothing)
            found["value" if figure.name is None else figure.name] = column
        return found

    def settings(self) -> Any:
        """The view as plain JSON."""
        figures = self.figures
        return None if figures is None else [[one.name, one.of_nothing] for one in figures]

    @classmethod
    def read(cls, settings: Any) -> WindowView:
        """The view in JSON made by `settings`."""
        return cls(None if settings is None else tuple(Figure(*one) for one in settings))

    def _column(self, batch: pa.RecordBatch, number: int) -> pa.Array:
        return batch.column(f"figure {number}")

    def records(
        self,
        ids: Ints,
        bounds_us: tuple[Ints, Ints],
        timestamps_us: Ints | None,
        figures: Sequence[pa.Array] = (),
        merged: MergedIds | None = None,
    ) -> pa.RecordBatch:
        """Records that stand for windows; `merged` is for windows that may become one."""
        columns = {_ID: pa.array(ids), _OPEN: _held(bounds_us[0]), _CLOSE: _held(bounds_us[1])}
        if merged is not None:
            columns[_MERGED] = pa.array(merged.tolist(), pa.list_(pa.int64()))
        if timestamps_us is not None:
            columns[_TIMESTAMP] = _held(timestamps_us)
        columns.update((f"figure {at}", column) for at, column in enumerate(figures))
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        return viewed(batch, KIND, self.settings())


register(KIND, WindowView.read)


def metadata_of(batch: pa.RecordBatch) -> list[Any]:
    """The metadata of windows in columns; windows that are alike share one object."""
    names = [name for name in (_ID, _OPEN, _CLOSE, _TIMESTAMP) if name in batch.schema.names]
    rows = list(zip(*(batch.column(name).to_pylist() for name in names), strict=True))
    if _MERGED in batch.schema.names:
        return _with_merged(rows, batch.column(_MERGED).to_pylist())
    made = {row: _window(*row) for row in set(rows)}
    return [made[row] for row in rows]


def _with_merged(rows: list[tuple[int, ...]], merged: list[list[int]]) -> list[Any]:
    """Windows of which others may have become part; no two keys have many of them in common."""
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


def window_metadata(ids: Ints, bounds_us: tuple[Ints, Ints]) -> Iterator[WindowMetadata]:
    """The metadata of windows, one after the other."""
    for one, open_us, close_us in zip(ids.tolist(), *(b.tolist() for b in bounds_us), strict=True):
        yield WindowMetadata.of_us(one, open_us, close_us)


def _held(micros: Ints) -> pa.Array:
    """Instants, held to what a datetime can say."""
    return pa.array(np.clip(micros, MIN_US, MAX_US))


def _merged_in(batch: pa.RecordBatch) -> pa.Array:
    if _MERGED in batch.schema.names:
        return batch.column(_MERGED)
    count = batch.num_rows
    offsets = pa.array(np.zeros(count + 1, np.int32))
    return pa.ListArray.from_arrays(offsets, pa.nulls(0))
