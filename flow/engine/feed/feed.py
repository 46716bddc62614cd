"""The feed: the planner of epochs, in the process that starts the flow.

The plan of an epoch is an offset: its system time and the splits that it reads, as JSON. Spark logs
the offset before the epoch runs. A replay reads the offset from the log, so it has the same system
time and the same input.

An epoch starts when a source has new data, when a step's timer is due, or `HEARTBEAT_US` after the
last epoch. Otherwise no epoch starts.

The feed has three parts: the slices of inputs (`InputSlices`), the clocks (`EpochClocks`), and here
the life of a run: its start from a checkpoint, its epochs, and its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from flow.connectors.source import Json, Slice
from flow.engine.epoch.context import Control, first_fronts, fronts_after
from flow.engine.epoch.statistics import Stats
from flow.engine.epoch.summary import late_sources, source_name
from flow.engine.feed.clocks import EpochClocks
from flow.engine.feed.input_progress import InputProgress
from flow.engine.feed.offsets import EpochOffset, Origin
from flow.engine.feed.run_tables import Tables, read_slices
from flow.engine.feed.slices import REST_SECONDS, InputSlices, numbered_sources
from flow.engine.steps.reading import Reading
from flow.instants import Moment

RELEASE_EPOCHS = 50
"""Epochs between two reads of the oldest retained epoch."""


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
        self._calls: list[Callable[[], object]] = []
        self.asked = threading.Event()

    def ask(self) -> None:
        """Ask the run to finish the current epoch and stop."""
        self.asked.set()
        for call in list(self._calls):
            call()

    def on_ask(self, call: Callable[[], object]) -> None:
        """Register a function that `ask` calls, in its thread or signal handler: must not block."""
        self._calls.append(call)
        if self.asked.is_set():
            call()


@dataclass(frozen=True)
class FeedSettings:
    """The life of a run, as plain data.

    Attributes:
        drain: True to end the input once all sources are finished.
        only_available: True to finish as soon as no source has new data.
        foreign: True if Spark itself reads some sources.
        end_now: True in a second pass, which ends the input after Spark has read its sources.
        origin: start of a later generation of a checkpoint; ``None`` for the first generation.
        undone: offset of the epoch of a rewind, and those of the epochs that it has undone.
    """

    drain: bool = True
    only_available: bool = False
    foreign: bool = False
    end_now: bool = False
    origin: Origin | None = None
    undone: Sequence[EpochOffset] = ()


@dataclass(frozen=True)
class FeedReport:
    """The feed's part of the report of an epoch, as plain data.

    Attributes:
        control: the control of the epoch.
        lag: description of each input's lag.
        behind: number of unread items by input and source partition, where known.
        progress: progress of the inputs after the epoch.
        stats: the statistics of tables, control inputs and source partitions.
    """

    control: Control | None
    lag: Mapping[str, str]
    behind: Mapping[str, dict[str, int]]
    progress: InputProgress
    stats: Stats


@dataclass
class Feed:
    """Planner of the epochs of a run.

    Offsets, readings and reports go in and out as plain data. The feed reads and writes files of
    the checkpoint, and calls the driver in `check` alone.

    Attributes:
        slices: the slices of the inputs.
        clocks: the system time, and the timers of steps.
        tables: the tables.
        settings: the settings of the run.
        check: called before sources are asked, which may write their logs: raises an error if the
            run has lost its checkpoint. Returns True if the last epoch read all available rows of
            Spark's sources.
        oldest: returns the oldest offset of each input that the checkpoint retains, by the input's
            name in offsets.
        end: events at the end of the run.
        aborted: True if a test's ABORT ends the run in the current epoch.
        foreign_busy: True if the last epoch advanced the offsets of Spark's sources.
        last: the last epoch, planned or replayed.
    """

    slices: InputSlices
    clocks: EpochClocks
    tables: Tables
    settings: FeedSettings = FeedSettings()
    check: Callable[[], bool] = lambda: False
    oldest: Callable[[], Mapping[str, Json]] = dict
    end: FeedEnd = field(default_factory=FeedEnd)
    aborted: bool = False
    foreign_busy: bool = True
    last: EpochOffset = field(default_factory=EpochOffset)
    _has_begun: bool = False
    _has_ended: bool = False
    _frames_read: bool = False
    _lag: Mapping[str, str] = field(default_factory=dict)
    _unread: Mapping[str, dict[str, int]] = field(default_factory=dict)
    _released: EpochOffset | None = None
    _epochs_to_release: int = 0

    def next(self, start: EpochOffset) -> EpochOffset:
        """Plan the next epoch, after the epoch that ends at `start` is committed.

        Returns:
            The offset at the end of the next epoch; `start` itself if no epoch is needed now.
        """
        if start.control is None and self.settings.origin is not None:
            return self._seeding(self.settings.origin)
        replayed = self._replayed_after(start)
        if replayed is not None:
            return replayed
        self._begin(start)
        if self.end.stop_asked.is_set() or self._has_ended or self.aborted:
            return self._rest_for_good(start)
        self._frames_read = self.check()
        # Reading the clock before the sources puts all data up to `now` into the epoch, or behind
        # it.
        now = self.clocks.clock.read()
        self._release(now.now_us)
        slices = self.slices.next(start, now)
        if slices:
            return self._epoch(start, slices)
        if self._is_exhausted(start):
            return self._finish(start)
        if self._needs_tick(start, now):
            return self._epoch(start, {})
        self.end.stop_asked.wait(REST_SECONDS)
        return start

    def fitted(self, epoch: EpochOffset) -> EpochOffset:
        """Return an epoch as the flow plans it, which another flow may have planned before.

        A table that is new since then, or was reset, is read from its beginning, as it is again for
        the next epoch.
        """
        epoch = self.slices.fitted(epoch)
        new = None if epoch.control is None else self.tables.without(epoch.control.tables)
        if epoch.control is None or new is None or not new.logs:
            return epoch
        found = self._control_slices(epoch)
        while self.slices.in_doubt(found) and not self.end.closed.wait(REST_SECONDS):
            found = self._control_slices(epoch)
        changes = read_slices(self.slices.plan, found, epoch.control)
        tables = {**epoch.control.tables, **new.after({}, changes, epoch.control)}
        return replace(epoch, control=replace(epoch.control, tables=tables))

    def readings(self, start: EpochOffset, epoch: EpochOffset) -> list[Reading]:
        """Return the tasks that read the input of an epoch, which may be a replay."""
        self.last = epoch
        return self.slices.readings(start, epoch)

    def finish_epoch(self, stats: Stats, foreign_busy: bool = False) -> FeedReport:
        """Take the statistics of the last epoch, after its outputs are committed.

        Args:
            stats: the statistics, with the timers of steps and the progress of partitions.
            foreign_busy: True if the epoch advanced the offsets of Spark's sources.
        """
        self.foreign_busy = foreign_busy
        plan, progress = self.slices.plan, self.slices.progress
        self.clocks.set_timers(stats, plan.timed)
        own = Stats()
        for step_id in plan.timed:
            feeds = plan.feeds[step_id]
            reached = [us for (name, _), us in stats.reached.items() if name in feeds]
            if reached:  # The distance in event time between the partitions that feed the step.
                own.gauges[step_id, "apart_us"] = max(reached) - min(reached)
        own.late_sources = late_sources(
            stats,
            plan.feeds,
            {**progress.reached, **stats.reached},
            lambda partition: source_name(self.slices.planners, partition),
        )
        self.tables.report(own)
        control, read = self.last.control, {(name, one.partition) for name, one in self.last.read}
        behind = frozenset() if control is None else control.behind
        # Without its items, fewer steps report a partition: its least progress would seem greater.
        known = {
            one: us for one, us in stats.reached.items() if one in read or one[0] in plan.frames
        }
        after = self.slices.progress = progress.after(known, {name for name, _ in read}, behind)
        return FeedReport(control, self._lag, self._unread, after, own)

    def _seeding(self, origin: Origin) -> EpochOffset:
        """Return the first epoch of a later generation, which restores the state.

        It replays the epoch that was interrupted in the generation before, or that a rewind has
        undone, or reads no input.
        """
        begun = origin.begun or self._replayed_after(origin.start)
        if begun is not None:
            self.last = replace(begun, seed=origin.seed)
            return self.last
        self._begin(origin.start)
        self.slices.postpone_all()
        self.clocks.clock.read()
        return replace(self._epoch(origin.start, {}), seed=origin.seed)

    def _undone_after(self, start: EpochOffset) -> EpochOffset | None:
        """Return the plan of the next epoch, if a rewind has undone this epoch.

        With the plan, the epoch has the system time and the items that it had, so that its calls
        keep their ids. A plan of before a table was added has no version of it, and is not used.
        """
        known = {log.name for log in self.tables.logs.values()}
        start = replace(start, seed=None)  # A replay in another layout has restored the state too.
        return next(
            (
                one
                for before, one in pairwise(self.settings.undone)
                if replace(before, seed=None) == start
                and one.control
                and known <= one.control.tables.keys()
            ),
            None,
        )

    def _replayed_after(self, start: EpochOffset) -> EpochOffset | None:
        """Return the plan of the next epoch, if it is one that a rewind has undone.

        If the last undone epoch ended the input, there may be more of it now.
        """
        undone = self._undone_after(start)
        if undone is None or self.end.stop_asked.is_set():
            return None
        return None if undone.ends_input and undone == self.settings.undone[-1] else undone

    def _begin(self, start: EpochOffset) -> None:
        """Start the clock of this run, and fix the ends of sources, in the first call."""
        if self._has_begun:
            return
        self._has_begun = True
        if self.settings.only_available:
            self.slices.stop_at_present()
        self.clocks.start(None if start.control is None else start.control.moment)

    def _release(self, now_us: int) -> None:
        """Release records of the sources' logs, once in `RELEASE_EPOCHS` epochs."""
        if self.last is self._released:
            return
        self._released = self.last
        self._epochs_to_release -= 1
        if self._epochs_to_release <= 0:
            self._epochs_to_release = RELEASE_EPOCHS
            self.slices.release(self.oldest(), now_us)

    def _is_exhausted(self, start: EpochOffset) -> bool:
        if self.settings.only_available:
            return not self._may_have_more()
        return not self.settings.foreign and self.slices.are_finished(start)

    def _may_have_more(self) -> bool:
        """Return True if a run of the available data may have unread data."""
        return self.slices.in_doubt() or (self.settings.foreign and self.foreign_busy)

    def _finish(self, start: EpochOffset) -> EpochOffset:
        """Plan the epoch that ends the input, unless that epoch has run or ``drain=False``."""
        if self.settings.foreign and not self.settings.end_now:
            return self._rest_for_good(start)
        self._has_ended = True
        if not self.settings.drain or start.ends_input:
            return self._rest_for_good(start)
        return self._undone_after(start) or self._epoch(start, {}, end_of_input=True)

    def _needs_tick(self, start: EpochOffset, now: Moment) -> bool:
        """Return True if an epoch without input is to start."""
        if self.settings.foreign and (not self.settings.only_available or self._may_have_more()):
            return True
        last = start.control
        if last is None:
            return True
        # No input has a slice, so inputs that were behind are so no longer, or are in doubt. An
        # epoch without input then ends the hold.
        behind = {name for name, _ in last.behind if name in self.slices.planners}
        if behind and not self.slices.in_doubt(behind):
            return True
        read = self.slices.clocks(last, {}, now, self._frames_read)
        return self.clocks.is_due(last, Control(now, read=read), self.slices.plan)

    def _epoch(
        self, start: EpochOffset, slices: Mapping[str, Slice], end_of_input: bool = False
    ) -> EpochOffset:
        """Return the offset at the end of an epoch that reads these slices, and control inputs.

        It is `start` itself if a control input may have data that its planner did not find.
        """
        controls = self._control_slices(start)
        if slices and self.slices.in_doubt(controls):  # The items would miss changes of tables.
            self.end.stop_asked.wait(REST_SECONDS)
            return start
        planned = [*slices.values(), *(each for found in controls.values() for each in found)]
        now = self.clocks.clock.advance(max((one.advance_us for one in planned), default=0))
        self.aborted = any(one.abort for one in planned)
        self.clocks.clear_timers()
        control = self._control(start, slices, now, end_of_input)
        before = {} if start.control is None else start.control.tables
        changes = read_slices(self.slices.plan, controls, control)
        control = replace(control, tables=self.tables.after(before, changes, control))
        read = tuple((step_id, split) for step_id, one in slices.items() for split in one.splits)
        last = {**slices, **{name: found[-1] for name, found in controls.items() if found}}
        self.last = EpochOffset(control, self.slices.ends(start, last), read)
        self._lag, self._unread = self.slices.lag(self.last), self.slices.unread(self.last)
        return self.last

    def _control_slices(self, start: EpochOffset) -> dict[str, list[Slice]]:
        """Return the slices of control inputs: from the beginning for a table that is new."""
        versions = {} if start.control is None else start.control.tables
        plan, new = self.slices.plan, self.tables.without(versions).logs
        from_beginning = {name for table in new for name in plan.feeds[table]}
        return {
            name: self.slices.arrived(
                name, None if name in from_beginning else self.slices.offset(start, name)
            )
            for name in plan.controls
        }

    def _control(
        self, start: EpochOffset, slices: Mapping[str, Slice], now: Moment, end_of_input: bool
    ) -> Control:
        """Return the control of the epoch that reads these slices."""
        timed_by = self.slices.plan.timed_by
        # State that a checkpoint is seeded with may have seen any timestamps.
        fronts = {} if self.settings.origin else first_fronts(timed_by)
        before = start.control or Control(now, number=-1, fronts=fronts)
        behind = self.slices.behind(before, slices, self._frames_read)
        read = {(name, one.partition) for name, planned in slices.items() for one in planned.splits}
        many = before.many | {name for name, number in behind | read if number}
        return Control(
            now,
            end_of_input,
            self.slices.clocks(before, slices, now, self._frames_read),
            behind,
            many,
            numbered_sources(self.slices.plan, read, many),
            before.number + 1,
            {**before.first, **{name: one.first for name, one in slices.items() if one.first}},
            fronts=fronts_after(timed_by, before, start.read, now),
        )

    def _rest_for_good(self, start: EpochOffset) -> EpochOffset:
        """Signal that no epoch follows, and return the offset unchanged.

        Data of sources that Spark reads would start further epochs, so a flow with such a source
        waits here until the run has stopped.
        """
        self.end.done.set()
        self.end.closed.wait(None if self.settings.foreign else REST_SECONDS)
        return start
