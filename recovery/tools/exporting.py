"""Export of a step's state to a Parquet file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from flow.connectors.files.places.failures import raise_as
from flow.connectors.files.places.place import locate
from flow.errors import CheckpointError
from flow.instants import NEVER, from_us
from flow.keyed.due import held_watermark_us
from flow_windowing.rules.key_state import DriverState
from recovery.reading.checkpoint import open_checkpoint
from recovery.reading.epoch_state import EpochState, KeySnapshot, load_snapshot
from recovery.reading.paths import PathLike
from recovery.reading.rendering import plain
from recovery.reading.windows import WindowingStep
from recovery.tools.inspecting import keys_of_step, windowing_step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row: TypeAlias = dict[str, Any]

BATCH_ROWS = 8_192

_TIME = pa.timestamp("us", tz="UTC")
_KEY = [pa.field("key", pa.string(), nullable=False), pa.field("due", _TIME)]
_WINDOW = [
    pa.field("window_id", pa.int64()),
    pa.field("open_time", _TIME),
    pa.field("close_time", _TIME),
    pa.field("value", pa.string()),
]
_SNAPSHOT = pa.field("snapshot", pa.binary(), nullable=False)

_FLAT: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    datetime: _TIME,
}
"""The column types of states, by Python type."""


@dataclass(frozen=True)
class Export:
    """The result of an export.

    Attributes:
        step: the step.
        epoch: the epoch at whose end the state was read.
        keys: the number of the step's keys.
        rows: the number of rows in the file.
        file: the Parquet file.
    """

    step: str
    epoch: int
    keys: int
    rows: int
    file: str

    def __str__(self) -> str:
        """Return the result in one line."""
        return (
            f"step {self.step} after epoch {self.epoch}: {self.keys:,} keys in "
            f"{self.rows:,} rows of {self.file}"
        )


def export(
    path: PathLike,
    step: str,
    file: PathLike,
    *,
    epoch: int | None = None,
    spark: SparkSession | None = None,
) -> Export:
    """Write a step's state to a Parquet file; an existing file is replaced.

    The file has a row for each key, with the columns ``key``, ``due`` and ``state``. The column
    ``state`` has the type of the states if all of them are numbers, booleans, texts or times, and
    else has JSON. For a windowing step the file has a row for each open window instead, with
    ``window_id``, ``open_time``, ``close_time`` and ``value`` as JSON; a key without open windows
    has one row without a window. The column ``snapshot`` has the pickled state in the checkpoint,
    unchanged.

    Args:
        path: the checkpoint's directory, as given to `RecoveryConfig`.
        step: the step's id.
        file: the file to write, a path or a URI.
        epoch: a retained epoch, at whose end to read the state; by default the newest.
        spark: the session that reads it; by default the active one, else a new local one.

    Raises:
        CheckpointError: when the checkpoint, step or epoch does not exist, or the file cannot be
            written.
    """
    checkpoint = open_checkpoint(path, spark)
    state = EpochState(checkpoint, checkpoint.chosen(epoch))
    total = keys_of_step(state, step)
    name = checkpoint.state_name(step)
    shape = _Shape.of(state.keys(name), step)
    rows = _rows(state.keys(name), step, windowing_step(state, step), shape)
    written = _write(rows, shape.schema(), str(file))
    return Export(step, state.epoch, total, written, str(file))


@dataclass
class _Shape:
    """The columns of a step's state.

    Attributes:
        windowed: True for a windowing step.
        kind: the type of all keys' states; ``None`` if states are written as JSON.
    """

    windowed: bool = False
    kind: pa.DataType | None = None

    @classmethod
    def of(cls, keys: Iterator[KeySnapshot], step_id: str) -> _Shape:
        """Read all keys to find the columns."""
        snapshots = (load_snapshot(kept, step_id) for kept in keys)
        kinds = {_kind(snapshot) for snapshot in snapshots}
        if kinds == {DriverState}:
            return cls(windowed=True)
        return cls(kind=_FLAT.get(kinds.pop()) if len(kinds) == 1 else None)

    def schema(self) -> pa.Schema:
        """Return the schema of the file."""
        state = pa.field("state", pa.string() if self.kind is None else self.kind)
        return pa.schema([*_KEY, *(_WINDOW if self.windowed else [state]), _SNAPSHOT])


def _kind(snapshot: Any) -> type:
    """Return the type of a snapshot that has a column type, else `object`."""
    if isinstance(snapshot, DriverState):
        return DriverState
    if type(snapshot) is int and not -(2**63) <= snapshot < 2**63:
        return object
    if type(snapshot) is datetime and snapshot.tzinfo is None:
        return object
    return type(snapshot) if type(snapshot) in _FLAT else object


def _rows(
    keys: Iterator[KeySnapshot], step_id: str, windowing: WindowingStep, shape: _Shape
) -> Iterator[Row]:
    for kept in keys:
        is_due = kept.due_us < NEVER and held_watermark_us(kept.due_us) is None
        due = from_us(kept.due_us) if is_due else None
        row: Row = {"key": kept.key, "due": due, "snapshot": kept.snapshot}
        snapshot = load_snapshot(kept, step_id)
        if shape.windowed:
            for window in _window_rows(snapshot, windowing):
                yield {**row, **window}
        else:
            yield {**row, "state": _json(snapshot) if shape.kind is None else snapshot}


def _window_rows(state: DriverState, windowing: WindowingStep) -> list[Row]:
    return [
        {
            "window_id": window.window_id,
            "open_time": None if window.metadata is None else window.metadata.open_time,
            "close_time": None if window.metadata is None else window.metadata.close_time,
            "value": _json(window.value),
        }
        for window in windowing.windows(state)
    ] or [{}]


def _json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)


def _write(rows: Iterator[Row], schema: pa.Schema, file: str) -> int:
    """Write rows in batches, and return their number."""
    count = 0
    with raise_as(CheckpointError, f"{file} cannot be written"):
        place = locate(file)
        with pq.ParquetWriter(place.path, schema, filesystem=place.filesystem) as writer:
            while batch := list(islice(rows, BATCH_ROWS)):
                writer.write_table(pa.Table.from_pylist(batch, schema))
                count += len(batch)
    return count
