"""The results that the steps of a flow read, and the waits that follow from them.

A step in event time that reads the results of another is *held* by it: its watermarks stay at or
below the least timestamp that such a result may still have. Results lag behind the values that
they are made of; a step that reads streams with different lags needs a wait of at least their
spread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from flow.dataflow import Step, StreamId
from flow.instants import NEVER
from flow.keyed.logic import LATE_PORT
from flow.keyed.step import Stateful, TimedResults
from flow.operators.edges import Input

if TYPE_CHECKING:
    from flow.engine.plan.plan import Plan


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


def find_reads(plan: Plan) -> Plan:
    """Find the results that each step in event time reads, and give it a wait that they need."""
    steps: dict[str, Step] = {}
    of_streams: dict[StreamId, Reads] = {}
    of_steps: dict[str, Reads] = {}
    waits: dict[str, int] = {}
    for name, step in plan.steps.items():
        ups = [of_streams[up] for up in step.ups if up.step_id not in plan.tables]
        own = frozenset({name}) if isinstance(step.operator, Input) else frozenset[str]()
        reads = reduce(or_, ups, Reads(plain=own))
        if isinstance(step.operator, Stateful) and step.operator.declared.follows_inputs:
            if not step.operator.declared.takes_holds:
                reads = Reads(plain=frozenset(plan.feeds[name]), ignored=reads.results)
            step, wait_us = _with_wait(step, step.operator, reads)
            waits |= {name: wait_us} if wait_us else {}
        steps[name], of_steps[name] = step, reads
        for port, stream in enumerate(step.downs):
            of_streams[stream] = _emitted(step, reads, port, stream)
    found = replace(plan, steps=steps, reads=of_steps, waits=waits)
    holding: dict[str, frozenset[int]] = {}
    for name in found.timed:
        for stream in of_steps[name].results:
            ports = frozenset({steps[stream.step_id].downs.index(stream)})
            ports = frozenset() if stream.port == LATE_PORT else ports
            holding[stream.step_id] = ports | holding.get(stream.step_id, frozenset())
    return replace(found, holding=holding)


def _with_wait(step: Step, operator: Stateful, reads: Reads) -> tuple[Step, int]:
    """Return a step in event time whose wait is at least the spread of its inputs' lags.

    Returns:
        The step, and this wait in µs, 0 if that of its clock is long enough.
    """
    builder = operator.declared
    wait_us = reads.wait_us(builder.wait_us) if builder.takes_holds else 0
    if wait_us <= builder.wait_us:
        return step, 0
    return replace(step, operator=replace(operator, builder=builder.with_wait(wait_us))), wait_us


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
