"""A source of numbers that takes its time, for runs in processes of their own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flow.connectors.source import PartitionedSource


@dataclass(frozen=True)
class SlowNumbers(PartitionedSource[int]):
    """Two numbers an epoch, or two in all; each reading takes some seconds and leaves a mark.

    Attributes:
        seconds: the time of a reading.
        bounded: True if there are two numbers in all.
        folder: the folder of the marks; by default, that in which workers run.
    """

    seconds: float
    bounded: bool = False
    folder: str = ""

    def partitions(self) -> Sequence[str]:
        return ["all"]

    def first_offset(self, partition: str) -> int:
        return 0

    def next_offset(self, partition: str, start: int) -> int | None:
        return None if self.bounded and start else start + 2

    def read_partition(self, partition: str, start: int, end: int) -> Iterable[Sequence[int]]:
        Path(self.folder, f"reading {start}").touch()
        time.sleep(self.seconds)
        yield list(range(start, end))
