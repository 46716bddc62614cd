"""The slices of inputs, without clocks and without the life of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.connectors.source import Slice, Split
from flow.engine.epoch.context import Control, Front, ReadUpTo
from flow.engine.feed.input_progress import InputProgress
from flow.engine.feed.offsets import EpochOffset
from flow.engine.feed.slices import InputSlices
from flow.engine.plan.compiler import compile_flow
from flow.instants import Moment
from flow.testing import TestingSink, TestingSource
from tests.engine.feed.test_feed import NOON, SECOND, Script, slices
from tests.support.one_stream import a_flow

NOW = Moment(NOON)


def inputs_of(**planners: Script) -> InputSlices:
    plan = compile_flow(a_flow(partial(op.merge, "merge"), *planners))
    return InputSlices(plan, planners)


def test_inputs_without_new_data_have_no_slice() -> None:
    inputs = inputs_of(a=Script(slices(2)), b=Script(ends=False))
    assert inputs.next(EpochOffset(at={"a": 1}), NOW) == {"a": slices(2)[1]}


def test_the_inputs_are_finished_once_each_of_them_is() -> None:
    inputs = inputs_of(a=Script(slices(1)), b=Script(slices(2)))
    assert not inputs.are_finished(EpochOffset(at={"a": 1, "b": 1}))
    assert inputs.are_finished(EpochOffset(at={"a": 1, "b": 2}))


def test_a_postponed_input_stays_behind() -> None:
    inputs, before = inputs_of(a=Script(), b=Script()), Control(NOW, behind=frozenset({("b", 3)}))
    planned = {"a": Slice(1, [Split("x")], behind=[2])}
    assert inputs.behind(before, planned, frames_read=False) == {("a", 2)}
    inputs.postpone_all()
    assert inputs.behind(before, planned, frames_read=False) == {("a", 2), ("b", 3)}


#  epoch before    read up to 12:00:00       now 12:00:02
def test_an_input_that_is_read_to_its_end_has_the_time_of_the_reading() -> None:
    inputs, later = inputs_of(a=Script(), b=Script()), Moment(NOON + 2 * SECOND)
    clocks = inputs.clocks(Control(NOW), {"a": slices(1)[0]}, later, frames_read=False)
    assert clocks == {"a": ReadUpTo(NOON, NOON + 2 * SECOND), "b": ReadUpTo(NOON, NOON)}


def test_inputs_that_an_epoch_does_not_read_keep_their_offsets() -> None:
    inputs = inputs_of(a=Script(), b=Script())
    assert inputs.ends(EpochOffset(at={"a": 1, "b": 4}), {"b": Slice(5)}) == {"a": 1, "b": 5}


def test_a_planner_receives_the_progress_by_the_former_name_too() -> None:
    heard: list[Mapping[int, int]] = []

    class Listener(Script):
        def hear(self, reached_us: Mapping[int, int]) -> None:
            heard.append(reached_us)

    inputs = inputs_of(a=Listener(), b=Script())
    inputs.progress = InputProgress({("a", 1): 7})
    inputs.next(EpochOffset(), NOW)
    assert heard == [{1: 7}]


def test_a_plan_read_from_a_log_is_logged_as_it_was() -> None:
    read = (("in", Split("x")), ("in", Split("y", 1)))
    made = EpochOffset(Control(NOW, sources=(("in", 0), ("in", 1))), {"in": 2}, read)
    logged = json.loads(json.dumps(made.to_json()))
    assert EpochOffset.from_json(logged).to_json() == logged


def test_an_epoch_that_another_flow_has_planned_is_fitted_to_the_flow() -> None:
    flow = Dataflow("f")
    ab = [op.input(name, flow, TestingSource([])) for name in "ab"]
    clock, windower = win.EventClock("at", "1s"), win.TumblingWindower("10s")
    windows = win.collect_window("w", op.merge("m", *ab), clock, windower)
    op.output("out", windows.down, TestingSink([]))
    fitted = InputSlices(compile_flow(flow), {}).fitted
    fronts = {"w": Front("a", "at", 9, 50)}
    planned = EpochOffset(Control(NOW, fronts=fronts), {}, (("b", Split("x")),))
    control = Control(NOW, sources=(("b", 0),))
    assert fitted(planned) == replace(planned, control=control)
    assert fitted(start := EpochOffset()) is start
