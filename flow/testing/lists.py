"""A source of the items of a list, marks that steer a run, and a sink that appends to a list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from typing_extensions import TypeVar, override

from flow.checks import check_whole
from flow.columns.arrow_types import entering
from flow.columns.record_batches import rows_as_dicts
from flow.connectors.sink import Guarantee, Sink, SinkBatch, WriteContext
from flow.connectors.source import Batch, Invalid, Json, Planner, Slice, Source, SourceLog, Split
from flow.durations import Duration, duration_us
from flow.errors import FlowBuildError, FlowTypeError, shorten

X = TypeVar("X", default=Any)


@dataclass(frozen=True)
class Advance:
    """A mark among a `TestingSource`'s items: system time moves forward, and a new epoch begins."""

    duration: Duration

    def __post_init__(self) -> None:
        if duration_us(self.duration) < 0:
            raise FlowBuildError(f"system time never goes back, got Advance({self.duration!r})")


@dataclass(frozen=True)
class EOF:
    """A mark among a `TestingSource`'s items: the end of input; the next run continues after it."""


class ABORT:
    """A mark among a `TestingSource`'s items: the run fails here once, as if it were killed.

    A checkpoint records the places of its marks that a run has failed at.

    The epoch of the items before the mark is not committed: the next run replays that epoch. It has
    no items if the mark is the first, or follows an `EOF` or an `Advance`.
    """

    def __init__(self) -> None:
        self.fired = False

    def __repr__(self) -> str:
        return "ABORT()"


_MARKS = (Advance, EOF, ABORT)


@dataclass(frozen=True)
class TestingSource(Source[X]):
    """A source that reads items from a list, for tests on Spark.

    Args:
        items: the items; `Advance`, `EOF` and `ABORT` among them steer the run.
        batch_size: the greatest number of items of an epoch.
    """

    __test__ = False

    items: Sequence[X | Advance | EOF | ABORT]
    batch_size: int = 1_000

    def __post_init__(self) -> None:
        items: object = self.items
        if not isinstance(items, Sequence):
            raise FlowTypeError(f"TestingSource needs a list of items, got {shorten(items)}")
        check_whole("TestingSource: batch_size", self.batch_size, 1)

    @property
    @override
    def needs_streaming(self) -> bool:
        return any(isinstance(item, (Advance, ABORT)) for item in self.items)

    @override
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        return _TestingPlanner(self.items, self.batch_size, log)

    @override
    def read(self, split: Split) -> Iterator[Batch]:
        start, end = split.what
        yield [item for item in self.items[start:end] if not isinstance(item, _MARKS)]


class _TestingPlanner(Planner):
    """Planner of a `TestingSource`; an offset is the index of the next item."""

    def __init__(self, items: Sequence[Any], batch_size: int, log: SourceLog) -> None:
        self._items = items
        self._log = log
        self._batch_size = batch_size
        self._ended = False

    def finished(self, start: Json | None) -> bool:
        return self._ended or (start or 0) >= len(self._items)

    def next(self, start: Json | None) -> Slice | None:
        if self.finished(start):
            return None
        first = end = start or 0
        advance_us, count = 0, 0
        while end < len(self._items):
            item = self._items[end]
            if count >= self._batch_size and not isinstance(item, ABORT):
                break
            if isinstance(item, Advance) and end > first:
                break
            end += 1
            if isinstance(item, Advance):
                advance_us = duration_us(item.duration)
            elif isinstance(item, EOF):
                self._ended = True
                break
            elif isinstance(item, ABORT):
                # Over Spark Connect, the mark is a copy of each run.
                if not item.fired and end not in self._log.entries():
                    item.fired = True
                    self._log.append(end)
                    return Slice(end, [Split([first, end])], advance_us, True, self._behind(end))
            else:
                count += 1
        behind = () if self._ended else self._behind(end)
        return Slice(end, [Split([first, end])] if count else [], advance_us, behind=behind)

    def _behind(self, end: int) -> tuple[int, ...]:
        """Return the partitions that are behind after an epoch that ends before the item `end`.

        The only partition, 0, is behind if items are left to read. It is not behind if the next
        item is an `Advance`: the items after that arrive at a later system time.
        """
        is_behind = end < len(self._items) and not isinstance(self._items[end], Advance)
        return (0,) if is_behind else ()


class TestingSink(Sink[X]):
    """A sink that appends items to a list, each epoch exactly once in the life of the process.

    Args:
        items: the list.
    """

    __test__ = False
    guarantee = Guarantee.EXACTLY_ONCE
    commits_in_program = True

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
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> list[Any]:
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
    return rows_as_dicts(entering(batch, "source")) if isinstance(batch, pa.RecordBatch) else batch
