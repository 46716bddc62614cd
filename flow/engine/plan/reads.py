"""The results that the steps of a flow read, and the waits that follow from them.

A step in event time that reads the results of another is *held* by it: its watermarks stay at or
below the least timestamp that such a result may still have. Results lag behind the values that
they are made of; a step that reads streams with different lags needs a wait of at least their
spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from flow.dataflow import Step, StreamId
from flow.instants import NEVER
from flow.keyed.logic import LATE_PORT
from flow.keyed.step import Stateful, TimedResults
from flow.operators.edges import Input


@dataclass(frozen=True)
class Reads:
    """The origins of the items of a stream, or of all streams that a step reads.

    Attributes:
        results: the streams of steps in event time whose items arrive, without another step in
            event time on their way.
        plain: the inputs whose items arrive in this way.
        ignored: the streams of results that arrive at a step in event time that takes no holds.
        is_moment: True if a step on the way keeps items back, so that the order in which items of
            an epoch arrive means nothing.
        least_us, greatest_us: the least and the greatest lag of the results behind the values at
            the sources, in µs.
    """

    results: frozenset[StreamId] = frozenset()
    plain: frozenset[str] = frozenset()
    ignored: frozenset[StreamId] = frozenset()
    is_moment: bool = False
    least_us: int = NEVER
    greatest_us: int = 0

    def __or__(self, other: Reads) -> Reads:
        return Reads(
            self.results | other.results,
            self.plain | other.plain,
            self.ignored | other.ignored,
            self.is_moment or other.is_moment,
            min(self.least_us, other.least_us),
            max(self.greatest_us, other.greatest_us),
        )

    def lags_us(self, wait_us: int) -> tuple[int, int]:
        """Return the least and the greatest lag of all items; that of plain items is the wait."""
        if not self.plain:
            return self.least_us, self.greatest_us
        return min(0, self.least_us), max(self.greatest_us, wait_us)

    def wait_us(self, given_us: int) -> int:
        """Return the wait of a step that reads these streams: at least the spread of their lags."""
        if not self.results:
            return given_us
        least_us, greatest_us = self.lags_us(given_us)
        return max(given_us, greatest_us - least_us)


@dataclass(frozen=True)
class FoundReads:
    """The reads of all steps and streams of a flow.

    Attributes:
        steps: the steps, with waits that are long enough.
        of_streams: the origins of the items of each stream.
        of_steps: the origins of all items that each step reads. Of a step in event time that takes
            no holds, all inputs that feed it.
        waits: the wait of each step whose wait is longer than its clock's, in µs.
    """

    steps: dict[str, Step]
    of_streams: dict[StreamId, Reads]
    of_steps: dict[str, Reads]
    waits: dict[str, int]


def reads_of(
    steps: Mapping[str, Step], feeds: Mapping[str, tuple[str, ...]], tables: Iterable[str]
) -> FoundReads:
    """Return the reads of steps, which are in the order of their addition.

    Args:
        steps: the steps.
        feeds: the inputs whose items reach each step.
        tables: the tables, which take and give no holds.
    """
    found = FoundReads({}, {}, {}, {})
    for name, step in steps.items():
        ups = (found.of_streams.get(up, Reads()) for up in step.ups if up.step_id not in tables)
        reads = reduce(or_, ups, Reads())
        if isinstance(step.operator, Input):
            reads = Reads(plain=frozenset({name}))
        elif isinstance(step.operator, Stateful) and step.operator.declared.follows_inputs:
            if not step.operator.declared.takes_holds:
                reads = Reads(plain=frozenset(feeds[name]), ignored=reads.results)
            step = _with_wait(step, step.operator, reads, found.waits)
        found.steps[name], found.of_steps[name] = step, reads
        for port, stream in enumerate(step.downs):
            found.of_streams[stream] = _emitted(step, reads, port, stream)
    return found


def _with_wait(step: Step, operator: Stateful, reads: Reads, waits: dict[str, int]) -> Step:
    """Return a step in event time whose wait is at least the spread of its inputs' lags."""
    builder = operator.declared
    if not builder.takes_holds:
        return step
    wait_us = reads.wait_us(builder.wait_us)
    if wait_us <= builder.wait_us:
        return step
    waits[step.step_id] = wait_us
    return replace(step, operator=replace(operator, builder=builder.with_wait(wait_us)))


def _emitted(step: Step, reads: Reads, port: int, stream: StreamId) -> Reads:
    """Return the origins of the items of one of a step's streams."""
    operator = step.operator
    if not isinstance(operator, Stateful):
        return reads
    results, wait_us = operator.declared.results, operator.declared.wait_us
    if results is not None:
        lags_us = _lags_us(reads, wait_us, results, stream.port == LATE_PORT)
        return Reads(frozenset({stream}), frozenset(), frozenset(), True, *lags_us)
    if operator.declared.follows_inputs or not operator.keeps_back(port):
        return reads
    return replace(reads, is_moment=True)


def _lags_us(reads: Reads, wait_us: int, results: TimedResults, are_late: bool) -> tuple[int, int]:
    """Return the least and the greatest lag of a step's results, or of its late values."""
    least_us, greatest_us = reads.lags_us(wait_us)
    greatest_us = max(greatest_us, wait_us)
    if are_late:
        return least_us, greatest_us
    least_us += results.stays_us + (0 if results.leave_early else wait_us)
    return least_us, greatest_us + results.reach_us
