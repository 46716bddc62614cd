"""Functions and predicates over Arrow batches: items as columns, and what is computed of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flow.columns.arrow_types import entering
from flow.columns.chunks import (
    Chunk,
    Items,
    KeyedRecords,
    Pairs,
    Records,
    as_pairs,
    key_array,
)
from flow.columns.predicate import ColumnPredicate
from flow.columns.record_batches import has_text_key, join_batches, value_columns
from flow.connectors.formats.columns import inferred_columns
from flow.connectors.sink import to_record
from flow.engine.epoch.context import TaskContext
from flow.errors import RAISED, SinkError, StepError, brief, cut_text, first_line, shorten
from flow.operators.stateless import MapBatches

_FIX = "map the items to records whose fields have one type each before the step"


def run_batches(kind: MapBatches, step_id: str, chunk: Chunk, _: TaskContext) -> list[Chunk | None]:
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
    if isinstance(chunk, Items) and all(map(has_text_key, chunk.items)):
        return as_pairs(chunk, step_id)
    return chunk


def item_columns(
    chunk: Chunk, step_id: str, problems: dict[str, SinkError] | None = None
) -> pa.RecordBatch:
    """Return the items, or the values of a keyed stream, as columns.

    Args:
        chunk: the items.
        step_id: the step, for errors.
        problems: takes the error of each field that fits no column, which is left out; ``None`` to
            raise the error.

    Raises:
        StepError: when the items do not fit into columns.
    """
    if isinstance(chunk, (Records, KeyedRecords)):
        columns = value_columns(chunk.batch)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    values = chunk.values if isinstance(chunk, Pairs) else chunk.items
    try:
        return inferred_columns([to_record(value) for value in values], step_id, _FIX, problems)
    except SinkError as error:
        raise _misfit(error, step_id) from error
    except RAISED as error:  # A dataclass of the user may have its own `as_record`.
        raise StepError(step_id, f"making columns of the items raised {brief(error)}") from error


def _misfit(error: SinkError, step_id: str) -> StepError:
    return StepError(step_id, str(error).removeprefix(f"step {step_id!r}: "))


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
    if not made.num_columns:
        raise StepError(step_id, "the function must return at least one column, got none")
    made = entering(made, step_id)
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


_MOST_COLUMNS = 20
"""Greatest number of columns that an error names."""
_LONGEST_TYPE = 80
"""Greatest length of the name of a type in an error."""


def mask_of(
    predicate: ColumnPredicate, on_value: bool, step_id: str, chunk: Chunk
) -> npt.NDArray[np.bool_]:
    """Return the mask of a chunk's items for which a predicate is true, shape (len(chunk),).

    The mask is false where the result of the predicate is null.

    Args:
        predicate: the predicate.
        on_value: True if the items must be pairs.
        step_id: the step.
        chunk: the items; in a keyed stream the rows are the values.

    Raises:
        StepError: when the items do not fit into columns, the expression cannot be computed over
            the columns, or its result is not boolean.
    """
    if on_value and not isinstance(chunk, KeyedRecords):
        chunk = as_pairs(chunk, step_id)
    if not len(chunk):
        return np.zeros(0, np.bool_)
    problems = dict[str, SinkError]()
    batch = item_columns(keys_apart(chunk, step_id), step_id, problems)
    try:
        result = _computed(predicate, step_id, batch)
    except StepError as error:
        for name, problem in problems.items():
            if not batch.num_columns or f"Name({name})" in error.problem:
                raise _misfit(problem, step_id) from problem
        raise
    if pa.types.is_null(result.type):
        return np.zeros(len(chunk), np.bool_)
    if not pa.types.is_boolean(result.type):
        raise StepError(
            step_id,
            f"the predicate '{predicate}' must be true or false, and is of type "
            f"{result.type}: compare it with a value, as in pc.field('amount') >= 100; "
            f"{_columns(batch)}",
        )
    mask: npt.NDArray[np.bool_] = result.fill_null(False).to_numpy()
    return mask


def _computed(predicate: ColumnPredicate, step_id: str, batch: pa.RecordBatch) -> pa.ChunkedArray:
    """Return the value of a predicate for each row of a batch that is not empty.

    Raises:
        StepError: when Arrow cannot compute the expression over the columns.
    """
    if not batch.num_columns:
        raise StepError(step_id, f"the predicate '{predicate}' needs items with columns")
    try:
        return predicate.over(batch)
    except RAISED as error:
        raise _failure(predicate, step_id, batch, error) from error


def _failure(
    predicate: ColumnPredicate, step_id: str, batch: pa.RecordBatch, error: BaseException
) -> StepError:
    """Return the error of an expression that Arrow cannot compute over the columns of a batch."""
    reason = first_line(error)
    if reason.startswith("No match for "):
        return StepError(
            step_id,
            f"the predicate '{predicate}' reads a field that the items lack "
            f"({reason.split(' in ')[0]}): name one that they have, or use a function for fields "
            f"that only some items have; {_columns(batch)}",
        )
    advice = "cast a field to another type, as in pc.field('amount').cast('double')"
    if any(pa.types.is_null(kind) for kind in batch.schema.types):
        advice = (
            "a column in which every value is None has the type null: cast it to the type that it "
            "should have, as in pc.field('is_paid').cast('bool')"
        )
    return StepError(
        step_id,
        f"the predicate '{predicate}' cannot be computed, {brief(error)}: {advice}; "
        f"{_columns(batch)}",
    )


def _columns(batch: pa.RecordBatch) -> str:
    """Return the columns of a batch and their types, in words."""
    fields = list(batch.schema)[:_MOST_COLUMNS]
    named = [f"{field.name!r} ({cut_text(str(field.type), _LONGEST_TYPE)})" for field in fields]
    more = batch.num_columns - len(named)
    return f"the columns are {', '.join(named)}" + (f" and {more} more" if more else "")
