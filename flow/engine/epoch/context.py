"""What the code of one task knows of its epoch, and what it reports."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from flow.instants import NEVER, Moment


class ReadUpTo(NamedTuple):
    """The clock of an input in an epoch: the running time up to which its source has been read.

    Attributes:
        before_us: the last moment before the epoch's items at which it was read to its end.
        after_us: the same with them.
    """

    before_us: int
    after_us: int


SourcePartition: TypeAlias = tuple[str, int]
"""A partition of a source: the input's step, and the partition's number."""


@dataclass(frozen=True)
class Control:
    """What reaches every shard of every level in every epoch.

    Attributes:
        moment: the epoch's system time.
        end_of_input: whether the flow is being drained: nothing will come after this epoch.
        read: the clock of each input; one without an entry has been read up to now.
        behind: partitions of which more is known to be there than the epoch reads.
        many: inputs whose source has several partitions.
        sources: the partitions that the epoch reads, where its positions carry a partition's
            number in this list; ``None`` where they carry none.
    """

    moment: Moment
    end_of_input: bool = False
    read: Mapping[str, ReadUpTo] = field(default_factory=dict)
    behind: frozenset[SourcePartition] = frozenset()
    many: frozenset[str] = frozenset()
    sources: tuple[SourcePartition, ...] | None = None

    def read_by(self, inputs: Iterable[str]) -> ReadUpTo:
        """Return the clock of a step that these inputs feed."""
        clocks = [self.read[name] for name in inputs if name in self.read]
        now_us = self.moment.running_us
        return ReadUpTo(
            min((clock.before_us for clock in clocks), default=now_us),
            min((clock.after_us for clock in clocks), default=now_us),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the control as JSON, without what is as it mostly is."""
        found: dict[str, Any] = {
            "now": self.moment.now_us,
            "down": self.moment.downtime_us,
            "end": int(self.end_of_input),
        }
        if self.read:
            found["upto"] = {name: list(clock) for name, clock in self.read.items()}
        if self.behind:
            found["behind"] = _by_input(self.behind)
        if self.many:
            found["many"] = sorted(self.many)
        if self.sources is not None:
            found["sources"] = list(self.sources)
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Control:
        """Return the control in JSON made by `to_json`."""
        sources = found.get("sources")
        return cls(
            Moment(found["now"], found["down"]),
            bool(found["end"]),
            {name: ReadUpTo(*clock) for name, clock in found.get("upto", {}).items()},
            frozenset(
                (name, number)
                for name, numbers in found.get("behind", {}).items()
                for number in numbers
            ),
            frozenset(found.get("many", ())),
            None if sources is None else tuple((name, number) for name, number in sources),
        )

    def encode(self) -> bytes:
        """Return the control as bytes."""
        return json.dumps(self.to_json()).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Control:
        """Return the control in bytes made by `encode`."""
        return cls.from_json(json.loads(payload))


def _by_input(partitions: Iterable[SourcePartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, number in sorted(partitions):
        found.setdefault(name, []).append(number)
    return found


class LateSource(NamedTuple):
    """Origin of late values of a step.

    Attributes:
        step_id: the step.
        came_from: the source partition that brought them, by a name for people.
        ahead: the one that was furthest ahead in event time then.
    """

    step_id: str
    came_from: str
    ahead: str


@dataclass
class Stats:
    """What a task counted, summed over tasks on the way to where the flow was started.

    Attributes:
        counts: how often something happened, by (step, what).
        gauges: how much there is of something in this epoch, by (step, what).
        due_us: the least system time at which a step wants to be called again.
        dues: the same for each step that wants to; for a step that goes by its inputs' clock, the
            system time that this has to reach.
        reached: how far each source partition has come in event time, less the wait, where several
            hold a step's watermarks: the least over the steps that it feeds.
        lateness: how many values were late, by (step, late by how many microseconds).
        late_from: how many values were late, by (step, source partition), where several partitions
            feed the step.
        late_sources: the same with the names of partitions; known where the flow was started.
        notes: a few examples of what was dropped, in words.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    gauges: Counter[tuple[str, str]] = field(default_factory=Counter)
    due_us: int = NEVER
    notes: list[str] = field(default_factory=list)
    dues: dict[str, int] = field(default_factory=dict)
    reached: dict[SourcePartition, int] = field(default_factory=dict)
    lateness: Counter[tuple[str, int]] = field(default_factory=Counter)
    late_from: Counter[tuple[str, SourcePartition]] = field(default_factory=Counter)
    late_sources: Counter[LateSource] = field(default_factory=Counter)

    def reach(self, partition: SourcePartition, reached_us: int) -> None:
        """Note how far a source partition has come for a step that it feeds."""
        self.reached[partition] = min(self.reached.get(partition, NEVER), reached_us)

    def due(self, step_id: str, due_us: int) -> None:
        """Note when a step wants to be called again."""
        if due_us < NEVER:
            self.due_us = min(self.due_us, due_us)
            self.dues[step_id] = min(self.dues.get(step_id, NEVER), due_us)

    def add(self, other: Stats) -> None:
        """Add what another task counted."""
        self.counts.update(other.counts)
        self.gauges.update(other.gauges)
        self.due_us = min(self.due_us, other.due_us)
        for step_id, due_us in other.dues.items():
            self.due(step_id, due_us)
        for partition, reached_us in other.reached.items():
            self.reach(partition, reached_us)
        self.lateness.update(other.lateness)
        self.late_from.update(other.late_from)
        self.notes = (self.notes + other.notes)[:MAX_NOTES]

    def note(self, text: str) -> None:
        """Keep an example, if there are not enough already."""
        if len(self.notes) < MAX_NOTES:
            self.notes.append(text)

    def encode(self) -> bytes:
        """The stats as bytes."""
        tables = [_rows(self.counts), _rows(self.gauges)]
        reached = [[*partition, reached_us] for partition, reached_us in self.reached.items()]
        late = [[*of_step, count] for of_step, count in self.lateness.items()]
        late_from = [[name, *one, count] for (name, one), count in self.late_from.items()]
        content = [*tables, self.due_us, self.notes, self.dues, reached, late, late_from]
        return json.dumps(content).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Stats:
        """The stats in bytes made by `encode`."""
        counts, gauges, due_us, notes, dues, rows, late, came = json.loads(payload)
        reached = {(name, number): reached_us for name, number, reached_us in rows}
        lateness = Counter({(step_id, late_us): count for step_id, late_us, count in late})
        late_from = Counter({(step_id, (name, n)): count for step_id, name, n, count in came})
        counters = _counter(counts), _counter(gauges)
        return cls(*counters, due_us, notes, dues, reached, lateness, late_from)


def _rows(counter: Counter[tuple[str, str]]) -> list[tuple[str, str, int]]:
    return [(step, what, count) for (step, what), count in counter.items()]


def _counter(rows: list[tuple[str, str, int]]) -> Counter[tuple[str, str]]:
    return Counter({(step, what): count for step, what, count in rows})


MAX_NOTES = 5


@dataclass
class TaskContext:
    """What the steps run by one task share.

    Attributes:
        moment: the epoch's system time.
        stats: what is counted.
        printed: what inspectors printed.
        run_id: what this run of the flow is known by, for what workers keep from epoch to epoch.
        control: the epoch; ``None`` where Spark reads the input and its tasks do not know it.
    """

    moment: Moment
    stats: Stats = field(default_factory=Stats)
    printed: list[str] = field(default_factory=list)
    run_id: str = ""
    control: Control | None = None

    def count(self, step_id: str, what: str, amount: int = 1) -> None:
        """Count something of a step."""
        if amount:
            self.stats.counts[step_id, what] += amount
