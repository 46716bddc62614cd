"""Slices of the inputs: calls of planners, whose errors name the step, and the plan of a batch.

Slices of all inputs of a batch run side by side, and the slices of an input with fewer slices are
spread over the whole run. The inputs of a run mostly cover the same span of time, so no input is
far ahead of the others, and steps buffer few values.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

from flow.columns.chunks import MAX_SOURCES, MAX_SPLITS
from flow.connectors.source import MemoryLog, Planner, Slice, SourceLog, Split
from flow.engine.epoch.context import Control, SourcePartition
from flow.engine.epoch.failures import naming
from flow.engine.plan.plan import Plan
from flow.engine.steps.reading import Reading, source_of
from flow.errors import RAISED, FlowBuildError, FlowError, SourceError, StepError, brief, shorten

REST_SECONDS = 0.05
"""Pause, in seconds, before planners of sources without new data are called again."""

P = ParamSpec("P")
Answer = TypeVar("Answer")


def ask(step_id: str, question: Callable[P, Answer], *args: P.args, **named: P.kwargs) -> Answer:
    """Call a method of a planner or a source.

    Raises:
        FlowError: when the planner fails; the error names the step.
    """
    try:
        return question(*args, **named)
    except SourceError as error:
        raise naming(step_id, error) from error.__cause__
    except (FlowError, KeyboardInterrupt):  # The user interrupts the run, whose process this is.
        raise
    except RAISED as error:
        problem = f"planning what to read raised {brief(error)}"
        raise StepError(step_id, problem) from error


def check_slice(step_id: str, planned: Slice) -> Slice:
    """Return a slice whose positions and offsets fit a checkpoint.

    Raises:
        SourceError: when a partition has too many splits.
        StepError: when an offset or a split is not JSON.
    """
    if any(not 0 <= split.order < MAX_SPLITS for split in planned.splits):
        raise SourceError(
            f"step {step_id!r}: a slice may have at most {MAX_SPLITS} splits a partition"
        )
    for what, value in (("offset", planned.end), *(("split", one.what) for one in planned.splits)):
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            problem = f"its source's {what} must be JSON, got {shorten(value)}: {error}"
            raise StepError(step_id, problem) from error
    return planned


@contextlib.contextmanager
def planners_of(
    plan: Plan,
    names: Iterable[str],
    parallelism: int,
    log_of: Callable[[str], SourceLog] = lambda _: MemoryLog(),
) -> Iterator[dict[str, Planner]]:
    """Make the planners of inputs, by step, and close them after the block.

    Args:
        plan: the compiled flow.
        names: the inputs; those that Spark itself reads have no planner.
        parallelism: number of tasks that can read at the same time.
        log_of: returns the log of an input's source; by default a log in memory.

    Raises:
        FlowError: when a source raises; the source's exception is the cause.
    """
    planners: dict[str, Planner] = {}
    with contextlib.ExitStack() as opened:
        for name in names:
            if name not in plan.frames:
                source = source_of(plan.steps[name])
                planners[name] = ask(name, source.planner, log_of(name), parallelism)
                opened.callback(planners[name].close)
        yield planners


def plan_everything(planners: Mapping[str, Planner]) -> dict[str, list[Slice]]:
    """Return all slices of bounded sources, in order, by input."""
    slices: dict[str, list[Slice]] = {}
    for step_id, planner in planners.items():
        offset: Any = None
        slices[step_id] = []
        while not ask(step_id, planner.finished, offset):
            planned = ask(step_id, planner.next, offset)
            if planned is None:  # The source has no data now, and ends later: it is bounded.
                time.sleep(REST_SECONDS)
                continue
            slices[step_id].append(check_slice(step_id, planned))
            offset = planned.end
    return slices


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
