"""Reading order of partitions of unequal density, which bounds the state that they need."""

from __future__ import annotations

from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.connectors.source import MemoryLog, PartitionedSource
from flow.testing import Part, TestDriver, TestingSink, TestingSource

SPAN = 1_800.0
"""The seconds that the partitions cover."""
PIECE = 10


class Partitions(PartitionedSource[Any]):
    """Partitions over the span with a value at fixed intervals; a piece is ten values."""

    def __init__(self, *every: float) -> None:
        self.every = every

    def partitions(self) -> list[str]:
        return [str(n) for n in range(len(self.every))]

    def first_offset(self, partition: str) -> int:
        return 0

    def next_offset(self, partition: str, start: int) -> int | None:
        count = int(SPAN / self.every[int(partition)])
        return None if start >= count else min(start + PIECE, count)

    def read_partition(self, partition: str, start: int, end: int) -> Any:
        every = self.every[int(partition)]
        yield [{"k": "k", "at": n * every} for n in range(start, end)]


def spreads(source: Partitions, level_out: bool) -> tuple[list[float], list[int], TestDriver]:
    """Run a source, and return how far its partitions are apart and how large the state is.

    Returns:
        Seconds between the partitions after each epoch, bytes of state after each epoch, and the
        driver.
    """
    flow = Dataflow("spread")
    keyed = op.key_on("key", op.input("in", flow, TestingSource([])), "k")
    clock, minutes = win.EventClock("at", "0s"), win.TumblingWindower("10s")
    counted = win.aggregate_window("count", keyed, clock, minutes, n=win.Count())
    op.output("out", counted.down, TestingSink([]))
    op.output("late", counted.late, TestingSink([]))
    driver, planner, offset = TestDriver(flow, shards=1), source.planner(MemoryLog(), 1), None
    distances, sizes = [], []
    while not planner.finished(offset):
        if level_out:
            planner.report_progress(
                {number: us for (_, number), us in driver.stats.reached.items()}
            )
        planned = planner.next(offset)
        assert planned is not None
        parts = [
            Part([item for batch in source.read(one) for item in batch], one.partition)  # type: ignore[union-attr]
            for one in planned.splits
        ]
        behind = [("in", number) for number in planned.behind]
        driver.send_parts({"in": parts}, behind=behind)
        reached = driver.stats.reached.values()
        distances.append((max(reached) - min(reached)) / 1e6 if len(reached) > 1 else 0.0)
        sizes.append(driver.stats.gauges["count", "state_bytes"])
        offset = planned.end
    return distances, sizes, driver


#  slow partition   a value every 36 s    ten of them are 6 min
#  fast partition   a value every 4.5 s   ten of them are 45 s
def test_a_slow_and_a_fast_partition_are_never_further_apart_than_two_pieces() -> None:
    distances, sizes, driver = spreads(Partitions(36.0, 4.5), level_out=True)
    assert max(distances) <= 2 * PIECE * 36.0
    # What would be held back if the one furthest behind were not read first.
    apart_without, sizes_without, deaf = spreads(Partitions(36.0, 4.5), level_out=False)
    assert max(apart_without) > SPAN / 2
    assert 2 * max(sizes) < max(sizes_without)
    for one in (driver, deaf):
        one.end()
        assert one.received("late") == []
        counts = [figures["n"] for _, (_, figures) in one.received("out")]
        assert sum(counts) == 50 + 400
