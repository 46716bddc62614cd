"""A source of lists of items as partitions, to which a test adds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from flow.connectors.source import PartitionedSource


@dataclass
class GrowingSource(PartitionedSource[Any]):
    """Source that reads a few items of each partition at a time; it can start at offsets."""

    items: dict[str, list[Any]]
    piece: int = 2
    bounded: bool = False
    start: dict[str, int] = field(default_factory=dict)

    def partitions(self) -> list[str]:
        return sorted(self.items)

    def first_offset(self, partition: str) -> int:
        return self.start.get(partition, 0)

    def next_offset(self, partition: str, start: int) -> int | None:
        end = len(self.items[partition])
        return None if self.bounded and start >= end else min(end, start + self.piece)

    def read_partition(self, partition: str, start: int, end: int) -> Iterator[list[Any]]:
        yield self.items[partition][start:end]

    def starting_at(self, position: dict[str, dict[int, int]]) -> GrowingSource:
        offsets = {str(number): at for number, at in position["topic"].items()}
        return replace(self, start=offsets)


def numbered(*partitions: list[Any]) -> dict[str, list[Any]]:
    """Return partitions by number."""
    return {str(number): items for number, items in enumerate(partitions)}
