"""`Timeline`: stream progress from an epoch's marks and the stored progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
from flow import Dataflow
from flow.dataflow import Step, StreamId, add_step
from flow.engine.epoch.context import Control
from flow.engine.packets.packets import PROGRESS, Packet
from flow.engine.plan.plan import Edge, EdgeKind, Plan
from flow.engine.progress.meter import Marks, Partition
from flow.engine.progress.step_time import step_time
from flow.engine.progress.stream_progress import ProgressAt, Sent, StepProgress, Timeline
from flow.engine.state.key_states import SegmentedStates
from flow.engine.state.store import PROGRESS_SEGMENT, MemoryStore
from flow.instants import NO_PROGRESS, Moment
from flow.keyed.step import Capabilities, Stateful
from flow.testing import TestingSource
from tests.support.logics import Journey, Mileage, Traveller
from tests.support.segments import CountingStore

MARKS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 30)), min_size=1, max_size=5)


def sent_progress(origin: int, partition: int, marks: Sequence[tuple[int, int]]) -> Sent:
    """Marks of a partition, from an origin that sent them in order."""
    points: dict[int, int] = {}
    for pos, value in sorted(marks):
        if not points or value > max(points.values()):
            points[pos] = value
    positions, values = np.array(list(points.items()), np.int64).reshape(-1, 2).T
    return Sent(origin, 0, Marks(0, Partition("in", partition), positions, values))


def points_of(one: Sent) -> list[tuple[int, int]]:
    return list(zip(one.marks.positions.tolist(), one.marks.values.tolist(), strict=True))


@dataclass
class TimelineModel:
    """Plain model of `Timeline`, for a flow in which no time passes."""

    start: dict[int, int]
    points: dict[int, list[tuple[int, int]]]

    @property
    def before(self) -> int:
        return min(self.start.values(), default=NO_PROGRESS)

    def counts_from(self, partition: int) -> int:
        if partition in self.start:
            return self.start[partition]
        first = min(pos for pos, _ in self.points[partition])
        return min(value for pos, value in self.points[partition] if pos == first)

    def at(self, partition: int, pos: int, stamp: int) -> int:
        own = [value for at, value in self.points.get(partition, []) if at < pos]
        own += [stamp, self.start.get(partition, NO_PROGRESS)]
        if max(own) == NO_PROGRESS:
            return self.before
        others = [
            max([self.counts_from(one), *(value for at, value in self.points[one] if at <= pos)])
            for one in self.points
            if one != partition
        ]
        return max(self.before, min([max(own), *others]))

    @property
    def after(self) -> int:
        ends = [max([self.counts_from(p), *(v for _, v in self.points[p])]) for p in self.points]
        return max(self.before, min(ends, default=NO_PROGRESS))


@given(
    st.dictionaries(st.integers(0, 3), st.integers(0, 30)),
    st.lists(st.tuples(st.integers(0, 3), MARKS), max_size=6),
    st.integers(0, 3),
    st.integers(-1, 9),
    st.just(NO_PROGRESS) | st.integers(0, 30),
)
def test_a_timeline_agrees_with_the_model(
    start: dict[int, int],
    packets: list[tuple[int, list[tuple[int, int]]]],
    partition: int,
    pos: int,
    stamp: int,
) -> None:
    all_sent = [
        sent_progress(origin, number, marks) for origin, (number, marks) in enumerate(packets)
    ]
    points: dict[int, list[tuple[int, int]]] = {number: [] for number in start}
    for one in all_sent:
        points.setdefault(one.marks.partition.number, []).extend(points_of(one))
    rules = TimelineModel(start, points)
    kept = StepProgress({(0, "in", number): ProgressAt(us, 0) for number, us in start.items()})

    timeline = Timeline(Mileage(), kept, all_sent, Moment(100))

    assert (timeline.before_us, timeline.after_us) == (rules.before, rules.after)
    if partition in points or stamp == NO_PROGRESS:  # an origin with a stamp has sent marks
        found = timeline.at((0, "in", partition), np.array([pos]), np.array([stamp]))
        assert found.tolist() == [rules.at(partition, pos, stamp)]
    assert {speaker[2] for speaker in timeline.kept.reached} == set(points)


def test_of_several_first_measures_at_one_position_the_least_counts() -> None:
    all_sent = [
        sent_progress(0, 0, [(2, 9)]),
        sent_progress(1, 0, [(2, 4)]),
        sent_progress(2, 1, [(0, 50)]),
    ]
    timeline = Timeline(Mileage(), StepProgress(), all_sent, Moment(0))
    found = timeline.at((0, "in", 1), np.array([0, 2]), np.array([50, 50]))
    assert found.tolist() == [4, 9]


# --- what is remembered -----------------------------------------------------------------------


EDGE = Edge(0, StreamId("in", "down"), "travel", 0, 1, EdgeKind.KEYED)


def travel_step(builder: Any) -> Step:
    """A step of its own, called "travel"."""
    flow = Dataflow("example")
    add_step("travel", Stateful(builder), op.input("in", flow, TestingSource([])))
    return flow.step("travel")


def open_timeline(
    store: MemoryStore, *marks: tuple[int, int], now_us: int = 0, by_time: bool = False
) -> Timeline:
    """An epoch's timeline of the step, from what the store remembers, kept there again."""
    journey = Journey(Mileage(by_time=by_time))
    step = travel_step(journey)
    packets = [
        Packet(PROGRESS, 0, one.origin, 0, one.marks.encode())
        for one in [sent_progress(0, 0, marks)]
        if marks
    ]
    states = SegmentedStates(store, "travel", Journey())
    plan = Plan("example", "", {"travel": step}, capabilities={"travel": journey.capabilities})
    timeline = step_time(plan, step, (EDGE,), packets, states, Control(Moment(now_us))).timeline
    states.flush()
    assert timeline is not None
    return timeline


def test_progress_is_written_only_if_it_changed() -> None:
    store = CountingStore()
    open_timeline(store)
    assert store.written == []
    open_timeline(store, (0, 5), by_time=True)
    assert store.written == [PROGRESS_SEGMENT]
    assert open_timeline(store, (0, 4), now_us=2, by_time=True).after_us == 7
    assert open_timeline(store, now_us=10, by_time=True).after_us == 15
    assert store.written == [PROGRESS_SEGMENT]


def test_a_step_without_progress_reads_none() -> None:
    store = CountingStore()
    states = SegmentedStates(store, "travel", Traveller)
    step = travel_step(Traveller)
    plan = Plan("example", "", {"travel": step}, capabilities={"travel": Capabilities()})
    assert step_time(plan, step, (EDGE,), [], states, Control(Moment(0))).timeline is None
    assert store.read == []


def test_the_format_of_stored_progress_is_unchanged() -> None:
    kept = StepProgress({(0, "in", 3): ProgressAt(5, 1), (1, "", 2): ProgressAt(7, 2)}, floor_us=6)
    content = b'\x01[6, [[0, "in", 3, 5, 1], [1, "", 2, 7, 2]], null]'
    assert kept.encode() == content
    assert StepProgress.decode(content, "travel") == kept
    assert StepProgress.decode(None, "travel") == StepProgress()


def test_a_finished_partition_counts_until_another_one_has_progress() -> None:
    first = {"in": 1}
    alone = Timeline(Mileage(), StepProgress(), [sent_progress(0, 0, [(0, 5)])], Moment(0))
    still = Timeline(Mileage(), alone.kept, [], Moment(0), first=first)
    assert (still.after_us, set(still.kept.reached)) == (5, {(0, "in", 0)})

    both = Timeline(Mileage(), still.kept, [sent_progress(0, 1, [(0, 9)])], Moment(0), first=first)
    assert (both.after_us, set(both.kept.reached)) == (5, {(0, "in", 1)})

    later = Timeline(Mileage(), both.kept, [], Moment(0), first=first)
    assert (later.before_us, later.after_us) == (9, 9)
