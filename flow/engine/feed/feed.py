"""The feed: the planner of epochs, in the process that starts the flow.

The plan of an epoch is an offset: its system time and the splits that it reads, as JSON. Spark logs
the offset before the epoch runs. A replay reads the offset from the log, so it has the same system
time and the same input.

An epoch starts when a source has new data, when a step's timer is due, or `HEARTBEAT_US` after the
last epoch. The heartbeat bounds the running time that a crash loses. Otherwise no epoch starts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flow.columns.chunks import MAX_SOURCES
from flow.connectors.source import Json, Planner, Slice
from flow.engine.epoch.context import Control, ReadUpTo, SourcePartition, Stats
from flow.engine.epoch.summary import late_sources, source_name
from flow.engine.feed.clocks import RunClock, SystemTime, wall_time
from flow.engine.feed.input_progress import InputProgress
from flow.engine.feed.offsets import EpochOffset, Origin, Releases, newest_name
from flow.engine.feed.run_tables import Tables, control_slices, read_slices
from flow.engine.feed.slices import REST_SECONDS, ask, check_slice
from flow.engine.plan.plan import Plan
from flow.engine.steps.reading import Reading
from flow.errors import SourceError
from flow.instants import NEVER, Moment

_SKIPPED_INPUT = (
    "input %r was removed or reset: skipping its records in the epoch that was interrupted when "
    "the flow stopped"
)
HEARTBEAT_US = 10_000_000
logger = logging.getLogger("flow")


class FeedEnd:
    """Events at the end of a run.

    Attributes:
        done: the feed plans no further epoch.
        stop_asked: the user has asked the run to stop.
        closed: the run has stopped.
    """

    def __init__(self) -> None:
        self.done = threading.Event()
        self.stop_asked = threading.Event()
        self.closed = threading.Event()


class StopFlag:
    """Flag with which another thread, or a signal handler, stops a run between two epochs."""

    def __init__(self) -> None:
        self._ends: list[FeedEnd] = []
        self._calls: list[Callable[[], object]] = []
        self.asked = threading.Event()

    def ask(self) -> None:
        """Ask the run to finish the current epoch and stop."""
        self.asked.set()
        for end in self._ends:
            end.stop_asked.set()
        for call in list(self._calls):
            call()

    def on_ask(self, call: Callable[[], object]) -> None:
        """Register a function that `ask` calls, in its thread or signal handler: must not block."""
        self._calls.append(call)
        if self.asked.is_set():
            call()

    def watch(self, end: FeedEnd) -> None:
        """Register the events of a run, which `ask` stops."""
        self._ends.append(end)
        if self.asked.is_set():
            end.stop_asked.set()


@dataclass
class Feed:
    """Planner of the epochs of a run.

    Attributes:
        planners: a planner for each input that Python reads.
        system_time: the wall clock.
        monotonic: the monotonic clock; ``None`` if the wall clock of a test serves as such.
        drain: True to end the input once all sources are finished.
        only_available: True to finish as soon as no source has new data.
        foreign: True if Spark itself reads some sources.
        end_now: True in a second pass, which ends the input after Spark has read its sources.
        offset_names: names of inputs in offsets, by step id, where the two differ.
        origin: start of a later generation of a checkpoint; ``None`` for the first generation.
        undone: offset of the epoch of a rewind, and those of the epochs that it has undone.
        check: called before sources are asked, which may write their logs.
        end: events at the end of the run.
        releases: oldest offsets that the checkpoint retains.
        plan: the compiled flow.
        due_us: earliest timer of the steps that follow system time, as system time.
        dues: earliest timer of each step that follows its inputs' clock, as system time.
        progress: progress of the inputs after the last epoch.
        tables: the tables; ``None`` for a flow without tables.
        frame_read: returns True if the last epoch read all available rows of Spark's sources.
        foreign_busy: True if the last epoch advanced the offsets of Spark's sources.
        aborted: True if a test's ABORT ends the run in the current epoch.
        last: the last epoch, planned or replayed.
        lag: description of each input's lag.
        behind: number of unread items by input and source partition, where known.
    """

    planners: Mapping[str, Planner]
    system_time: SystemTime = wall_time
    monotonic: SystemTime | None = None
    drain: bool = True
    only_available: bool = False
    foreign: bool = False
    end_now: bool = False
    offset_names: Mapping[str, str] = field(default_factory=dict)
    origin: Origin | None = None
    undone: Sequence[EpochOffset] = ()
    check: Callable[[], None] = lambda: None
    end: FeedEnd = field(default_factory=FeedEnd)
    releases: Releases | None = None
    plan: Plan | None = None
    due_us: int = 0
    dues: Mapping[str, int] = field(default_factory=dict)
    progress: InputProgress = field(default_factory=InputProgress)
    tables: Tables | None = None
    frame_read: Callable[[], bool] = lambda: False
    foreign_busy: bool = True
    aborted: bool = False
    last: EpochOffset = field(default_factory=EpochOffset)
    lag: dict[str, str] = field(default_factory=dict)
    behind: dict[str, dict[str, int]] = field(default_factory=dict)
    _clock: RunClock | None = None
    _ended: bool = False
    _skipped_offsets: dict[str, Json] = field(default_factory=dict)
    _polled: dict[str, int] = field(default_factory=dict)
    _postponed: frozenset[str] = frozenset()
    _released: EpochOffset | None = None

    def next(self, start: EpochOffset) -> EpochOffset:
        """Plan the next epoch, after the epoch that ends at `start` is committed.

        Returns:
            The offset at the end of the next epoch; `start` itself if no epoch is needed now.
        """
        if start.control is None and self.origin is not None:
            return self._seeding(self.origin)
        undone = self._undone_after(start)
        if undone is not None and not self._is_end(undone) and not self.end.stop_asked.is_set():
            return undone
        clock = self._begin(start)
        if self.end.stop_asked.is_set() or self._ended or self.aborted:
            return self._rest_for_good(start)
        self.check()
        # Reading the clock before the sources puts all data up to `now` into the epoch, or behind
        # it.
        now = clock.read()
        self._release(now.now_us)
        slices = self._slices(start, now)
        if slices:
            return self._epoch(start, slices, now)
        if self._exhausted(start):
            return self._finish(start, now)
        if self._tick_wanted(start, now):
            return self._epoch(start, {}, now)
        self.end.stop_asked.wait(REST_SECONDS)
        return start

    def note(self, stats: Stats) -> None:
        """Store the timers of steps and the progress of partitions that an epoch reports.

        The distance in event time between the partitions that feed a step is a gauge of the step.
        """
        timed = () if self.plan is None else self.plan.timed
        for step_id in timed:
            feeds = () if self.plan is None else self.plan.feeds[step_id]
            reached = [us for (name, _), us in stats.reached.items() if name in feeds]
            if reached:
                stats.gauges[step_id, "apart_us"] = max(reached) - min(reached)
        self.dues = {name: due_us for name, due_us in stats.dues.items() if name in timed}
        others = [due_us for name, due_us in stats.dues.items() if name not in timed]
        self.due_us = min(others, default=NEVER)
        stats.late_sources = late_sources(
            stats,
            {} if self.plan is None else self.plan.feeds,
            {**self.progress.reached, **stats.reached},
            lambda partition: source_name(self.planners, partition),
        )
        control, read = self.last.control, {name for name, _ in self.last.read}
        behind = frozenset() if control is None else control.behind
        self.progress = self.progress.after(stats.reached, read, behind)
        if self.tables is not None:
            self.tables.report(stats)

    def readings(self, start: EpochOffset, epoch: EpochOffset) -> list[Reading]:
        """Return the tasks that read an epoch's input.

        An epoch interrupted in an earlier run may read an input that was removed or reset since.
        Its splits are skipped, and its offset stays as before the epoch.
        """
        self.last = epoch
        readings = []
        for reading in epoch.readings():
            step_id = reading.step_id
            if step_id in self.planners and self.offset_names.get(step_id, step_id) in epoch.at:
                readings.append(reading)
                continue
            name = newest_name(step_id, epoch.at)
            if name not in self._skipped_offsets:
                logger.warning(_SKIPPED_INPUT, step_id)
            self._skipped_offsets[name] = start.at.get(name)
        return readings

    def _seeding(self, origin: Origin) -> EpochOffset:
        """Return the first epoch of a later generation, which restores the state.

        It replays the epoch that was interrupted in the generation before, or reads no input.
        """
        if origin.begun is not None:
            self.last = replace(origin.begun, seed=origin.seed)
            return self.last
        clock = self._begin(origin.start)
        # No input is asked for data, so partitions that were behind are so still.
        self._postponed = frozenset(self._in_tasks)
        return replace(self._epoch(origin.start, {}, clock.read()), seed=origin.seed)

    def _undone_after(self, start: EpochOffset) -> EpochOffset | None:
        """Return the plan of the next epoch, if a rewind has undone this epoch.

        With the plan, the epoch has the system time and the items that it had, so that its calls
        keep their ids.
        """
        following = zip(self.undone, self.undone[1:], strict=False)
        return next((undone for before, undone in following if before == start), None)

    def _is_end(self, undone: EpochOffset) -> bool:
        """Return True if the last undone epoch ended the input: there may be more of it now."""
        control = undone.control
        return control is not None and control.end_of_input and undone == self.undone[-1]

    def _begin(self, start: EpochOffset) -> RunClock:
        """Return the clock of this run; the first call starts it, and fixes the ends of sources."""
        if self._clock is None:
            if self.only_available:
                for planner in self.planners.values():
                    planner.stop_at_present()
            before = None if start.control is None else start.control.moment
            wall = self.system_time
            self._clock = RunClock(wall, self.monotonic or wall, before)
        return self._clock

    def _release(self, now_us: int) -> None:
        """Have planners remove records that no retained offset needs; once an epoch."""
        if self.releases is None or self.last is self._released:
            return
        self._released = self.last
        for name, oldest in self.releases.due().items():
            ask(name, self.planners[name].release, oldest, now_us)

    def _slices(self, start: EpochOffset, now: Moment) -> dict[str, Slice]:
        """Return the next slice of each input with new data.

        Inputs that are far ahead are left out, unless no other input has new data.
        """
        self._postponed = self._ahead(start)
        names = [name for name in self._in_tasks if name not in self._postponed]
        slices = self._next_slices(names, start, now)
        if not slices and self._postponed:
            postponed, self._postponed = self._postponed, frozenset()
            slices = self._next_slices(postponed, start, now)
        return slices

    def _next_slices(
        self, names: Iterable[str], start: EpochOffset, now: Moment
    ) -> dict[str, Slice]:
        """Return the next slices of some inputs; inputs without new data have none."""
        slices: dict[str, Slice] = {}
        for name in names:
            planner = self.planners[name]
            reached = {n: us for (of, n), us in self.progress.reached.items() if of == name}
            if reached:
                ask(name, planner.report_progress, reached)
            planned = ask(name, planner.next, self._offset(start, name))
            if planned is not None:
                slices[name] = check_slice(name, planned)
                continue
            until_us = ask(name, planner.read_until_us, now, False)
            if until_us is not None:
                self._polled[name] = min(until_us, now.running_us)
        return slices

    def _ahead(self, start: EpochOffset) -> frozenset[str]:
        """Return the inputs that an epoch does not read because other inputs are far behind."""
        if start.control is None or self.plan is None:
            return frozenset()
        return self.progress.ahead(self.plan.compared_inputs, start.control.behind)

    def _exhausted(self, start: EpochOffset) -> bool:
        if self.only_available:
            return not self._may_have_more()
        if self.foreign:
            return False
        return all(
            ask(name, planner.finished, self._offset(start, name))
            for name, planner in self._in_tasks.items()
        )

    @property
    def _controls(self) -> Mapping[str, Planner]:
        """The planners of control inputs."""
        controls = () if self.plan is None else self.plan.controls
        return {name: self.planners[name] for name in controls}

    @property
    def _in_tasks(self) -> Mapping[str, Planner]:
        """The planners of all other inputs."""
        controls = self._controls
        return {name: one for name, one in self.planners.items() if name not in controls}

    def _control_slices(self, start: EpochOffset) -> dict[str, list[Slice]]:
        """Return the slices of control inputs: from the beginning for a table that is new."""
        versions = {} if start.control is None else start.control.tables
        offsets = {
            name: None
            if self.tables and self.tables.is_new(name, versions)
            else self._offset(start, name)
            for name in self._controls
        }
        return control_slices(self._controls, offsets)

    def _may_have_more(self) -> bool:
        """Return True if a run of the available data may have unread data."""
        in_doubt = any(planner.in_doubt() for planner in self.planners.values())
        return in_doubt or (self.foreign and self.foreign_busy)

    def _finish(self, start: EpochOffset, now: Moment) -> EpochOffset:
        """Plan the epoch that ends the input, unless that epoch has run or ``drain=False``."""
        drained = start.control is not None and start.control.end_of_input
        if self.foreign and not self.end_now:
            return self._rest_for_good(start)
        self._ended = True
        if not self.drain or drained:
            return self._rest_for_good(start)
        undone = self._undone_after(start)
        return undone or self._epoch(start, {}, now, end_of_input=True)

    def _tick_wanted(self, start: EpochOffset, now: Moment) -> bool:
        if self.foreign and (not self.only_available or self._may_have_more()):
            return True
        if now.now_us >= self.due_us or start.control is None:
            return True
        if now.running_us >= start.control.moment.running_us + HEARTBEAT_US:
            return True
        if self.plan is None:
            return False
        # No input has a slice, so inputs that were behind are so no longer, or are in doubt. An
        # epoch without input then ends the hold.
        behind = {name for name, _ in start.control.behind if name in self.planners}
        if behind and not any(self.planners[name].in_doubt() for name in behind):
            return True
        control = Control(now, read=self._clocks(start, {}, now))
        return any(
            control.read_by(self.plan.feeds[step_id]).after_us + now.downtime_us >= due_us
            for step_id, due_us in self.dues.items()
        )

    def _clocks(
        self, start: EpochOffset, slices: Mapping[str, Slice], now: Moment
    ) -> dict[str, ReadUpTo]:
        """Return the clock of each input before and after an epoch that reads these slices."""
        clocks = {}
        for name in self.plan.inputs if self.plan is not None else self.planners:
            last_us = self._read_before(start, name, now.running_us)
            planned, planner = slices.get(name), self.planners.get(name)
            before_us = max(last_us, self._polled.get(name, last_us))
            after_us = before_us
            if planner is None:
                if self.frame_read() and start.control is not None:
                    before_us = after_us = max(last_us, start.control.moment.running_us)
            elif planned is not None:
                # A test that advances time adds its items after the advance.
                before_us = now.running_us if planned.advance_us else before_us
                until_us = ask(name, planner.read_until_us, now, bool(planned.behind))
                read_us = before_us if until_us is None else min(until_us, now.running_us)
                after_us = max(before_us, read_us)
            clocks[name] = ReadUpTo(before_us, after_us)
        return clocks

    def _read_before(self, start: EpochOffset, name: str, running_us: int) -> int:
        """Return the clock of an input before the epoch; `running_us` in a flow's first epoch."""
        if start.control is None:
            return running_us
        clock = start.control.read.get(name)
        return start.control.moment.running_us if clock is None else clock.after_us

    def _behind(
        self, start: EpochOffset, slices: Mapping[str, Slice]
    ) -> frozenset[SourcePartition]:
        """Return the partitions with known data beyond the slices."""
        before = frozenset() if start.control is None else start.control.behind
        behind = {(name, one) for name, planned in slices.items() for one in planned.behind}
        for name, planner in self._in_tasks.items():
            if name not in slices and (name in self._postponed or planner.in_doubt()):
                behind |= {partition for partition in before if partition[0] == name}
        frames = () if self.plan is None else self.plan.frames
        if frames and not self.frame_read():
            behind |= {(name, 0) for name in frames}
        return frozenset(behind)

    def _control(
        self,
        start: EpochOffset,
        slices: Mapping[str, Slice],
        moment: Moment,
        end_of_input: bool,
    ) -> Control:
        """Return the control of the epoch that reads these slices."""
        behind = self._behind(start, slices)
        read = {(name, one.partition) for name, planned in slices.items() for one in planned.splits}
        many = frozenset() if start.control is None else start.control.many
        many |= {name for name, number in behind | read if number}
        first = {} if start.control is None else dict(start.control.first)
        first |= {name: planned.first for name, planned in slices.items() if planned.first}
        clocks = {
            name: clock
            for name, clock in self._clocks(start, slices, moment).items()
            if clock.before_us < moment.running_us
        }
        sources = None
        if self.plan is not None and self.plan.has_source_numbers(many):
            sources = self.plan.sources_of(read)
            if len(sources) > MAX_SOURCES:
                raise SourceError(
                    f"an epoch may read at most {MAX_SOURCES} source partitions, got "
                    f"{len(sources)}: read fewer partitions in one flow"
                )
        number = 0 if start.control is None else start.control.number + 1
        return Control(moment, end_of_input, clocks, behind, many, sources, number, first)

    def _epoch(
        self,
        start: EpochOffset,
        slices: dict[str, Slice],
        now: Moment,
        end_of_input: bool = False,
    ) -> EpochOffset:
        controls = self._control_slices(start)
        planned = [*slices.values(), *(each for found in controls.values() for each in found)]
        advance_us = max((one.advance_us for one in planned), default=0)
        now = self._begin(start).advance(advance_us)
        self.aborted = any(one.abort for one in planned)
        self.due_us, self.dues = NEVER, {}
        control = self._control(start, slices, now, end_of_input)
        if self.tables is not None:
            before = {} if start.control is None else start.control.tables
            changes = read_slices(self.tables.plan, controls, control)
            control = replace(control, tables=self.tables.after(before, changes, control))
        read = tuple((step_id, split) for step_id, one in slices.items() for split in one.splits)
        self.last = EpochOffset(control, self._ends(start, slices, controls), read)
        offsets = {name: self._offset(self.last, name) for name in self.planners}
        self.lag = {name: one.lag(offsets[name]) for name, one in self.planners.items()}
        self.behind = {name: dict(one.behind(offsets[name])) for name, one in self.planners.items()}
        return self.last

    def _ends(
        self,
        start: EpochOffset,
        slices: Mapping[str, Slice],
        controls: Mapping[str, list[Slice]],
    ) -> dict[str, Json]:
        """Return the offset of each input after an epoch, by the input's name in offsets."""
        last = {**slices, **{name: found[-1] for name, found in controls.items() if found}}
        ends = {self.offset_names.get(name, name): one.end for name, one in last.items()}
        before = {
            name: offset for name, offset in start.at.items() if name not in self._skipped_offsets
        }
        skipped = {
            name: offset for name, offset in self._skipped_offsets.items() if offset is not None
        }
        return {**before, **skipped, **ends}

    def _offset(self, offset: EpochOffset, step_id: str) -> Json:
        """Return the offset of an input."""
        return offset.at.get(self.offset_names.get(step_id, step_id))

    def _rest_for_good(self, start: EpochOffset) -> EpochOffset:
        """Signal that no epoch follows, and return the offset unchanged.

        Data of sources that Spark reads would start further epochs, so a flow with such a source
        waits here until the run has stopped.
        """
        self.end.done.set()
        self.end.closed.wait(None if self.foreign else REST_SECONDS)
        return start
