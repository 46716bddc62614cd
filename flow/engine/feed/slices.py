"""Slices of the inputs, in an epoch or a batch: calls of planners, whose errors name the step.

Slices of all inputs of a batch run side by side, and the slices of an input with fewer slices are
spread over the whole run. The inputs of a run mostly cover the same span of time, so no input is
far ahead of the others, and steps buffer few values.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

from flow.columns.chunks import MAX_SOURCES, MAX_SPLITS
from flow.connectors.source import Json, MemoryLog, Planner, Slice, SourceLog
from flow.engine.epoch.context import Control, ReadUpTo, first_fronts, fitting_fronts, fronts_along
from flow.engine.epoch.failures import user_code
from flow.engine.epoch.statistics import SourcePartition
from flow.engine.feed.input_progress import InputProgress
from flow.engine.feed.offsets import EpochOffset, newest_name
from flow.engine.plan.plan import Plan
from flow.engine.steps.reading import Reading, source_of
from flow.errors import SourceError, StepError, shorten
from flow.instants import Moment

_SKIPPED_INPUT = (
    "input %r was removed or reset, or feeds tables alone now: skipping its records in the epoch "
    "that was interrupted when the flow stopped"
)
logger = logging.getLogger("flow")

REST_SECONDS = 0.05
"""Pause, in seconds, before planners of sources without new data are called again."""

P = ParamSpec("P")
Answer = TypeVar("Answer")


def ask(step_id: str, question: Callable[P, Answer], *args: P.args, **named: P.kwargs) -> Answer:
    """Call a method of a planner or a source.

    Raises:
        FlowError: when the planner fails; the error names the step.
    """
    with user_code(step_id, "planning what to read"):
        return question(*args, **named)


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


class InputSlices:
    """The slices of a run's inputs, epoch by epoch: what to read next, and up to which offset.

    Args:
        plan: the compiled flow.
        planners: a planner for each input that Python reads.
        progress: progress of the inputs after the last epoch.

    Attributes:
        progress: progress of the inputs after the last epoch.
    """

    def __init__(
        self,
        plan: Plan,
        planners: Mapping[str, Planner],
        progress: InputProgress | None = None,
    ) -> None:
        self.plan, self.planners = plan, planners
        self.progress = progress or InputProgress()
        self._in_tasks = [name for name in planners if name not in plan.controls]
        self._read_until_us: dict[str, int] = {}
        self._postponed: frozenset[str] = frozenset()
        self._skipped: dict[str, Json] = {}

    def stop_at_present(self) -> None:
        """Limit the run to the data that the sources have now."""
        for name, planner in self.planners.items():
            ask(name, planner.stop_at_present)

    def release(self, oldest: Mapping[str, Json], now_us: int) -> None:
        """Have planners remove the records that no retained offset needs.

        Args:
            oldest: the oldest retained offsets, by the inputs' names in offsets.
            now_us: system time, in µs.
        """
        for name, planner in self.planners.items():
            offset = oldest.get(self.plan.state_name(name))
            if offset is not None:
                ask(name, planner.release, offset, now_us)

    def next(self, start: EpochOffset, now: Moment) -> dict[str, Slice]:
        """Return the next slice of each input with new data.

        Inputs that are far ahead are left out, unless no other input has new data.
        """
        behind = frozenset() if start.control is None else start.control.behind
        self._postponed = self.progress.ahead(self.plan.compared_inputs, behind)
        names = [name for name in self._in_tasks if name not in self._postponed]
        slices = self._next(names, start, now)
        if not slices and self._postponed:
            postponed, self._postponed = self._postponed, frozenset()
            slices = self._next(postponed, start, now)
        return slices

    def _next(self, names: Iterable[str], start: EpochOffset, now: Moment) -> dict[str, Slice]:
        slices: dict[str, Slice] = {}
        for name in names:
            planner = self.planners[name]
            reached = {n: us for (of, n), us in self.progress.reached.items() if of == name}
            if reached:
                ask(name, planner.report_progress, reached)
            planned = ask(name, planner.next, self.offset(start, name))
            if planned is not None:
                slices[name] = check_slice(name, planned)
                continue
            until_us = ask(name, planner.read_until_us, now, False)
            if until_us is not None:
                self._read_until_us[name] = min(until_us, now.running_us)
        return slices

    def postpone_all(self) -> None:
        """Leave all inputs out of an epoch, so that partitions that were behind are so still."""
        self._postponed = frozenset(self._in_tasks)

    def arrived(self, name: str, offset: Json) -> list[Slice]:
        """Return the slices of a control input after an offset, up to the end of its data."""
        slices: list[Slice] = []
        while not slices or (slices[-1].behind and not slices[-1].abort):
            planned = ask(name, self.planners[name].next, offset)
            if planned is None:
                break
            slices.append(check_slice(name, planned))
            offset = planned.end
        return slices

    def are_finished(self, start: EpochOffset) -> bool:
        """Return True if all inputs have ended for good."""
        return all(
            ask(name, self.planners[name].finished, self.offset(start, name))
            for name in self._in_tasks
        )

    def in_doubt(self, names: Iterable[str] | None = None) -> bool:
        """Return True if some inputs may have data that their planners did not find."""
        known = self.planners if names is None else names
        return any(self.planners[name].in_doubt() for name in known)

    def behind(
        self, before: Control, slices: Mapping[str, Slice], frames_read: bool
    ) -> frozenset[SourcePartition]:
        """Return the partitions with known data beyond the slices.

        Args:
            before: the control of the epoch before.
            slices: the slices of the epoch.
            frames_read: True if Spark has read all available rows of its sources.
        """
        behind = {(name, one) for name, planned in slices.items() for one in planned.behind}
        for name in self._in_tasks:
            if name not in slices and (name in self._postponed or self.in_doubt([name])):
                behind |= {partition for partition in before.behind if partition[0] == name}
        if not frames_read:
            behind |= {(name, 0) for name in self.plan.frames}
        return frozenset(behind)

    def clocks(
        self, before: Control, slices: Mapping[str, Slice], now: Moment, frames_read: bool
    ) -> dict[str, ReadUpTo]:
        """Return the clock of each input before and after an epoch that reads these slices."""
        clocks = {}
        for name in self.plan.inputs:
            last = before.read.get(name)
            last_us = before.moment.running_us if last is None else last.after_us
            if name in self.planners:
                clocks[name] = self._clock(name, last_us, slices.get(name), now)
            else:
                us = max(last_us, before.moment.running_us) if frames_read else last_us
                clocks[name] = ReadUpTo(us, us)
        return {name: clock for name, clock in clocks.items() if clock.before_us < now.running_us}

    def _clock(self, name: str, last_us: int, planned: Slice | None, now: Moment) -> ReadUpTo:
        before_us = max(last_us, self._read_until_us.get(name, last_us))
        if planned is None:
            return ReadUpTo(before_us, before_us)
        # A test that advances time adds its items after the advance.
        before_us = now.running_us if planned.advance_us else before_us
        until_us = ask(name, self.planners[name].read_until_us, now, bool(planned.behind))
        read_us = before_us if until_us is None else min(until_us, now.running_us)
        return ReadUpTo(before_us, max(before_us, read_us))

    def offset(self, offset: EpochOffset, name: str) -> Json:
        """Return the offset of an input; ``None`` if nothing of it has been read."""
        return offset.at.get(self.plan.state_name(name))

    def ends(self, start: EpochOffset, last: Mapping[str, Slice]) -> dict[str, Json]:
        """Return the offset of each input after an epoch, by the input's name in offsets.

        Args:
            start: the offset before the epoch.
            last: the last slice of each input that the epoch reads.
        """
        before = {name: end for name, end in start.at.items() if name not in self._skipped}
        skipped = {name: end for name, end in self._skipped.items() if end is not None}
        ends = {self.plan.state_name(name): one.end for name, one in last.items()}
        return {**before, **skipped, **ends}

    def fitted(self, epoch: EpochOffset) -> EpochOffset:
        """Return an epoch as the flow plans it, which another flow may have planned before."""
        if epoch.control is None:
            return epoch
        read = {(name, split.partition) for name, split in epoch.read}
        sources = numbered_sources(self.plan, read, epoch.control.many)
        fronts = fitting_fronts(self.plan.timed_by, epoch.control.fronts)
        return replace(epoch, control=replace(epoch.control, sources=sources, fronts=fronts))

    def readings(self, start: EpochOffset, epoch: EpochOffset) -> list[Reading]:
        """Return the tasks that read an epoch's input.

        An epoch interrupted in an earlier run may read an input that was removed or reset since, or
        that feeds tables alone now. Its splits are skipped, and its offset stays as before.
        """
        readings = []
        for reading in epoch.readings():
            step_id = reading.step_id
            if step_id in self._in_tasks and self.plan.state_name(step_id) in epoch.at:
                readings.append(reading)
                continue
            name = newest_name(step_id, epoch.at)
            if name not in self._skipped:
                logger.warning(_SKIPPED_INPUT, step_id)
            self._skipped[name] = start.at.get(name)
        return readings

    def lag(self, offset: EpochOffset) -> dict[str, str]:
        """Return a description of each input's lag at an offset."""
        return {name: one.lag(self.offset(offset, name)) for name, one in self.planners.items()}

    def unread(self, offset: EpochOffset) -> dict[str, dict[str, int]]:
        """Return the number of items after an offset, by input and source partition, if known."""
        return {
            name: dict(one.behind(self.offset(offset, name))) for name, one in self.planners.items()
        }


def numbered_sources(
    plan: Plan, read: Collection[SourcePartition], many: Collection[str]
) -> tuple[SourcePartition, ...] | None:
    """Return the source partitions in the order of the numbers that positions carry.

    Args:
        plan: the compiled flow.
        read: the partitions to read.
        many: the inputs whose sources have several partitions.

    Returns:
        The partitions; ``None`` if positions carry no numbers.

    Raises:
        SourceError: when there are too many partitions.
    """
    if not plan.has_source_numbers(many):
        return None
    sources = plan.sources_of(read)
    if len(sources) > MAX_SOURCES:
        raise SourceError(
            f"an epoch or a batch may read at most {MAX_SOURCES} source partitions, got "
            f"{len(sources)}: read fewer partitions in one flow, files as order='sequence', or a "
            "batch in several runs"
        )
    return sources


@dataclass(frozen=True)
class BatchPlan:
    """Plan of a batch run.

    Attributes:
        readings: the tasks of stage 0, in order of input and slice.
        controls: the control of each slice; of one slice if Spark itself reads all inputs.
        last: the control after all slices.
    """

    readings: list[Reading]
    controls: tuple[Control, ...]
    last: Control


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
    sources = numbered_sources(plan, read, many)
    last = replace(last, many=many, sources=sources)
    running = replace(last, end_of_input=False)
    run_slices = {
        name: [number * count // len(planned) for number in range(len(planned))]
        for name, planned in slices.items()
    }
    controls = tuple(
        replace(running, behind=_behind(slices, run_slices, number)) for number in range(count)
    )
    numbers = last.source_numbers
    splits = [
        (name, split, slice_number)
        for name, planned in slices.items()
        for slice_number, each in zip(run_slices[name], planned, strict=True)
        for split in each.splits
    ]
    fronts = fronts_along(first_fronts(plan.timed_by), ((name, split) for name, split, _ in splits))
    readings = [
        Reading(name, split, at, slice_number, numbers.get((name, split.partition)), fronts_us)
        for at, ((name, split, slice_number), fronts_us) in enumerate(
            zip(splits, fronts, strict=False)
        )
    ]
    return BatchPlan(readings, controls, last)


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
