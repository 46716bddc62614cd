"""The parameters of an epoch for its tasks, and the statistics that tasks report."""

from __future__ import annotations

import json
import pickle
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from flow.engine.epoch import late_items
from flow.engine.epoch.late_items import LateItem
from flow.engine.epoch.work import TaskWork, Work
from flow.engine.tables.contents import Change, Contents
from flow.engine.tables.table_files import TableStore, TableVersion
from flow.errors import EngineError
from flow.instants import NEVER, Moment


class ReadUpTo(NamedTuple):
    """The clock of an input in an epoch: the running time up to which its source has been read.

    Attributes:
        before_us: the clock before the epoch's items, in µs.
        after_us: the clock after the epoch's items, in µs.
    """

    before_us: int
    after_us: int


SourcePartition: TypeAlias = tuple[str, int]
"""A partition of a source: the input's step, and the partition's number."""


@dataclass(frozen=True)
class Control:
    """Parameters of an epoch, which reach every shard of every level.

    Attributes:
        moment: the epoch's system time.
        end_of_input: True if the flow is drained, and this epoch is its last.
        read: the clock of each input; an input without an entry has been read up to now.
        behind: the partitions that are behind.
        many: the inputs whose sources have several partitions.
        sources: the partitions that the epoch reads; positions carry the index of a partition in
            this tuple. ``None`` if positions carry no partition.
        number: the number of the epoch in its checkpoint, from 0. It is logged with the epoch, so
            that no two epochs have equal controls, even if system time stands still.
        first: the first source partition of an input that may still be read, if not 0; the
            partitions before it are finished for good.
        tables: the version of each table that the epoch sees, by the table's name in the
            checkpoint.
    """

    moment: Moment
    end_of_input: bool = False
    read: Mapping[str, ReadUpTo] = field(default_factory=dict)
    behind: frozenset[SourcePartition] = frozenset()
    many: frozenset[str] = frozenset()
    sources: tuple[SourcePartition, ...] | None = None
    number: int = 0
    first: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[str, TableVersion] = field(default_factory=dict)

    def read_by(self, inputs: Iterable[str]) -> ReadUpTo:
        """Return the clock of a step that these inputs feed."""
        clocks = [self.read[name] for name in inputs if name in self.read]
        now_us = self.moment.running_us
        return ReadUpTo(
            min((clock.before_us for clock in clocks), default=now_us),
            min((clock.after_us for clock in clocks), default=now_us),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the control as JSON, without fields that have their default."""
        moment = self.moment
        optional = {
            "stepped": moment.stepped_us,
            "upto": {name: list(clock) for name, clock in self.read.items()},
            "behind": _by_input(self.behind),
            "many": sorted(self.many),
            "number": self.number,
            "first": dict(self.first),
            "tables": {name: one.to_json() for name, one in self.tables.items()},
        }
        content = {name: value for name, value in optional.items() if value}
        if self.sources is not None:
            content["sources"] = list(self.sources)
        end = int(self.end_of_input)
        return {"now": moment.now_us, "down": moment.downtime_us, "end": end, **content}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Control:
        """Return the control in JSON made by `to_json`."""
        sources = found.get("sources")
        return cls(
            Moment(found["now"], found["down"], stepped_us=found.get("stepped", 0)),
            bool(found["end"]),
            {name: ReadUpTo(*clock) for name, clock in found.get("upto", {}).items()},
            frozenset(
                (name, number)
                for name, numbers in found.get("behind", {}).items()
                for number in numbers
            ),
            frozenset(found.get("many", ())),
            None if sources is None else tuple((name, number) for name, number in sources),
            found.get("number", 0),
            found.get("first", {}),
            {name: TableVersion.from_json(one) for name, one in found.get("tables", {}).items()},
        )

    def encode(self) -> bytes:
        """Return the control as bytes."""
        return json.dumps(self.to_json()).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Control:
        """Return the control in bytes made by `encode`."""
        return cls.from_json(json.loads(payload))


def _by_input(partitions: Iterable[SourcePartition]) -> dict[str, list[int]]:
    numbers_of: dict[str, list[int]] = {}
    for name, number in sorted(partitions):
        numbers_of.setdefault(name, []).append(number)
    return numbers_of


class StepBound(NamedTuple):
    """The bound of a step's watermarks at the end of an epoch, and what sets it.

    Attributes:
        bound_us: the bound, in µs.
        set_by: the step that holds it, or the input whose source partition is behind.
        partition: the number of the source partition; -1 for a step.
    """

    bound_us: int
    set_by: str
    partition: int = -1

    @property
    def setter(self) -> str:
        """The step or the source partition that sets the bound, in words."""
        of_input = f"source partition {self.partition} of input {self.set_by!r}"
        return f"step {self.set_by!r}" if self.partition < 0 else of_input


OPEN_WINDOWS, BUFFERED_VALUES = "open_windows", "buffered_values"
"""The gauges of a step whose windows and buffered values are counted."""


class LateSource(NamedTuple):
    """Origin of late values of a step.

    Attributes:
        step_id: the step.
        came_from: the name of the source partition of the values, for messages.
        ahead: the name of the partition that was furthest ahead in event time.
    """

    step_id: str
    came_from: str
    ahead: str


@dataclass
class Stats:
    """Statistics of an epoch, summed over tasks.

    Attributes:
        counts: counters, by (step, name).
        gauges: sizes at the end of the epoch, by (step, name).
        due_us: the least due time of a step, in system time, µs.
        dues: the due time of each step that has a timer, in µs; for a step that follows its inputs'
            clock, as a time of that clock.
        bounds: the bound of the watermarks of each step that has one at the end of the epoch.
        reached: the progress of each source partition that may hold watermarks: its event time less
            the wait, in µs, the least over the steps that the partition feeds.
        lateness: the number of late values, by (step, lateness in µs).
        late_from: the number of late values, by (step, source partition), of steps that several
            partitions feed.
        late_sources: the number of late values by names of partitions; set in the driver only.
        notes: a few descriptions of dropped values, for messages.
        busy_ns: the time that tasks worked in each step, in ns.
        work_ns: the time that tasks worked in each phase of the job, in ns.
        workers: the memory of each Python worker, in bytes, by the worker's name.
        lags: the number of keys that the epoch touched, by (step, lag of the key's watermark behind
            system time in µs, rounded up).
        late_items: a sample of the late values of each step, of a plan that samples them.
        phases: the duration of each phase of the epoch, in seconds; set in the driver only, see
            `flow.engine.epoch.work`.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    gauges: Counter[tuple[str, str]] = field(default_factory=Counter)
    due_us: int = NEVER
    notes: list[str] = field(default_factory=list)
    dues: dict[str, int] = field(default_factory=dict)
    bounds: dict[str, StepBound] = field(default_factory=dict)
    reached: dict[SourcePartition, int] = field(default_factory=dict)
    lateness: Counter[tuple[str, int]] = field(default_factory=Counter)
    late_from: Counter[tuple[str, SourcePartition]] = field(default_factory=Counter)
    late_sources: Counter[LateSource] = field(default_factory=Counter)
    busy_ns: Counter[str] = field(default_factory=Counter)
    work_ns: Counter[Work] = field(default_factory=Counter)
    workers: dict[str, int] = field(default_factory=dict)
    lags: Counter[tuple[str, int]] = field(default_factory=Counter)
    late_items: list[LateItem] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)

    def reach(self, partition: SourcePartition, reached_us: int) -> None:
        """Record the progress of a source partition for a step that it feeds."""
        self.reached[partition] = min(self.reached.get(partition, NEVER), reached_us)

    @contextmanager
    def timed(self, step_id: str) -> Iterator[None]:
        """Add the duration of the block to the time that the task worked in a step."""
        start_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self.busy_ns[step_id] += time.perf_counter_ns() - start_ns

    def due(self, step_id: str, due_us: int) -> None:
        """Record the due time of a step."""
        if due_us < NEVER:
            self.due_us = min(self.due_us, due_us)
            self.dues[step_id] = min(self.dues.get(step_id, NEVER), due_us)

    def add(self, other: Stats) -> None:
        """Add the statistics of another task."""
        for name, total in vars(self).items():
            if isinstance(total, Counter):
                total.update(getattr(other, name))
        self.due_us = min(self.due_us, other.due_us)
        for step_id, due_us in other.dues.items():
            self.due(step_id, due_us)
        self.bounds.update(other.bounds)  # The same in each shard.
        for partition, reached_us in other.reached.items():
            self.reach(partition, reached_us)
        self.late_items = late_items.newest([*self.late_items, *other.late_items])
        for worker, size in other.workers.items():
            self.workers[worker] = max(size, self.workers.get(worker, 0))
        self.notes = (self.notes + other.notes)[:MAX_NOTES]

    def note(self, text: str) -> None:
        """Record the description of a dropped value, up to `MAX_NOTES`."""
        if len(self.notes) < MAX_NOTES:
            self.notes.append(text)

    def encode(self) -> bytes:
        """Return the statistics as bytes."""
        return pickle.dumps(self, 5)

    @classmethod
    def decode(cls, payload: bytes) -> Stats:
        """Return the statistics in bytes made by `encode`."""
        stats: Stats = pickle.loads(payload)
        return stats


MAX_NOTES = 5


@dataclass
class TaskContext:
    """Shared context of the steps that one task runs.

    Attributes:
        moment: the epoch's system time.
        stats: the task's statistics.
        printed: lines that inspectors printed.
        run_id: identity of the run, for caches of workers that outlive epochs.
        control: the epoch's control; ``None`` in tasks of Spark's own sources, which do not know
            the epoch.
        place: the part of the epoch's items that the task runs: an input and the number of its
            source partition, or a level, a shard and a slice.
        calls: the number of items met so far of each call id, to tell items of equal ids apart.
        table_store: the tables of the plan; ``None`` for a plan without tables.
        changes: the changes of tables, by table, each with its position; only while an epoch is
            planned.
        work: the time that the task works in each phase of the job.
    """

    moment: Moment
    stats: Stats = field(default_factory=Stats)
    printed: list[str] = field(default_factory=list)
    run_id: str = ""
    control: Control | None = None
    place: tuple[str | int, ...] = ()
    calls: Counter[bytes] = field(default_factory=Counter)
    table_store: TableStore | None = None
    changes: dict[str, list[tuple[int, Change]]] = field(default_factory=dict)
    work: TaskWork = field(default_factory=TaskWork)

    def table(self, step_id: str) -> Contents:
        """Return the contents of a table in the epoch."""
        if self.table_store is None:
            raise EngineError(f"a task has no table {step_id!r}")
        versions = None if self.control is None else self.control.tables
        return self.table_store.contents(step_id, versions)

    def count(self, step_id: str, what: str, amount: int = 1) -> None:
        """Add to a counter of a step."""
        if amount:
            self.stats.counts[step_id, what] += amount
