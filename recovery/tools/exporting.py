"""Export of a step's state, or of a table, to a Parquet file, and the import of state from one."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from flow.connectors.files.filesystems import locate, raise_as
from flow.dataflow import Dataflow
from flow.errors import CheckpointError
from flow.instants import NEVER, from_us
from flow.keyed.state import WINDOWS, held_watermark_us, kind_of
from flow_windowing.columnar.state.segments import SegmentContent
from flow_windowing.columnar.state.snapshots import snapshots_of_content
from flow_windowing.rules.key_state import DriverState, read_snapshot
from recovery.reading.checkpoint_reader import open_checkpoint
from recovery.reading.epoch_state import EpochState, TableState, TableValue, load_snapshot
from recovery.reading.file_problems import PathLike
from recovery.reading.rendering import WindowingStep, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row: TypeAlias = dict[str, Any]

BATCH_ROWS = 8_192

_TIME = pa.timestamp("us", tz="UTC")
_KEY = pa.field("key", pa.string(), nullable=False)
_DUE = pa.field("due", _TIME)
_WINDOW = [
    pa.field("window_id", pa.int64()),
    pa.field("open_time", _TIME),
    pa.field("close_time", _TIME),
    pa.field("value", pa.string()),
]
_SNAPSHOT = pa.field("snapshot", pa.binary(), nullable=False)
_FROM = pa.field("from", _TIME, nullable=False)

_JSON_STATE = pa.field("state", pa.string(), metadata={"content": "JSON"})
"""The column of states without a type of their own, which no seed can be made of."""

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
    flow: Dataflow | None = None,
    spark: SparkSession | None = None,
) -> Export:
    """Write a step's state, or a table, to a Parquet file; an existing file is replaced.

    The file has a row for each key, with the columns ``key``, ``due`` and ``state``. The column
    ``state`` has the type of the states if all of them are numbers, booleans, texts or times, and
    else has JSON. For a windowing step the file has a row for each open window instead, with
    ``window_id``, ``open_time``, ``close_time`` and ``value`` as JSON; a key without open windows
    has one row without a window. The column ``snapshot`` has the pickled state in the checkpoint,
    unchanged.

    For a table the file has a row for each key, sorted by key, with the columns ``key``, ``value``
    and ``snapshot``, the pickled value. The column ``value`` has a type as ``state`` has one. For
    a table with `as_of` the file has a row for each value, with the time ``from`` which it holds;
    a row without value or snapshot removes the key from that time on.

    Args:
        path: the checkpoint's directory, as given to `RecoveryConfig`.
        step: the id of a keyed step, or of a table.
        file: the file to write, a path or a URI.
        epoch: a retained epoch, at whose end to read the state; by default the newest.
        flow: the flow, which computes the results of open windows of your own aggregates; by
            default their accumulators are written.
        spark: the session that reads it; by default the active one, else a new local one.

    Raises:
        CheckpointError: when the checkpoint, step or epoch does not exist, or the file cannot be
            written.
    """
    checkpoint = open_checkpoint(path, spark)
    state = EpochState(checkpoint, checkpoint.chosen(epoch))
    table = state.table(step)
    if table is None:
        total = state.key_count(step)
        rows, schema = _step_rows(state, step, flow)
    else:
        total = len(table.contents)
        rows, schema = _table_rows(table)
    written = _write(rows, schema, str(file))
    return Export(step, state.epoch, total, written, str(file))


def _step_rows(
    state: EpochState, step_id: str, flow: Dataflow | None
) -> tuple[Iterator[Row], pa.Schema]:
    """Return the rows of a keyed step, and the schema of the file, after a read of all keys."""
    name, windowing = state.checkpoint.state_name(step_id), WindowingStep.of(state, step_id, flow)
    kinds = {_kind(load_snapshot(kept, step_id)) for kept in state.keys(name)}
    is_windowed = kinds == {DriverState}
    kind = _column_type(kinds)

    def rows() -> Iterator[Row]:
        for kept in state.keys(name):
            is_due = kept.due_us < NEVER and held_watermark_us(kept.due_us) is None
            due = from_us(kept.due_us) if is_due else None
            snapshot = load_snapshot(kept, step_id)
            if is_windowed:
                parts = _window_rows(snapshot, windowing)
            else:
                parts = [{"state": _json(snapshot) if kind is None else snapshot}]
            for part in parts:
                yield {"key": kept.key, "due": due, "snapshot": kept.snapshot, **part}

    states = _JSON_STATE if kind is None else pa.field("state", kind)
    columns = _WINDOW if is_windowed else [states]
    return rows(), pa.schema([_KEY, _DUE, *columns, _SNAPSHOT])


def _table_rows(table: TableState) -> tuple[Iterator[Row], pa.Schema]:
    """Return the rows of a table, and the schema of the file."""
    kinds = {_kind(value.value) for value in table.values() if value.content is not None}
    kind = _column_type(kinds)
    times = [_FROM] if table.has_history else []
    fields = [
        *(_KEY, *times),
        pa.field("value", pa.string() if kind is None else kind),
        _SNAPSHOT.with_nullable(table.has_history),
    ]

    def row(found: TableValue) -> Row:
        is_json = kind is None and found.content is not None
        value = _json(found.value) if is_json else found.value
        row = {"key": found.key, "value": value, "snapshot": found.content}
        return {**row, "from": from_us(found.at_us)} if table.has_history else row

    return map(row, table.values()), pa.schema(fields)


def _column_type(kinds: set[type]) -> pa.DataType | None:
    """Return the type of a column of values of these kinds; ``None`` for JSON."""
    return _FLAT.get(*kinds) if len(kinds) == 1 else None


def _kind(snapshot: Any) -> type:
    """Return the type of a snapshot that has a column type, else `object`."""
    if isinstance(snapshot, DriverState):
        return DriverState
    if type(snapshot) is int and not -(2**63) <= snapshot < 2**63:
        return object
    if type(snapshot) is datetime and snapshot.tzinfo is None:
        return object
    if type(snapshot) is str and not _has_utf8(snapshot):
        return object
    return type(snapshot) if type(snapshot) in _FLAT else object


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
    text = json.dumps(plain(value), ensure_ascii=False)
    return text if _has_utf8(text) else json.dumps(plain(value))


def _has_utf8(text: str) -> bool:
    """Return True if a text has no half of a surrogate pair, which no column of texts holds."""
    return text.isascii() or text.encode(errors="ignore").decode() == text


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


def read_states(file: str | os.PathLike[str], *, trust: bool = False) -> dict[str, Any]:
    """Read each key's state from a Parquet file with a column ``key``.

    The column ``state`` has plain values. A trusted file of `export` may have the column
    ``snapshot`` with pickles instead, and needs it if it has the states as JSON.

    Args:
        file: the file, a path or a URI.
        trust: True to read pickled snapshots, which may run any code; only for exports that you
            made.

    Raises:
        CheckpointError: when the file cannot be read, lacks these columns, has several states of a
            key, or has only pickles and is not trusted.
    """
    where = os.fspath(file)
    with raise_as(CheckpointError, f"{where} cannot be read"):
        place = locate(where)
        table = pq.read_table(place.path, filesystem=place.filesystem)
    names = table.column_names
    if "key" not in names or not {"state", "snapshot"} & set(names):
        raise CheckpointError(
            f"{where} has the columns {', '.join(names)}: a seed needs 'key', and 'state' or the "
            "'snapshot' of an export"
        )
    keys = table.column("key").to_pylist()
    if trust and "snapshot" in names:
        snapshots = table.column("snapshot").to_pylist()
        return {key: _snapshot(content) for key, content in zip(keys, snapshots, strict=True)}
    is_json = "state" in names and table.schema.field("state").equals(_JSON_STATE, True)
    if "state" not in names or is_json:
        held = "states as JSON for people, and as pickles" if is_json else "pickled snapshots alone"
        raise CheckpointError(
            f"{where} holds {held}, which may run any code when they are read: "
            "if you have exported it yourself, say so with --trust"
        )
    states = dict(zip(keys, table.column("state").to_pylist(), strict=True))
    if len(states) < len(keys):
        ((key, count),) = Counter(keys).most_common(1)
        raise CheckpointError(f"{where} has {count} rows of key {key!r}: a seed needs one of a key")
    return states


def _snapshot(content: bytes) -> Any:
    """Read a snapshot of a step that runs key by key, or of a columnar step."""
    if kind_of(content) != WINDOWS:
        return read_snapshot(content)
    ((_, state, _),) = snapshots_of_content(SegmentContent.decode(content))
    return state
