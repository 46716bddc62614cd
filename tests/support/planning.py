"""Plans of sources, for tests."""

from __future__ import annotations

import contextlib
from typing import Any

from flow.connectors.source import Json, MemoryLog, Planner, Slice, Source, Split
from flow.engine.feed.slices import plan_everything


def splits_of(planner: Planner) -> list[Split]:
    """Return the splits of a bounded source, slice after slice."""
    return [split for one in plan_everything({"in": planner})["in"] for split in one.splits]


def next_epoch(source: Source[Any], start: Json | None = None, parallelism: int = 1) -> Slice:
    """Return the epoch after a position, which a new planner plans."""
    with contextlib.closing(source.planner(MemoryLog(), parallelism)) as planner:
        planned = planner.next(start)
    assert planned is not None
    return planned


def records_after(source: Source[Any], position: Json | None) -> tuple[list[Any], Json | None]:
    """Return the records after a position until there are none, and where they end."""
    found: list[Any] = []
    with contextlib.closing(source.planner(MemoryLog(), 1)) as planner:
        while (planned := planner.next(position)) is not None:
            batches: Any = [batch for split in planned.splits for batch in source.read(split)]
            found += [row for batch in batches for row in batch.to_pylist()]
            position = planned.end
    return found, position
