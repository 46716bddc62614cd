"""The kernel of functions over Arrow batches: items as columns, and the records made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from flow.columns.chunks import (
    Chunk,
    Items,
    KeyedRecords,
    Pairs,
    Records,
    as_pairs,
    join_batches,
    key_array,
    value_columns,
)
from flow.connectors.formats.columns import inferred_columns
from flow.connectors.sink import to_record
from flow.errors import RAISED, SinkError, StepError, brief, shorten
from flow.operators.batching import MapBatches

_FIX = "map the items to records whose fields have one type each before the step"


def run_batches(kind: MapBatches, step_id: str, chunk: Chunk) -> list[Chunk | None]:
    """Call the function of a step for batches of a chunk's items.

    Raises:
        StepError: when the items do not fit into columns, or the function raised or did not return
            a row for each row.
    """
    chunk = keys_apart(chunk, step_id)
    batch, size = item_columns(chunk, step_id), kind.size or len(chunk)
    pieces = [batch.slice(start, size) for start in range(0, batch.num_rows, size)]
    records = _joined(step_id, [_call(step_id, kind.function, piece) for piece in pieces])
    match chunk:
        case KeyedRecords():
            return [KeyedRecords(chunk.keys, records, chunk.pos)]
        case Pairs():
            return [KeyedRecords(key_array(chunk.keys, step_id), records, chunk.pos)]
        case _:
            return [Records(records, chunk.pos)]


def keys_apart(chunk: Chunk, step_id: str) -> Chunk:
    """Return a chunk with keys and values apart, if all of its items are pairs with a key."""
    if isinstance(chunk, Items) and all(map(_is_pair, chunk.items)):
        return as_pairs(chunk, step_id)
    return chunk


def item_columns(chunk: Chunk, step_id: str) -> pa.RecordBatch:
    """Return the items, or the values of a keyed stream, as columns.

    Raises:
        StepError: when the items do not fit into columns.
    """
    if isinstance(chunk, (Records, KeyedRecords)):
        columns = value_columns(chunk.batch)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    values = chunk.values if isinstance(chunk, Pairs) else chunk.items
    try:
        return inferred_columns([to_record(value) for value in values], step_id, _FIX)
    except SinkError as error:
        problem = str(error).removeprefix(f"step {step_id!r}: ")
        raise StepError(step_id, problem) from error
    except RAISED as error:  # A dataclass of the user may have its own `as_record`.
        raise StepError(step_id, f"making columns of the items raised {brief(error)}") from error


def _is_pair(item: Any) -> bool:
    """Return True for what `to_record` treats as a key and a value."""
    is_plain = isinstance(item, tuple) and not hasattr(item, "_asdict")
    return is_plain and len(item) == 2 and isinstance(item[0], str)


def _call(step_id: str, function: Callable[[Any], Any], batch: pa.RecordBatch) -> pa.Table:
    """Return the result of a function for a batch, after a check of its rows and columns.

    Raises:
        StepError: when the function raised, or returned anything but a row for each row.
    """
    try:
        made = function(batch)
    except RAISED as error:
        problem = f"the function raised {brief(error)} for a batch of {batch.num_rows} rows"
        raise StepError(step_id, problem) from error
    if not isinstance(made, (pa.RecordBatch, pa.Table)):
        raise StepError(
            step_id,
            "the function must return a pyarrow.RecordBatch or a pyarrow.Table, got "
            f"{type(made).__name__} {shorten(made)}",
        )
    if made.num_rows != batch.num_rows:
        raise StepError(
            step_id,
            f"the function must return a row for each row, got {made.num_rows} rows for "
            f"{batch.num_rows}: use op.filter or op.flat_map for more or fewer items",
        )
    names = made.schema.names
    if len(set(names)) < len(names):
        raise StepError(step_id, f"the function returned two columns of one name: {names}")
    table = made if isinstance(made, pa.Table) else pa.Table.from_batches([made])
    return table.replace_schema_metadata(None)


def _joined(step_id: str, tables: list[pa.Table]) -> pa.RecordBatch:
    """Return the rows of all tables; a column of nulls alone has the type of the others."""
    try:
        whole = pa.concat_tables(tables, promote_options="default")
    except pa.ArrowException as error:
        problem = f"the function returned batches whose columns differ in their types: {error}"
        raise StepError(step_id, problem) from error
    return join_batches(whole.combine_chunks().to_batches())
