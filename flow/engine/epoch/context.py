"""The control of an epoch, its parameters for all tasks, and the context of one task."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from flow.engine.epoch.statistics import SourcePartition, Stats, TaskWork
from flow.engine.tables.contents import Change, Contents
from flow.engine.tables.table_files import TableStore, TableVersion
from flow.errors import EngineError
from flow.instants import NEVER, Moment

if TYPE_CHECKING:
    from flow.connectors.source import Split
    from flow.keyed.step import TimeColumn


class ReadUpTo(NamedTuple):
    """The clock of an input in an epoch: the running time up to which its source has been read.

    Attributes:
        before_us: the clock before the epoch's items, in µs.
        after_us: the clock after the epoch's items, in µs.
    """

    before_us: int
    after_us: int


class Front(NamedTuple):
    """The front of a step before an epoch, see `flow.keyed.step.Preaggregation`.

    Attributes:
        source: the input that feeds the step; empty if the wait is endless: no record is late as
            long as the wait has not been another one.
        column: the column of timestamps.
        wait_us: the wait of the step's clock. A change of it, or of the column, makes the front
            unknown.
        us: at least each timestamp read before, advanced by the time that has passed since, in µs.
    """

    source: str
    column: str
    wait_us: int
    us: int


TimedBy: TypeAlias = "Mapping[str, tuple[str, TimeColumn]]"
"""The input and the column of timestamps of steps."""


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
        fronts: the front of each step of which it is known.
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
    fronts: Mapping[str, Front] = field(default_factory=dict)

    @property
    def source_numbers(self) -> dict[SourcePartition, int]:
        """The number of each source partition in `sources`."""
        return {partition: number for number, partition in enumerate(self.sources or ())}

    def read_by(self, inputs: Iterable[str]) -> ReadUpTo:
        """Return the clock of a step that these inputs feed."""
        clocks = [self.read[name] for name in inputs if name in self.read]
        now_us = self.moment.running_us
        return ReadUpTo(
            min((clock.before_us for clock in clocks), default=now_us),
            min((clock.after_us for clock in clocks), default=now_us),
        )

    def behind_by(self) -> dict[str, float]:
        """Return the time by which each input is behind that has data left to read, in seconds."""
        return {
            name: (self.moment.running_us - self.read_by([name]).after_us) / 1e6
            for name in {name for name, _ in self.behind}
        }

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
            "fronts": {name: list(one) for name, one in self.fronts.items()},
        }
        content = {name: value for name, value in optional.items() if value}
        if self.sources is not None:
            content["sources"] = list(map(list, self.sources))
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
            {name: Front(*one) for name, one in found.get("fronts", {}).items()},
        )

    def encode(self) -> bytes:
        """Return the control as bytes."""
        return json.dumps(self.to_json()).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Control:
        """Return the control in bytes made by `encode`."""
        return cls.from_json(json.loads(payload))


def first_fronts(timed_by: TimedBy) -> dict[str, Front]:
    """Return the fronts of steps without state, before the first epoch.

    Args:
        timed_by: the input and the column of timestamps of steps.
    """
    return {name: Front(source, *column, -NEVER) for name, (source, column) in timed_by.items()}


def fronts_after(
    timed_by: TimedBy, before: Control, read: Iterable[tuple[str, Split]], now: Moment
) -> dict[str, Front]:
    """Return the known fronts before the next epoch.

    The watermark of a key is at most that of a key with all values, which is the front less the
    wait. Without the greatest timestamp of a split, a front is unknown from then on, as after a
    change of the flow by which keys may have seen other values.

    Args:
        timed_by: as in `first_fronts`.
        before: the control of the epoch before.
        read: the splits of that epoch, each with its input.
        now: the moment of the next epoch.
    """
    passed_us = max(now.running_us - before.moment.running_us, 0)
    fronts = fitting_fronts(timed_by, before.fronts)
    *_, after = fronts_along(fronts, read)
    return {name: fronts[name]._replace(us=us + passed_us) for name, us in after.items()}


def fitting_fronts(timed_by: TimedBy, fronts: Mapping[str, Front]) -> dict[str, Front]:
    """Return the fronts that are known to a flow, whose clocks may be other ones than before."""
    first = first_fronts(timed_by)
    return {name: one for name, one in fronts.items() if first.get(name, ())[:3] == one[:3]}


def fronts_along(
    fronts: Mapping[str, Front], read: Iterable[tuple[str, Split]]
) -> Iterator[dict[str, int]]:
    """Yield the known fronts by step, in µs, before each of some splits, and after all of them."""
    known = {name: front.us for name, front in fronts.items()}
    for source, split in read:
        yield dict(known)
        for name in [name for name in known if fronts[name].source == source]:
            if split.peak_us is None:
                del known[name]
            else:
                known[name] = max(known[name], split.peak_us)
    yield dict(known)


def _by_input(partitions: Iterable[SourcePartition]) -> dict[str, list[int]]:
    numbers_of: dict[str, list[int]] = {}
    for name, number in sorted(partitions):
        numbers_of.setdefault(name, []).append(number)
    return numbers_of


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
        place: the part of the epoch's items that the task runs: an input, the number of its source
            partition and a slice, or a level, a shard and a slice.
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
