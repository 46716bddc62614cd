"""A source whose epochs are written down one by one, for runs on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flow.connectors.source import Batch, Json, Planner, Slice, Source, SourceLog, Split
from flow.durations import Duration, duration_us
from flow.testing import Part


@dataclass(frozen=True)
class SourceEpoch:
    """Input of one source in one epoch.

    Attributes:
        parts: the items, a part for each source partition.
        advance: the advance of system time since the epoch before.
    """

    parts: tuple[Part, ...] = ()
    advance: Duration = "0s"


@dataclass(frozen=True)
class EpochsSource(Source[Any]):
    """Source of given epochs, including epochs without items.

    Unlike `TestingSource` it can be cut unevenly in a batch as well, hold record batches, and have
    several source partitions.
    """

    epochs: tuple[SourceEpoch, ...]

    @property
    def needs_streaming(self) -> bool:
        return any(duration_us(epoch.advance) for epoch in self.epochs)

    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        return _Planner(self.epochs)

    def read(self, split: Split) -> Iterator[Batch]:
        epoch, part = split.what
        yield self.epochs[epoch].parts[part].items


class _Planner(Planner):
    """Planner whose offset is the number of planned epochs."""

    def __init__(self, epochs: Sequence[SourceEpoch]) -> None:
        self._epochs = epochs

    def finished(self, start: Json) -> bool:
        return (start or 0) >= len(self._epochs)

    def next(self, start: Json) -> Slice | None:
        if self.finished(start):
            return None
        at = start or 0
        epoch = self._epochs[at]
        splits = [
            Split([at, number], partition=part.partition) for number, part in enumerate(epoch.parts)
        ]
        return Slice(at + 1, splits, advance_us=duration_us(epoch.advance))
