"""A sink that appends items to a list, for tests on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from typing_extensions import TypeVar, override

from flow.columns.chunks import rows_as_dicts
from flow.connectors.sink import Guarantee, Sink, WriteContext, Written
from flow.connectors.source import Batch, Invalid

X = TypeVar("X", default=Any)


class TestingSink(Sink[X]):
    """A sink that appends items to a list, each epoch exactly once in the life of the process.

    Args:
        items: the list.
    """

    __test__ = False
    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self, items: list[X]) -> None:
        self.items = items
        self._run_id = ""
        self._committed: set[tuple[str, int]] = set()

    def __repr__(self) -> str:
        return "TestingSink([...])"

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for workers, without the list, as workers return items to the driver."""
        return {"items": [], "_run_id": "", "_committed": set()}

    @override
    def open(self, run_id: str, resuming: bool) -> None:
        self._run_id = run_id

    @override
    def write(self, context: WriteContext, batches: Iterator[Written]) -> list[Any]:
        return [item for batch in batches for item in items_of(batch)]

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        if (self._run_id, epoch) not in self._committed:
            self._committed.add((self._run_id, epoch))
            for message in messages:
                self.items.extend(message)


def items_of(batch: Batch) -> list[Any]:
    """Return the items of a batch that a source returned: rows as dicts, or rejected inputs."""
    if isinstance(batch, Invalid):
        return list(batch.inputs)
    return rows_as_dicts(batch) if isinstance(batch, pa.RecordBatch) else batch
