"""The plan of a batch run: the splits of each slice, and the partitions behind after it.

Slices of all inputs run side by side. An input with fewer slices is spread over the whole run, as
the inputs of a run mostly cover the same span of time: so no input is far ahead of the others, and
few values are buffered for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flow.columns.chunks import MAX_SOURCES
from flow.connectors.source import Slice, Split
from flow.engine.epoch.context import Control, SourcePartition
from flow.engine.plan.plan import Plan
from flow.engine.steps.reading import Reading
from flow.errors import FlowBuildError


@dataclass(frozen=True)
class BatchPlan:
    """Plan of a batch run.

    Attributes:
        readings: the tasks of stage 0, in order of input and slice.
        controls: the control of each slice.
        last: the control after all slices.
    """

    readings: list[Reading]
    controls: tuple[Control, ...]
    last: Control

    def control(self, slice_number: int) -> Control:
        """Return the control of a slice; a number after the last slice has the last control.

        A run whose inputs are all read by Spark has one slice.
        """
        return self.controls[slice_number] if slice_number < len(self.controls) else self.last


def batch_plan(plan: Plan, slices: Mapping[str, Sequence[Slice]], last: Control) -> BatchPlan:
    """Lay the slices of all inputs side by side.

    Args:
        plan: the compiled flow.
        slices: the slices of each input that Python reads.
        last: the control after all slices.
    """
    count = max([1, *(len(found) for found in slices.values())])
    read = {
        (name, split.partition)
        for name, found in slices.items()
        for one in found
        for split in one.splits
    }
    many = frozenset(name for name, number in read if number)
    sources: tuple[SourcePartition, ...] | None = None
    if plan.tells_sources(many):
        sources = plan.sources_of(read)
        if len(sources) > MAX_SOURCES:
            raise FlowBuildError(
                f"a batch may read at most {MAX_SOURCES} source partitions, got {len(sources)}: "
                "read them as order='sequence', or in several runs"
            )
    last = replace(last, many=many, sources=sources)
    running = replace(last, end_of_input=False)
    placed = {
        name: [number * count // len(found) for number in range(len(found))]
        for name, found in slices.items()
    }
    controls = tuple(
        replace(running, behind=_behind(slices, placed, number)) for number in range(count)
    )
    numbers = {partition: number for number, partition in enumerate(sources or ())}
    readings: list[Reading] = []
    for name, found in slices.items():
        for slice_number, one in zip(placed[name], found, strict=True):
            readings += _readings(name, one.splits, len(readings), slice_number, numbers)
    return BatchPlan(readings, controls, last)


def _readings(
    name: str,
    splits: Sequence[Split],
    first: int,
    slice_number: int,
    numbers: Mapping[SourcePartition, int],
) -> list[Reading]:
    return [
        Reading(name, split, first + place, slice_number, numbers.get((name, split.partition)))
        for place, split in enumerate(splits)
    ]


def _behind(
    slices: Mapping[str, Sequence[Slice]], placed: Mapping[str, list[int]], number: int
) -> frozenset[SourcePartition]:
    """Return the partitions that later slices read, too."""
    found: set[SourcePartition] = set()
    for name, planned in slices.items():
        for at, one in zip(placed[name], planned, strict=True):
            if at > number:
                found.update((name, split.partition) for split in one.splits)
    return frozenset(found)
