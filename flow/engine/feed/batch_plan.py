"""The plan of a batch run: the splits of each slice, and the partitions behind after it.

Slices of all inputs run side by side, and the slices of an input with fewer slices are spread over
the whole run. The inputs of a run mostly cover the same span of time, so no input is far ahead of
the others, and steps buffer few values.
"""

from __future__ import annotations

import bisect
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
    """Return the plan of a batch run, with the slices of all inputs side by side.

    Args:
        plan: the compiled flow.
        slices: the slices of each input that Python reads.
        last: the control after all slices.
    """
    count = max([1, *(len(planned) for planned in slices.values())])
    read = {
        (name, split.partition)
        for name, planned in slices.items()
        for each in planned
        for split in each.splits
    }
    many = frozenset(name for name, number in read if number)
    sources: tuple[SourcePartition, ...] | None = None
    if plan.has_source_numbers(many):
        sources = plan.sources_of(read)
        if len(sources) > MAX_SOURCES:
            raise FlowBuildError(
                f"a batch may read at most {MAX_SOURCES} source partitions, got {len(sources)}: "
                "read them as order='sequence', or in several runs"
            )
    last = replace(last, many=many, sources=sources)
    running = replace(last, end_of_input=False)
    run_slices = {
        name: [number * count // len(planned) for number in range(len(planned))]
        for name, planned in slices.items()
    }
    controls = tuple(
        replace(running, behind=_behind(slices, run_slices, number)) for number in range(count)
    )
    numbers = {partition: number for number, partition in enumerate(sources or ())}
    readings: list[Reading] = []
    for name, planned in slices.items():
        for slice_number, each in zip(run_slices[name], planned, strict=True):
            readings += _readings(name, each.splits, len(readings), slice_number, numbers)
    return BatchPlan(readings, controls, last)


def _readings(
    name: str,
    splits: Sequence[Split],
    first: int,
    slice_number: int,
    numbers: Mapping[SourcePartition, int],
) -> list[Reading]:
    return [
        Reading(name, split, first + index, slice_number, numbers.get((name, split.partition)))
        for index, split in enumerate(splits)
    ]


def _behind(
    slices: Mapping[str, Sequence[Slice]], run_slices: Mapping[str, list[int]], number: int
) -> frozenset[SourcePartition]:
    """Return the partitions that are behind after a slice of the run.

    They are those that the slice says, and those that later slices read, unless the source has not
    reached them.

    Args:
        slices: the slices of each input.
        run_slices: the number of the run's slice for each slice of an input.
        number: the number of the run's slice.
    """
    behind: set[SourcePartition] = set()
    for name, planned in slices.items():
        if not planned:
            continue
        done = bisect.bisect_right(run_slices[name], number)
        said, reached = planned[done - 1].behind, planned[done - 1].reached
        rest = {split.partition for each in planned[done:] for split in each.splits}
        rest = {one for one in rest if reached is None or one < reached}
        behind.update((name, partition) for partition in {*rest, *said})
    return frozenset(behind)
