"""Reports of late values: by how much they were late, the wait they needed, where they came from.

A step keeps a count for each lateness, rounded up to two digits, so that there are few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from flow.connectors.source import Planner
from flow.engine.epoch.context import LateSource, SourcePartition, Stats

ENOUGH = 0.99
"""The share of late values that a longer wait should have let in."""


def late_sources(
    stats: Stats,
    feeds: Mapping[str, Sequence[str]],
    reached_us: Mapping[SourcePartition, int],
    name_of: Callable[[SourcePartition], str],
) -> Counter[LateSource]:
    """Return how many values were late in an epoch, by where they came from.

    Args:
        stats: what the epoch counted.
        feeds: the inputs that feed each step.
        reached_us: how far each source partition has come in event time.
        name_of: gives the name of a source partition.
    """
    found = Counter[LateSource]()
    for (step_id, partition), count in stats.late_from.items():
        feeding = {one: us for one, us in reached_us.items() if one[0] in feeds[step_id]}
        ahead = max(feeding, key=feeding.__getitem__, default=partition)
        found[LateSource(step_id, name_of(partition), name_of(ahead))] += count
    return found


def source_name(planners: Mapping[str, Planner], partition: SourcePartition) -> str:
    """Return the name of a source partition for people, with the input that reads it.

    Args:
        planners: the planners of the inputs, by step.
        partition: the input and the partition's number.
    """
    step_id, number = partition
    planner = planners.get(step_id)
    name = f"partition {number}" if planner is None else planner.name_of(number)
    return f"{name} (input {step_id!r})"


def wait_needed_us(late_by_us: Mapping[int, int], share: float = ENOUGH) -> int:
    """Return by how much longer a wait would have been enough for a share of late values.

    Args:
        late_by_us: how many values were late by each duration, in microseconds.
        share: the share of them, from 0 to 1.

    >>> wait_needed_us({100: 98, 5_000: 1, 90_000: 1})
    5000
    """
    needed = share * sum(late_by_us.values())
    passed = 0
    for duration_us, count in sorted(late_by_us.items()):
        passed += count
        if passed >= needed:
            return duration_us
    return 0
