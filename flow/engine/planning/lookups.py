"""Lookup tables: the rows of their sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from flow.columns.chunks import Chunk, Items, Records, positions
from flow.connectors.source import MemoryLog, Source
from flow.dataflow import Step
from flow.engine.epoch.context import Control, TaskContext
from flow.engine.planning.planner_calls import plan_everything, planner_of
from flow.engine.steps.kernels import changes_in
from flow.engine.steps.reading import Reading, read_chunks
from flow.engine.tables.contents import Change
from flow.errors import FlowError, StepError, brief
from flow.operators.edges import Input
from flow.operators.tables import LookupTable


def lookup_changes(step: Step, control: Control) -> Iterator[Change]:
    """Yield the rows of a lookup table as changes.

    Raises:
        FlowError: when the source or a function fails.
    """
    operator = step.operator
    if not isinstance(operator, LookupTable) or operator.source is None:
        return
    if isinstance(operator.source, Source):
        chunks = _rows_of_source(step.step_id, operator.source, control)
    else:
        chunks = iter(_rows_of_function(step.step_id, operator.source))
    for chunk in chunks:
        yield from changes_in(operator, step.step_id, chunk)


def _rows_of_source(step_id: str, source: Source[Any], control: Control) -> Iterator[Chunk]:
    step = Step(step_id, Input(source), ())
    planner = planner_of(step, MemoryLog(), 1)
    try:
        slices = plan_everything({step_id: planner})[step_id]
    finally:
        planner.close()
    context = TaskContext(control.moment)
    for each in slices:
        for split in each.splits:
            for _, chunk in read_chunks(step, Reading(step_id, split, 0), context):
                yield chunk


def _rows_of_function(step_id: str, source: Callable[[], Any]) -> list[Chunk]:
    """Return the rows that a function returns.

    Raises:
        FlowError: when the function fails.
    """
    try:
        rows: Any = source()
        if hasattr(rows, "toArrow"):
            rows = rows.toArrow()
        elif type(rows).__module__.partition(".")[0] == "pandas":
            rows = pa.Table.from_pandas(rows, preserve_index=False)
        if isinstance(rows, (pa.Table, pa.RecordBatch)):
            batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
            return [Records(batch, positions(0, 0, 0, batch.num_rows)) for batch in batches]
        items = list(rows)
    except FlowError:
        raise
    except (Exception, SystemExit) as error:
        raise StepError(step_id, f"reading its source raised {brief(error)}") from error
    return [Items(items, positions(0, 0, 0, len(items)))]
