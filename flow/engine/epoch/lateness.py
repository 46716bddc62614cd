"""Reports of late values: their lateness, the wait they needed, and their source partitions.

A step counts late values by lateness, rounded up to two digits to bound the number of counters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from flow.connectors.source import Planner
from flow.engine.epoch.context import LateSource, SourcePartition, Stats

ENOUGH = 0.99
"""The share of late values that a longer wait should make on time."""


def late_sources(
    stats: Stats,
    feeds: Mapping[str, Sequence[str]],
    reached_us: Mapping[SourcePartition, int],
    name_of: Callable[[SourcePartition], str],
) -> Counter[LateSource]:
    """Return the number of late values of an epoch by step and source partition.

    Args:
        stats: the statistics of the epoch.
        feeds: the inputs that feed each step.
        reached_us: the progress of each source partition in event time, in µs.
        name_of: returns the name of a source partition.
    """
    counts = Counter[LateSource]()
    for (step_id, partition), count in stats.late_from.items():
        feeding = {one: us for one, us in reached_us.items() if one[0] in feeds[step_id]}
        ahead = max(feeding, key=feeding.__getitem__, default=partition)
        counts[LateSource(step_id, name_of(partition), name_of(ahead))] += count
    return counts


def source_name(planners: Mapping[str, Planner], partition: SourcePartition) -> str:
    """Return the name of a source partition for messages, with the input that reads it.

    Args:
        planners: the planners of the inputs, by step.
        partition: the input and the partition's number.
    """
    step_id, number = partition
    planner = planners.get(step_id)
    name = f"partition {number}" if planner is None else planner.name_of(number)
    return f"{name} (input {step_id!r})"


def wait_needed_us(late_by_us: Mapping[int, int]) -> int:
    """Return the least addition to the wait, in µs, that makes the share `ENOUGH` on time.

    Args:
        late_by_us: the number of late values by lateness in µs.

    >>> wait_needed_us({100: 98, 5_000: 1, 90_000: 1})
    5000
    """
    needed = ENOUGH * sum(late_by_us.values())
    total = 0
    for duration_us, count in sorted(late_by_us.items()):
        total += count
        if total >= needed:
            return duration_us
    return 0
