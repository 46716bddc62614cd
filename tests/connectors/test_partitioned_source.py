"""Planning a source of several partitions that a user has written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flow.connectors.source import MemoryLog, PartitionedSource, Planner


class Tail(PartitionedSource[int]):
    """Numbers that are appended to partitions; each is read from where it is when it is met."""

    bounded = False

    def __init__(self, **partitions: list[int]) -> None:
        self.numbers = partitions

    def partitions(self) -> list[str]:
        return list(self.numbers)

    def first_offset(self, partition: str) -> int:
        return len(self.numbers[partition])

    def next_offset(self, partition: str, start: int) -> int | None:
        end = len(self.numbers[partition])
        return end if end > start else None

    def read_partition(self, partition: str, start: int, end: int) -> Iterator[list[int]]:
        yield self.numbers[partition][start:end]


def planned(planner: Planner, start: Any) -> tuple[Any, list[Any]] | None:
    """Where an epoch ends, and what it reads."""
    found = planner.next(start)
    return None if found is None else (found.end, [split.what for split in found.splits])


def test_where_a_partition_is_met_is_remembered_though_there_is_nothing_to_read() -> None:
    source = Tail(a=[1, 2])
    planner = source.planner(MemoryLog(), 1)
    assert planned(planner, None) == ({"a": 2}, [])
    assert planned(planner, {"a": 2}) is None
    source.numbers["a"].append(3)
    source.numbers["b"] = [7]
    assert planned(planner, {"a": 2}) == ({"a": 3, "b": 1}, [["a", 2, 3]])
    source.numbers["b"] = [7, 8]
    assert planned(planner, {"a": 3, "b": 1}) == ({"a": 3, "b": 2}, [["b", 1, 2]])


def test_a_source_without_partitions_has_nothing_to_say() -> None:
    assert planned(Tail().planner(MemoryLog(), 1), None) is None
