"""What the code of one task knows of its epoch, and what it reports."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

from flow.instants import NEVER, Moment


@dataclass(frozen=True)
class Control:
    """What reaches every shard of every level in every epoch.

    Attributes:
        moment: the epoch's system time.
        end_of_input: whether the flow is being drained: nothing will come after this epoch.
    """

    moment: Moment
    end_of_input: bool = False

    def encode(self) -> bytes:
        """The control as bytes."""
        values = [self.moment.now_us, self.moment.downtime_us, self.end_of_input]
        return json.dumps(values).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Control:
        """The control in bytes made by `encode`."""
        now_us, downtime_us, end_of_input = json.loads(payload)
        return cls(Moment(now_us, downtime_us), end_of_input)


@dataclass
class Stats:
    """What a task counted, summed over tasks on the way to where the flow was started.

    Attributes:
        counts: how often something happened, by (step, what).
        gauges: how much there is of something in this epoch, by (step, what).
        due_us: the least system time at which a step wants to be called again.
        notes: a few examples of what was dropped, in words.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    gauges: Counter[tuple[str, str]] = field(default_factory=Counter)
    due_us: int = NEVER
    notes: list[str] = field(default_factory=list)

    def add(self, other: Stats) -> None:
        """Add what another task counted."""
        self.counts.update(other.counts)
        self.gauges.update(other.gauges)
        self.due_us = min(self.due_us, other.due_us)
        self.notes = (self.notes + other.notes)[:MAX_NOTES]

    def note(self, text: str) -> None:
        """Keep an example, if there are not enough already."""
        if len(self.notes) < MAX_NOTES:
            self.notes.append(text)

    def encode(self) -> bytes:
        """The stats as bytes."""
        tables = [_rows(self.counts), _rows(self.gauges)]
        return json.dumps([*tables, self.due_us, self.notes]).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Stats:
        """The stats in bytes made by `encode`."""
        counts, gauges, due_us, notes = json.loads(payload)
        return cls(_counter(counts), _counter(gauges), due_us, notes)


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
    """

    moment: Moment
    stats: Stats = field(default_factory=Stats)
    printed: list[str] = field(default_factory=list)
    run_id: str = ""

    def count(self, step_id: str, what: str, amount: int = 1) -> None:
        """Count something of a step."""
        if amount:
            self.stats.counts[step_id, what] += amount
