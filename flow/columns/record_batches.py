"""Records in Arrow batches: their rows as Python values, and the records of several streams.

A step that runs over columns may emit records that represent other values than dicts, such as pairs
of window metadata and a result. The metadata of the records' Arrow schema has their *row view* as
JSON: the kind of view and its settings. The metadata passes through shuffles, so that users'
functions and sinks receive these values.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias, overload

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints
from flow.errors import EngineError
from flow.instants import OutOfRange

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


def is_pair(item: Any) -> bool:
    """Return True for a tuple of two elements that has no names for them."""
    return isinstance(item, tuple) and len(item) == 2 and not hasattr(item, "_asdict")


def has_text_key(item: Any) -> bool:
    """Return True for what records are made of as a key and a value."""
    return is_pair(item) and isinstance(item[0], str)


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


def value_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the columns of the records that tables hold for the values of a batch, by name."""
    view = view_of(batch)
    if view is None:
        return dict(zip(batch.schema.names, batch.columns, strict=True))
    return view.columns(batch)


def rows_of(batch: pa.RecordBatch) -> list[Any]:
    """Return the rows of a batch as Python values: dicts, or the values of the batch's row view."""
    view = view_of(batch)
    return rows_as_dicts(batch) if view is None else view.values(batch)


def value_reader(values: pa.RecordBatch | Sequence[Any]) -> Callable[[int], Any]:
    """Return a function that returns the value of one row as a Python object."""
    if isinstance(values, pa.RecordBatch):
        return lambda row: rows_of(values.slice(row, 1))[0]
    return values.__getitem__


def rows_as_dicts(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of a batch as dicts of Python objects."""
    names = batch.schema.names
    if not names:
        return [{} for _ in range(batch.num_rows)]
    columns = [as_objects(column) for column in batch.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def as_objects(column: pa.Array) -> list[Any]:
    """Return the values of a column as Python objects; `OutOfRange` for a value that has none."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz == "UTC" and kind.unit == "us":
        # numpy is four times as fast; for times outside a datetime's range it returns integers.
        times = column.to_numpy(zero_copy_only=False).tolist()
        if set(map(type, times)) <= {datetime, type(None)}:
            return [None if time is None else time.replace(tzinfo=UTC) for time in times]
    try:
        values: list[Any] = column.to_pylist()
    except OverflowError:
        if len(column) > 1:
            return [as_objects(column.slice(row, 1))[0] for row in range(len(column))]
        if pa.types.is_timestamp(kind) and kind.tz not in {None, "UTC"}:
            # A datetime may hold the time in UTC, though not in its zone.
            return as_objects(column.cast(pa.timestamp(kind.unit, "UTC")))
        return [OutOfRange(" ".join(column.to_string().strip("[] \n").split()))]
    return values


def join_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the concatenation of batches of one schema."""
    filled = [batch for batch in batches if batch.num_rows]
    if len(filled) < 2:
        return filled[0] if filled else batches[0]
    # A text column of more than 2 GiB would give several batches, and an error here.
    (joined,) = pa.Table.from_batches(filled).combine_chunks().to_batches()
    return joined


NO_RECORDS = pa.RecordBatch.from_arrays([], names=[])
"""The batch of a side without values, whose columns are not known."""


@dataclass(frozen=True, eq=False)
class SidedRecords(Sequence[tuple[int, dict[str, Any]]]):
    """Records of the streams that a step reads; as a sequence, ``(side, dict)`` for each value.

    Attributes:
        batches: the records of each side; a batch may have rows that no value refers to.
        sides: the side of each value, int64, shape (values,).
        rows: the row of each value in the batch of its side, int64, shape (values,).

    >>> left = pa.RecordBatch.from_pylist([{"bid": 5}])
    >>> values = SidedRecords.of(2, [(1, pa.RecordBatch.from_pylist([{"n": 1}])), (0, left)])
    >>> list(values)
    [(1, {'n': 1}), (0, {'bid': 5})]
    """

    batches: tuple[pa.RecordBatch, ...]
    sides: Ints
    rows: Ints

    @classmethod
    def of(cls, side_count: int, chunks: Sequence[tuple[int, pa.RecordBatch]]) -> SidedRecords:
        """Return the records of chunks, each of one side, one chunk after the other.

        The chunks of a side have one schema. A side without chunks has a batch without columns.
        """
        by_side: list[list[pa.RecordBatch]] = [[] for _ in range(side_count)]
        rows, filled = list[Ints](), [0] * side_count
        for side, batch in chunks:
            by_side[side].append(batch)
            rows.append(np.arange(filled[side], filled[side] + batch.num_rows))
            filled[side] += batch.num_rows
        sides = [np.full(batch.num_rows, side) for side, batch in chunks]
        empty = np.empty(0, np.int64)
        return cls(
            tuple(join_batches(of_side) if of_side else NO_RECORDS for of_side in by_side),
            np.concatenate([empty, *sides]),
            np.concatenate([empty, *rows]),
        )

    @override
    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> tuple[int, dict[str, Any]]: ...
    @overload
    def __getitem__(self, index: slice) -> SidedRecords: ...
    @override
    def __getitem__(self, index: int | slice) -> tuple[int, dict[str, Any]] | SidedRecords:
        if isinstance(index, slice):
            return SidedRecords(self.batches, self.sides[index], self.rows[index])
        side = int(self.sides[index])
        return side, rows_as_dicts(self.batches[side].slice(int(self.rows[index]), 1))[0]

    def take(self, chosen: Ints) -> SidedRecords:
        """Return the values of the given indices, in the given order."""
        return SidedRecords(self.batches, self.sides[chosen], self.rows[chosen])

    def of_side(self, side: int) -> tuple[Ints, pa.RecordBatch]:
        """Return the indices of the values of a side, and the record of each of these."""
        chosen = np.flatnonzero(self.sides == side)
        return chosen, self.batches[side].take(pa.array(self.rows[chosen]))

    def records(self) -> list[Any]:
        """Return the record of each value as a dict."""
        records: list[Any] = [None] * len(self)
        for side in range(len(self.batches)):
            chosen, batch = self.of_side(side)
            for index, record in zip(chosen.tolist(), rows_as_dicts(batch), strict=True):
                records[index] = record
        return records

    def concat(self, other: SidedRecords) -> SidedRecords | None:
        """Return these values followed by others; ``None`` if a side has two schemas."""
        both = self.compacted(), other.compacted()
        batches = list[pa.RecordBatch]()
        for pair in zip(*(one.batches for one in both), strict=True):
            filled = [batch for batch in pair if batch.num_columns]
            if len(filled) == 2 and not filled[0].schema.equals(filled[1].schema):
                return None
            batches.append(join_batches(filled) if filled else NO_RECORDS)
        counts = np.array([batch.num_rows for batch in both[0].batches])
        return SidedRecords(
            tuple(batches),
            np.concatenate([one.sides for one in both]),
            np.concatenate([both[0].rows, both[1].rows + counts[both[1].sides]]),
        )

    def compacted(self) -> SidedRecords:
        """Return the same values without the rows that no value refers to, if these are many."""
        if sum(batch.num_rows for batch in self.batches) <= 2 * len(self):
            return self
        rows, batches = np.empty(len(self), np.int64), list[pa.RecordBatch]()
        for side in range(len(self.batches)):
            chosen, batch = self.of_side(side)
            rows[chosen] = np.arange(len(chosen))
            batches.append(batch)
        return SidedRecords(tuple(batches), self.sides, rows)
