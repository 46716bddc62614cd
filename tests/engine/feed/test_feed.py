"""The feed: slices and system time of epochs, their start, and the end of input."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
from flow import Dataflow, SourceError, StepError
from flow.connectors.source import Planner, Slice, Split
from flow.connectors.then import Then
from flow.engine.epoch.context import Control
from flow.engine.epoch.statistics import Stats
from flow.engine.feed.clocks import HEARTBEAT_US, FixedTime
from flow.engine.feed.feed import Feed
from flow.engine.feed.offsets import EpochOffset, Origin
from flow.engine.feed.slices import batch_plan, plan_everything
from flow.engine.plan.compiler import compile_flow
from flow.engine.steps.reading import Reading
from flow.execution import report_of
from flow.instants import Moment
from flow.testing import TestingSink, TestingSource
from tests.support.clock import Clock
from tests.support.feeding import feed_of
from tests.support.one_stream import a_flow
from tests.support.reading_files import JsonLog
from tests.support.sampling import sampled

SECOND, MINUTE = 1_000_000, 60_000_000
NOON = 1_356_998_400_000_000
START = EpochOffset()


class Script(Planner):
    """Plans slices from a list; the offset is how many have been planned. ``None`` is a pause."""

    def __init__(self, slices: Sequence[Slice | None] = (), *, ends: bool = True) -> None:
        self._slices = list(slices)
        self._ends = ends

    def next(self, start: Any) -> Slice | None:
        at = start or 0
        if at >= len(self._slices):
            return None
        if self._slices[at] is None:
            self._slices.pop(at)
            return None
        return self._slices[at]

    def finished(self, start: Any) -> bool:
        return self._ends and (start or 0) >= len(self._slices)

    def lag(self, start: Any) -> str:
        return f"{len(self._slices) - (start or 0)} slices to go"


def slices(count: int, **options: Any) -> list[Slice]:
    return [Slice(n + 1, [Split(f"piece {n}")], **options) for n in range(count)]


def make_feed(planner: Planner | None = None, clock: Any = None, **options: Any) -> Feed:
    return feed_of({"in": planner or Script()}, clock or Clock(NOON), **options)


def resting(planner: Planner | None = None, clock: Any = None, **options: Any) -> Feed:
    """A feed whose source waits for more."""
    return make_feed(planner or Script(ends=False), clock, **options)


def moment(offset: EpochOffset) -> Moment:
    assert offset.control is not None
    return offset.control.moment


def ends(offset: EpochOffset) -> bool:
    return offset.control is not None and offset.control.end_of_input


def at_noon(downtime_us: int = 0, *, end: bool = False, after: int = 0) -> EpochOffset:
    """Return the offset at which an earlier run stopped."""
    return EpochOffset(Control(Moment(NOON, downtime_us), end), {"in": after})


# --- epochs that a rewind has undone ---------------------------------------------------------


#  recorded    a: piece 0 │ b: piece 1 │ end        a rewind to a undoes b and end
def test_an_undone_epoch_is_planned_as_it_was_but_the_end_only_if_no_more_has_come() -> None:
    recorder, recorded = make_feed(Script(slices(2))), [START]
    for _ in range(3):
        recorded.append(recorder.next(recorded[-1]))
    undone = [EpochOffset.from_json(json.loads(json.dumps(one.to_json()))) for one in recorded[1:]]
    a, b, end = undone
    later = partial(make_feed, clock=Clock(NOON + MINUTE), undone=undone)
    feed = later(Script(slices(3)))
    assert (feed.next(a), ends(end)) == (b, True)
    assert (moment(third := feed.next(b)).now_us, third.at) == (NOON + MINUTE, {"in": 3})
    assert later(Script(slices(2))).next(b) == end
    other = EpochOffset(a.control, {"in": 2})  # Only what followed a is known.
    assert moment(later(Script(slices(3))).next(other)).now_us == NOON + MINUTE
    feed.end.stop_asked.set()
    assert feed.next(a) is a


#  recorded    a: piece 0 │ b: piece 1 │ c: piece 2        a, and b if it began, move to a layout
@pytest.mark.parametrize("is_begun", [True, False])
def test_undone_epochs_keep_their_plans_in_another_layout(is_begun: bool) -> None:
    recorder = make_feed(Script(slices(3)))
    undone = [a := recorder.next(START), b := recorder.next(a), c := recorder.next(b)]
    later, origin = Clock(NOON + MINUTE), Origin(a, b if is_begun else None, "seed-1")
    feed = make_feed(Script(slices(3)), later, undone=undone, origin=origin)
    seeding = feed.next(START)
    assert (seeding, feed.next(seeding)) == (replace(b, seed="seed-1"), c)


# --- what an epoch reads ----------------------------------------------------------------------


def test_an_epoch_reads_the_next_slice_of_every_source() -> None:
    feed = feed_of({"a": Script(slices(2)), "b": Script(slices(1))}, Clock(NOON))
    first = feed.next(START)
    assert first.at == {"a": 1, "b": 1}
    assert first.read == (("a", Split("piece 0")), ("b", Split("piece 0")))
    second = feed.next(first)
    assert second.at == {"a": 2, "b": 1}
    assert second.read == (("a", Split("piece 1")),)


def test_the_tasks_of_an_epoch_are_numbered_through_all_sources() -> None:
    three = Slice(1, [Split("x"), Split("y", partition=1), Split("z", partition=1, order=1)])
    feed = feed_of({"a": Script([three]), "b": Script(slices(1))}, Clock(NOON))
    assert feed.next(START).readings() == [
        Reading("a", Split("x"), 0),
        Reading("a", Split("y", 1), 1),
        Reading("a", Split("z", 1, 1), 2),
        Reading("b", Split("piece 0"), 3),
    ]


def test_a_run_resumes_at_the_offset_of_the_last() -> None:
    feed = make_feed(Script(slices(3)))
    assert feed.next(at_noon(after=2)).read == (("in", Split("piece 2")),)


#  names of the input in the checkpoint    in · ["in", 1] · ["in", 2], which a third reset replaces
def test_an_input_reset_in_an_interrupted_epoch_keeps_the_offset_of_its_last_name() -> None:
    old, newer, newest = "in", '["in", 1]', '["in", 2]'
    before = EpochOffset(at_noon().control, {old: 5, newer: 7, newest: 1})
    hand = EpochOffset(at_noon().control, {old: 5, newer: 7, newest: 2}, (("in", Split("x")),))
    feed = resting(state_names={"in": '["in", 3]'})
    feed.next(before)
    assert feed.readings(before, hand) == []
    assert feed.slices._skipped == {newest: 1}


def test_a_source_with_too_many_splits_of_a_partition_is_refused() -> None:
    feed = make_feed(Script([Slice(1, [Split("x", order=1024)])]))
    with pytest.raises(SourceError, match="step 'in': a slice may have at most 1024 splits"):
        feed.next(START)


def test_the_feed_reports_the_lag_of_each_source() -> None:
    feed = make_feed(Script(slices(3)))
    feed.next(START)
    assert feed.finish_epoch(Stats()).lag == {"in": "2 slices to go"}


#  seconds   0         5                 8
#  reads     piece 0   piece 1           piece 2, the last
def test_an_input_is_behind_by_the_time_since_it_had_read_all() -> None:
    clock = Clock(NOON)
    feed = make_feed(Script([*slices(2, behind=(0,)), Slice(3, [Split("piece 2")])]), clock)
    found, offset = [], START
    for seconds in (0, 5, 3):
        clock.now += seconds * SECOND
        offset = feed.next(offset)
        found.append(report_of(1, Stats(), feed.finish_epoch(Stats())).behind_by)
    assert found == [{"in": 0.0}, {"in": 5.0}, {}]


# --- system time ------------------------------------------------------------------------------


def test_the_time_of_an_epoch_is_the_clocks() -> None:
    clock = Clock(NOON)
    feed = make_feed(Script(slices(2)), clock)
    first = feed.next(START)
    clock.now += SECOND
    second = feed.next(first)
    assert (moment(first), moment(second)) == (Moment(NOON), Moment(NOON + SECOND))


def test_system_time_never_goes_back_within_a_run() -> None:
    clock = Clock(NOON)
    feed = make_feed(Script(slices(2)), clock)
    first = feed.next(START)
    clock.now -= MINUTE
    assert moment(feed.next(first)) == Moment(NOON)


def test_system_time_never_goes_back_between_runs_and_causes_no_downtime() -> None:
    feed = make_feed(Script(slices(1)), Clock(NOON - MINUTE))
    assert moment(feed.next(at_noon(downtime_us=5))) == Moment(NOON, 5)


#  run     12:00 ─ 12:00       12:10 ─ 12:11            12:30
#  down                10 min           19 min
def test_downtime_between_runs_adds_up() -> None:
    second_run = Clock(NOON + 10 * MINUTE)
    feed = make_feed(Script(slices(2)), second_run)
    first = feed.next(at_noon())
    assert moment(first) == Moment(NOON + 10 * MINUTE, 10 * MINUTE)
    second_run.now += MINUTE
    second = feed.next(first)
    assert moment(second) == Moment(NOON + 11 * MINUTE, 10 * MINUTE)

    third_run = make_feed(Script(slices(3)), Clock(NOON + 30 * MINUTE))
    third = third_run.next(second)
    assert moment(third) == Moment(NOON + 30 * MINUTE, 29 * MINUTE)
    assert moment(third).running_us == NOON + MINUTE


# --- time that tests move ---------------------------------------------------------------------


def test_a_slice_can_advance_a_fixed_time() -> None:
    script = Script([*slices(1), Slice(2, advance_us=MINUTE), Slice(3, advance_us=SECOND)])
    feed = make_feed(script, FixedTime(NOON))
    first = feed.next(START)
    second = feed.next(first)
    third = feed.next(second)
    assert [moment(one).now_us - NOON for one in (first, second, third)] == [
        0,
        MINUTE,
        MINUTE + SECOND,
    ]


def test_the_larger_advance_of_two_sources_counts() -> None:
    one, two = Script(slices(1, advance_us=SECOND)), Script(slices(1, advance_us=MINUTE))
    feed = feed_of({"one": one, "two": two}, FixedTime(NOON))
    assert moment(feed.next(START)).now_us == NOON + MINUTE


def test_a_fixed_time_advances_in_a_later_run_too() -> None:
    """The clock of the second run stands behind where the first run's epochs had got to."""
    feed = make_feed(Script(slices(1, advance_us=MINUTE)), FixedTime(NOON - 5 * MINUTE))
    assert moment(feed.next(at_noon())) == Moment(NOON + MINUTE)


# --- epochs without input ---------------------------------------------------------------------


def after_first_epoch(clock: Clock, **options: Any) -> tuple[Feed, EpochOffset]:
    feed = resting(Script(slices(1), ends=False), clock, **options)
    return feed, feed.next(START)


def test_a_run_starts_with_an_epoch_even_when_there_is_nothing_to_read() -> None:
    feed = resting(clock=Clock(NOON + SECOND))
    assert moment(feed.next(at_noon())).now_us == NOON + SECOND


def test_an_epoch_starts_when_a_step_is_due_and_clears_the_due_time() -> None:
    clock = Clock(NOON)
    feed, first = after_first_epoch(clock)
    feed.clocks.due_us = NOON + SECOND
    assert feed.next(first) is first
    clock.now = NOON + SECOND
    tick = feed.next(first)
    assert (moment(tick).now_us, tick.read, tick.at) == (NOON + SECOND, (), {"in": 1})
    assert feed.next(tick) is tick


def test_an_epoch_starts_after_ten_seconds_without_one() -> None:
    clock = Clock(NOON)
    feed, first = after_first_epoch(clock)
    clock.now += HEARTBEAT_US - 1
    assert feed.next(first) is first
    clock.now += 1
    assert moment(feed.next(first)).now_us == NOON + 10 * SECOND


# --- the end ----------------------------------------------------------------------------------


def test_when_all_sources_have_ended_one_more_epoch_ends_the_input() -> None:
    feed = feed_of({"a": Script(slices(1)), "b": Script()}, Clock(NOON))
    first = feed.next(START)
    assert not ends(first)
    last = feed.next(first)
    assert (ends(last), last.read, last.at) == (True, (), {"a": 1})
    assert not feed.end.done.is_set()
    assert feed.next(last) is last
    assert feed.end.done.is_set()


def test_without_draining_the_run_just_ends() -> None:
    feed = make_feed(Script(slices(1)), drain=False)
    first = feed.next(START)
    assert feed.next(first) is first
    assert feed.end.done.is_set()


def test_a_source_that_waits_for_more_keeps_the_input_open() -> None:
    feed = feed_of({"a": Script(), "b": Script(ends=False)}, Clock(NOON))
    assert not ends(feed.next(START))
    assert not feed.end.done.is_set()


def test_an_ended_input_is_not_ended_again() -> None:
    feed = make_feed(Script(slices(1)))
    drained = at_noon(end=True, after=1)
    assert feed.next(drained) is drained
    assert feed.end.done.is_set()


def test_an_input_resumed_after_its_end_is_ended_again() -> None:
    feed = make_feed(Script(slices(2)))
    more = feed.next(at_noon(end=True, after=1))
    assert not ends(more)
    assert ends(feed.next(more))


def test_a_run_of_available_items_ends_although_the_source_continues() -> None:
    feed = resting(Script([*slices(1), None, *slices(2)], ends=False), only_available=True)
    first = feed.next(START)
    assert first.read == (("in", Split("piece 0")),)
    last = feed.next(first)
    assert (ends(last), last.read) == (True, ())


class Doubting(Script):
    """Does not know whether there is nothing, for as long as the test says."""

    doubts = True

    def in_doubt(self) -> bool:
        return self.doubts


@pytest.mark.parametrize("foreign", [False, True])
def test_a_run_of_available_items_does_not_end_while_a_source_is_in_doubt(foreign: bool) -> None:
    clock, planner = Clock(NOON), Doubting()
    feed = make_feed(planner, clock, only_available=True, foreign=foreign, end_now=True)
    feed.foreign_busy = False
    first = feed.next(START)
    resting = feed.next(first)
    assert (resting is first) is not foreign  # where Spark reads, too, no epoch would end its run
    clock.now += HEARTBEAT_US
    tick = feed.next(resting)
    assert (tick.read, ends(tick), feed.end.done.is_set()) == ((), False, False)
    planner.doubts = False
    assert ends(feed.next(tick))


def test_a_stopping_run_plans_no_epoch() -> None:
    feed = make_feed(Script(slices(2)))
    first = feed.next(START)
    feed.end.stop_asked.set()
    assert feed.next(first) is first
    assert feed.end.done.is_set()


def test_an_aborted_epoch_is_the_last() -> None:
    feed = make_feed(Script(slices(2, abort=True)))
    assert not feed.aborted
    first = feed.next(START)
    assert feed.aborted
    assert feed.next(first) is first


# --- sources that Spark reads -----------------------------------------------------------------


def test_offsets_of_epochs_differ_although_the_clock_stands_still_or_goes_back() -> None:
    clock = Clock(NOON)
    feed = resting(clock=clock, foreign=True)
    offsets = [feed.next(START)]
    for step_us in (0, 0, -SECOND, 0, SECOND, 1, 0):
        clock.now += step_us
        offsets.append(feed.next(EpochOffset.from_json(offsets[-1].to_json())))
    texts = [json.dumps(offset.to_json()) for offset in offsets]
    assert all(one != other for one, other in pairwise(texts))
    found = [offset.control or Control(Moment(0)) for offset in offsets]
    times = [control.moment.now_us - NOON for control in found]
    assert times == [0, 0, 0, 0, 0, 0, 1, 1]
    assert [control.number for control in found][:3] == [0, 1, 2]


def test_a_run_of_available_items_waits_until_sparks_sources_are_empty() -> None:
    feed = make_feed(foreign=True, only_available=True)
    busy = feed.next(START)
    assert not feed.end.done.is_set()
    feed.foreign_busy = False
    answers: list[EpochOffset] = []
    asking = threading.Thread(target=lambda: answers.append(feed.next(busy)), daemon=True)
    asking.start()
    assert feed.end.done.wait(10)
    asking.join(0.2)
    assert answers == []  # any would let Spark begin another epoch
    feed.end.closed.set()
    asking.join(10)
    assert answers == [busy]


@pytest.mark.parametrize("value", [np.int64(7), datetime(2024, 5, 1, tzinfo=UTC), {1, 2}])
@pytest.mark.parametrize("part", ["offset", "split"])
def test_plans_of_a_source_must_be_json(part: str, value: Any) -> None:
    """Here and in a batch, so that a test of the source finds it."""

    split = Split(value if part == "split" else 1)
    planned = Slice(value if part == "offset" else 1, [split])
    message = rf"step 'in': its source's {part} must be JSON, got .*is not JSON serializable"
    with pytest.raises(StepError, match=message):
        make_feed(Script([planned])).next(START)
    with pytest.raises(StepError, match=message):
        plan_everything({"in": Script([planned])})


def test_input_ends_once_sparks_sources_are_drained() -> None:
    feed = make_feed(foreign=True, only_available=True, end_now=True)
    busy = feed.next(START)
    feed.foreign_busy = False
    assert ends(feed.next(busy))


# --- offsets ----------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
SPLITS = st.builds(Split, JSON, st.integers(0, 50), st.integers(0, 1023))
OFFSETS = st.builds(
    EpochOffset,
    st.builds(
        Control,
        st.builds(Moment, st.integers(), st.integers(), stepped_us=st.integers()),
        st.booleans(),
        number=st.integers(0, 9),
    ),
    st.dictionaries(st.text(), JSON),
    st.lists(st.tuples(st.text(), SPLITS)).map(tuple),
)


@sampled(100, by_default=25)
@given(OFFSETS | st.just(START))
def test_an_offset_survives_json(offset: EpochOffset) -> None:
    assert EpochOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_the_format_of_an_offset_is_unchanged() -> None:
    offset = EpochOffset(Control(Moment(5, 1), True), {"in": [1]}, (("in", Split("x", 2, 3)),))
    assert START.to_json() == {"v": 1}
    assert offset.to_json() == {
        "v": 1,
        "now": 5,
        "down": 1,
        "end": 1,
        "at": {"in": [1]},
        "read": [["in", "x", 2, 3]],
    }


# --- a batch ----------------------------------------------------------------------------------


def test_a_batch_reads_all_slices_numbered_by_slice_and_task() -> None:
    two = Slice(1, [Split("x"), Split("y", partition=1)])
    planners = {"a": Script([two, Slice(2, [Split("z")])]), "b": Script(slices(1))}
    plan = compile_flow(a_flow(lambda *inputs: op.merge("merge", *inputs), *planners))
    assert batch_plan(plan, plan_everything(planners), Control(Moment(0))).readings == [
        Reading("a", Split("x"), 0, 0),
        Reading("a", Split("y", 1), 1, 0),
        Reading("a", Split("z"), 2, 1),
        Reading("b", Split("piece 0"), 3, 0),
    ]


def test_in_a_batch_a_source_after_a_history_is_not_behind_before_it_is_reached() -> None:
    source = Then(TestingSource([1, 2, 3], 2), TestingSource([4, 5], 1))
    flow = Dataflow("then")
    op.output("out", op.input("in", flow, source), TestingSink([]))
    slices_of = plan_everything({"in": source.planner(JsonLog(), 1)})
    planned = batch_plan(compile_flow(flow), slices_of, Control(Moment(0)))
    history, live = ("in", 0), ("in", 1)
    assert [set(one.behind) for one in planned.controls] == [{history}, {history}, {live}, set()]


def test_in_a_batch_a_partition_that_no_slice_has_read_yet_is_behind() -> None:
    sources = {
        "left": Script([Slice(1, []), Slice(2, [Split("x")])]),
        "right": Script([Slice(1, [Split("y")]), Slice(2, [Split("z", partition=1)])]),
    }
    compiled = compile_flow(a_flow(partial(op.merge, "both"), *sources))
    planned = batch_plan(compiled, plan_everything(sources), Control(Moment(0)))
    held = [set(one.behind) for one in planned.controls]
    assert held[0] == {("left", 0), ("right", 1)}
    assert held[-1] == set()


def test_a_batch_waits_for_an_idle_source_that_has_not_ended() -> None:
    late = Script([*slices(1), None, *slices(2)[1:]])
    assert [one.splits for one in plan_everything({"in": late})["in"]] == [
        [Split("piece 0")],
        [Split("piece 1")],
    ]


def test_a_planners_error_names_the_step_once() -> None:
    for message in ("the topic is gone", "step 'in': the topic is gone"):
        broken = Mock(Script, next=Mock(side_effect=SourceError(message)))
        with pytest.raises(SourceError) as raised:
            make_feed(broken).next(START)
        assert str(raised.value) == "step 'in': the topic is gone"


def test_planners_are_notified_once_of_a_run_of_available_items() -> None:
    class StopCounter(Script):
        stop_calls = 0

        def stop_at_present(self) -> None:
            self.stop_calls += 1

        def behind(self, start: Any) -> dict[str, int]:
            return {"p/0": 5}

    planner, unasked = StopCounter(slices(1), ends=False), StopCounter()
    feed = make_feed(planner, only_available=True, drain=False)
    offset = feed.next(START)
    assert feed.finish_epoch(Stats()).behind == {"in": {"p/0": 5}}
    feed.next(offset)
    make_feed(unasked).next(START)
    assert (planner.stop_calls, unasked.stop_calls) == (1, 0)


def test_partitions_stay_behind_in_the_epoch_that_restores_the_state_of_another_layout() -> None:
    behind = frozenset({("in", 0), ("in", 2)})
    start = EpochOffset(Control(Moment(NOON), behind=behind), {"in": 1})
    feed = make_feed(Script(slices(3, behind=[0])), origin=Origin(start, None, "seed-1"))
    seed = feed.next(START)
    assert (seed.seed, seed.read) == ("seed-1", ())
    assert seed.control is not None
    assert seed.control.behind == behind
    after = feed.next(seed)
    assert after.control is not None
    assert (after.at, after.control.behind) == ({"in": 2}, {("in", 0)})


def test_an_input_that_an_epoch_does_not_read_keeps_its_progress() -> None:
    """A step that reads results reports a partition only in epochs with results of its items."""
    names = ("fast", "slow")
    feed = feed_of({name: Script(slices(3, behind=[0])) for name in names}, Clock(NOON))
    first = feed.next(START)
    report = feed.finish_epoch(Stats(reached={("fast", 0): 50, ("slow", 0): 10}))
    assert report.progress.reached == {("fast", 0): 50, ("slow", 0): 10}
    feed.last = replace(first, read=tuple(one for one in first.read if one[0] == "slow"))
    report = feed.finish_epoch(Stats(reached={("fast", 0): 90, ("slow", 0): 20}))
    assert report.progress.reached == {("fast", 0): 50, ("slow", 0): 20}
    assert report.progress.gained == {"slow": 10}
