"""The graph of a flow as data, and errors while building it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

import flow.operators as op
from flow import Dataflow, FlowBuildError, FlowError, KeyedStream, Step, Stream, UnusedStepWarning
from flow.dataflow import Operator, StreamId
from flow.engine.plan.compiler import compile_flow
from flow.errors import FlowTypeError
from flow.operators.edges import Input
from flow.operators.stateless import Map, Merge
from flow.testing import TestDriver, TestingSink, TestingSource, run_once


def flow_and_stream() -> tuple[Dataflow, Stream[Any]]:
    flow = Dataflow("departures")
    return flow, op.input("in", flow, TestingSource([]))


def test_steps_come_in_the_order_in_which_they_were_added() -> None:
    flow, s = flow_and_stream()
    doubled = op.map("double", s, abs)
    op.output("out", doubled, TestingSink([]))
    assert [step.step_id for step in flow.steps] == ["in", "double", "out"]


def test_a_step_knows_what_it_reads_and_what_it_makes() -> None:
    flow, s = flow_and_stream()
    op.branch("big", s, bool)
    step = flow.step("big")
    assert step.ups == (StreamId("in", "down"),)
    assert step.downs == (StreamId("big", "trues"), StreamId("big", "falses"))


def test_a_stream_says_where_it_comes_from() -> None:
    _, s = flow_and_stream()
    assert repr(s) == "Stream('in' of Dataflow('departures'))"
    assert (
        repr(op.branch("big", s, bool).falses) == "Stream('big.falses' of Dataflow('departures'))"
    )


@pytest.mark.parametrize("attribute", ["step_id", "operator", "ups"])
def test_a_step_cannot_be_changed(attribute: str) -> None:
    flow, _ = flow_and_stream()
    with pytest.raises(FrozenInstanceError):
        setattr(flow.step("in"), attribute, None)


def test_a_dataflow_cannot_be_renamed() -> None:
    flow, _ = flow_and_stream()
    with pytest.raises(FrozenInstanceError):
        flow.flow_id = "arrivals"  # type: ignore[misc]


def test_a_stream_cannot_be_moved_to_another_step() -> None:
    _, s = flow_and_stream()
    with pytest.raises(FrozenInstanceError):
        s.stream_id = StreamId("other", "down")  # type: ignore[misc]


def test_an_operator_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Map(abs).mapper = len  # type: ignore[misc]


def test_equal_operators_compare_equal() -> None:
    assert Map(abs) == Map(abs)
    assert Map(abs) != Map(abs, on_value=True)


def test_the_tuple_of_steps_is_a_copy_that_later_steps_do_not_change() -> None:
    flow, s = flow_and_stream()
    before = flow.steps
    op.map("later", s, abs)
    assert [step.step_id for step in before] == ["in"]


def test_putting_another_operator_into_a_step_leaves_the_flow_as_it_was() -> None:
    flow, s = flow_and_stream()
    op.output("out", op.map("change", s, abs), TestingSink([]))
    changed = flow.with_operator("change", Map(str))
    assert flow.step("change").operator == Map(abs)
    assert changed.step("change") == Step("change", Map(str), (StreamId("in", "down"),))
    assert [step.step_id for step in changed.steps] == ["in", "change", "out"]


# --- names ------------------------------------------------------------------------------------


def test_a_dataflow_needs_a_name() -> None:
    with pytest.raises(FlowBuildError, match="a Dataflow needs a name, got an empty one"):
        Dataflow("  ")


def test_a_dataflow_s_name_must_be_text() -> None:
    with pytest.raises(FlowTypeError, match="a Dataflow's name must be text, got 7"):
        Dataflow(7)  # type: ignore[arg-type]


def test_a_step_id_can_be_used_once() -> None:
    flow, s = flow_and_stream()
    op.map("double", s, abs)
    with pytest.raises(
        FlowBuildError, match=r"Dataflow\('departures'\) already has a step 'double'"
    ):
        op.filter("double", s, bool)
    assert [step.step_id for step in flow.steps] == ["in", "double"]


@pytest.mark.parametrize("step_id", ["", " \t"])
def test_a_step_id_must_not_be_empty(step_id: str) -> None:
    _, s = flow_and_stream()
    with pytest.raises(FlowBuildError, match="a step id must not be empty"):
        op.map(step_id, s, abs)


def test_a_step_id_must_be_text() -> None:
    _, s = flow_and_stream()
    with pytest.raises(
        FlowTypeError,
        match="a step id must be text, got int 3: the first argument of every operator",
    ):
        op.map(3, s, abs)  # type: ignore[arg-type]


def test_a_stream_given_as_the_step_id_is_shown() -> None:
    _, s = flow_and_stream()
    with pytest.raises(FlowTypeError, match=r"a step id must be text, got Stream Stream\('in'"):
        op.merge(s, s)  # type: ignore[arg-type]


def test_looking_up_an_unknown_step_lists_the_known_steps() -> None:
    flow, s = flow_and_stream()
    op.map("double", s, abs)
    with pytest.raises(
        FlowBuildError,
        match=r"Dataflow\('departures'\) has no step 'treble'; its steps are: 'in', 'double'",
    ):
        flow.step("treble")


def test_looking_up_a_step_of_an_empty_flow_says_that_there_are_none() -> None:
    with pytest.raises(FlowBuildError, match="its steps are: none"):
        Dataflow("empty").step("any")


# --- what a step reads ------------------------------------------------------------------------


def test_a_step_cannot_read_a_stream_of_another_flow() -> None:
    _, s = flow_and_stream()
    other = Dataflow("arrivals")
    foreign = op.input("other_in", other, TestingSource([]))
    with pytest.raises(
        FlowBuildError,
        match=r"step 'both' reads stream 'other_in' of Dataflow\('arrivals'\), "
        r"but belongs to Dataflow\('departures'\)",
    ):
        op.merge("both", s, foreign)


def test_a_step_cannot_read_a_branch_without_naming_one_of_its_streams() -> None:
    _, s = flow_and_stream()
    both = op.branch("big", s, bool)
    with pytest.raises(
        FlowTypeError,
        match=r"step 'next' must read a Stream, got BranchOut .*it holds several streams, "
        r"name the one you mean",
    ):
        op.map("next", both, abs)  # type: ignore[arg-type]


def test_a_step_cannot_read_a_plain_tuple_of_streams() -> None:
    _, s = flow_and_stream()
    with pytest.raises(FlowTypeError, match=r"got tuple .*it holds several streams"):
        op.merge("next", (s, s))  # type: ignore[arg-type]


def test_a_step_cannot_read_a_dataflow() -> None:
    flow, _ = flow_and_stream()
    with pytest.raises(
        FlowTypeError, match=r"got Dataflow .*: make a stream of it first, with op.input"
    ):
        op.map("next", flow, abs)  # type: ignore[arg-type]


def test_a_step_cannot_read_a_list() -> None:
    with pytest.raises(FlowTypeError, match=r"step 'next' must read a Stream, got list \[1, 2\]"):
        op.map("next", [1, 2], abs)  # type: ignore[arg-type]


def test_adding_a_user_written_operator_checks_its_streams() -> None:
    flow, _ = flow_and_stream()
    with pytest.raises(FlowTypeError, match="step 'own' must read a Stream, got str 'in'"):
        flow.add("own", Merge(), "in")  # type: ignore[arg-type]


def test_a_merge_needs_a_stream() -> None:
    with pytest.raises(FlowBuildError, match="step 'all' needs at least one stream to read"):
        op.merge("all")


def test_a_join_needs_two_streams() -> None:
    _, s = flow_and_stream()
    with pytest.raises(
        FlowBuildError, match="step 'pairs': a join needs two or more streams, got 1"
    ):
        op.join("pairs", s)


def test_iterating_over_a_stream_is_refused_with_advice() -> None:
    _, s = flow_and_stream()
    with pytest.raises(
        FlowTypeError, match=r"cannot be looped over .*use an operator such as op.map"
    ):
        for _ in s:
            pass


# --- the ends ---------------------------------------------------------------------------------


def test_an_input_is_added_to_a_dataflow() -> None:
    _, s = flow_and_stream()
    with pytest.raises(
        FlowTypeError, match="step 'in2': an input is added to a Dataflow, got Stream"
    ):
        op.input("in2", s, TestingSource([]))  # type: ignore[arg-type]


def test_an_input_needs_a_source() -> None:
    flow = Dataflow("departures")
    with pytest.raises(FlowTypeError, match=r"step 'in': source must be a Source, got int 1"):
        op.input("in", flow, 1)  # type: ignore[arg-type]


def test_an_output_needs_a_sink() -> None:
    _, s = flow_and_stream()
    with pytest.raises(FlowTypeError, match=r"step 'out': sink must be a Sink, got list \[\]"):
        op.output("out", s, [])  # type: ignore[arg-type]


def test_try_input_needs_a_source_that_reports_errors() -> None:
    flow = Dataflow("departures")
    with pytest.raises(
        FlowBuildError, match=r"step 'in': op\.try_input needs a source with on_invalid"
    ):
        op.try_input("in", flow, TestingSource([]))


def test_a_source_that_reports_errors_is_read_with_try_input() -> None:
    class Telling(TestingSource[Any]):
        on_invalid = "errors"

    flow = Dataflow("departures")
    with pytest.raises(FlowBuildError, match=r"step 'in': .*read it with op\.try_input"):
        op.input("in", flow, Telling([]))
    assert op.try_input("in", flow, Telling([])).errors.stream_id == StreamId("in", "errors")


def test_a_flow_without_an_input_cannot_run() -> None:
    with pytest.raises(FlowBuildError, match="flow 'empty' has no input: start with"):
        compile_flow(Dataflow("empty"))


def test_a_flow_without_an_output_cannot_run() -> None:
    flow, _ = flow_and_stream()
    with pytest.raises(FlowBuildError, match="flow 'departures' has no output: end with"):
        TestDriver(flow)


def test_a_stream_that_is_watched_by_raises_counts_as_an_end() -> None:
    flow, s = flow_and_stream()
    op.raises("never", s)
    assert compile_flow(flow).inputs == ("in",)


def test_a_stream_that_is_inspected_counts_as_an_end() -> None:
    flow, s = flow_and_stream()
    op.inspect("see", op.map("same", s, str))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_flow(flow).inputs == ("in",)


def test_a_flow_that_ends_with_inspect_runs(capsys: pytest.CaptureFixture[str]) -> None:
    flow = Dataflow("seen")
    keyed = op.input("in", flow, TestingSource([]))
    op.inspect("see", op.reduce_final("total", keyed, lambda left, right: left + right))
    with TestDriver(flow) as t:
        t.send("in", [("a", 1), ("a", 2)])
        t.end()
        assert t.stats.counts["see", "in"] == 1
    assert capsys.readouterr().out == "see: ('a', 3)\n"


def test_a_step_without_an_output_after_an_inspected_stream_is_warned_of() -> None:
    flow, s = flow_and_stream()
    op.map("end", op.inspect("see", s), abs)
    with pytest.warns(UnusedStepWarning) as caught:
        compile_flow(flow)
    assert [str(one.message).split("'")[1] for one in caught] == ["end"]


def test_a_step_that_leads_to_no_output_is_warned_of_by_name() -> None:
    flow, s = flow_and_stream()
    op.output("out", s, TestingSink([]))
    op.map("end", op.map("dead", s, abs), abs)
    with pytest.warns(UnusedStepWarning) as caught:
        compile_flow(flow)
    assert [str(one.message) for one in caught] == [
        f"step {name!r} of flow 'departures' is never used by an output: its items go nowhere"
        for name in ("dead", "end")
    ]


def test_a_step_of_which_one_stream_is_used_is_not_warned_of() -> None:
    flow, s = flow_and_stream()
    op.output("out", op.branch("big", s, bool).trues, TestingSink([]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile_flow(flow)


# --- functions --------------------------------------------------------------------------------

Build = Callable[[Stream[Any]], object]

NOT_CALLABLE: list[tuple[str, Build]] = [
    ("mapper", lambda s: op.map("step", s, 7)),
    ("mapper", lambda s: op.map_value("step", s, 7)),
    ("mapper", lambda s: op.flat_map("step", s, 7)),
    ("mapper", lambda s: op.flat_map_value("step", s, 7)),
    ("mapper", lambda s: op.map_window("step", s, 7)),
    ("predicate", lambda s: op.filter("step", s, 7)),
    ("predicate", lambda s: op.filter_value("step", s, 7)),
    ("mapper", lambda s: op.filter_map("step", s, 7)),
    ("mapper", lambda s: op.filter_map_value("step", s, 7)),
    ("key", lambda s: op.key_on("step", s, 7)),
    ("predicate", lambda s: op.branch("step", s, 7)),
    ("inspector", lambda s: op.inspect("step", s, 7)),
    ("mapper", lambda s: op.try_map("step", s, 7)),
    ("getter", lambda s: op.enrich_cached("step", s, 7, abs)),
    ("mapper", lambda s: op.enrich_cached("step", s, abs, 7)),
    ("builder", lambda s: op.stateful("step", s, 7)),
    ("builder", lambda s: op.stateful_batch("step", s, 7)),
    ("mapper", lambda s: op.stateful_map("step", s, 7)),
    ("mapper", lambda s: op.stateful_flat_map("step", s, 7)),
    ("builder", lambda s: op.fold_final("step", s, 7, abs)),
    ("folder", lambda s: op.fold_final("step", s, list, 7)),
    ("reducer", lambda s: op.reduce_final("step", s, 7)),
    ("key", lambda s: op.count_final("step", s, 7)),
    ("by", lambda s: op.max_final("step", s, 7)),
    ("by", lambda s: op.min_final("step", s, 7)),
]


@pytest.mark.parametrize(("parameter", "build"), NOT_CALLABLE)
def test_a_function_that_cannot_be_called_is_refused(parameter: str, build: Build) -> None:
    flow, s = flow_and_stream()
    other = " or (a field's path|an expression over columns).*"
    problem = f"step 'step': {parameter} must be a function({other})?, got int 7"
    with pytest.raises(FlowTypeError, match=problem):
        build(s)
    assert [step.step_id for step in flow.steps] == ["in"]


BAD_OPTIONS: list[tuple[str, Build]] = [
    ("timeout must not be negative, got '-1s'", lambda s: op.collect("step", s, "-1s", 2)),
    ("timeout 'soon' is not a duration", lambda s: op.collect("step", s, "soon", 2)),
    (
        "max_size must be a whole number of at least 1, got 0",
        lambda s: op.collect("step", s, "1s", 0),
    ),
    (
        "max_size must be a whole number of at least 1, got True",
        lambda s: op.collect("step", s, "1s", True),
    ),
    (
        "max_size must be a whole number of at least 1, got 1.5",
        lambda s: op.collect("step", s, "1s", 1.5),  # type: ignore[arg-type]
    ),
    (
        "insert_mode must be 'first', 'last' or 'product', got 'any'",
        lambda s: op.join("step", s, s, insert_mode="any"),  # type: ignore[arg-type]
    ),
    (
        "emit_mode must be 'complete', 'final' or 'running', got 'never'",
        lambda s: op.join("step", s, s, emit_mode="never"),  # type: ignore[arg-type]
    ),
    (
        "ttl must not be negative, got '-1s'",
        lambda s: op.enrich_cached("step", s, abs, abs, ttl="-1s"),
    ),
    ("key must be a field's path such as 'user.id', got ''", lambda s: op.key_on("step", s, "")),
    (
        "key must be a field's path such as 'user.id', got 'a..b'",
        lambda s: op.key_on("step", s, "a..b"),
    ),
]


@pytest.mark.parametrize(("problem", "build"), BAD_OPTIONS)
def test_an_invalid_option_is_refused(problem: str, build: Build) -> None:
    flow, s = flow_and_stream()
    with pytest.raises(FlowBuildError, match=re.escape(f"step 'step': {problem}")):
        build(s)
    assert [step.step_id for step in flow.steps] == ["in"]


# --- composition ------------------------------------------------------------------------------


def totals(prefix: str, up: KeyedStream[int]) -> KeyedStream[int]:
    """A sub-flow: a plain function that adds several steps under a prefix."""
    positive = op.filter_value(f"{prefix}.positive", up, lambda n: n > 0)
    return op.reduce_final(f"{prefix}.sum", positive, lambda a, b: a + b)


def test_a_sub_flow_is_a_plain_function() -> None:
    assert run_once([("a", 1), ("a", -5), ("a", 2)], lambda s: totals("good", s)) == [("a", 3)]


def test_a_sub_flow_can_be_used_twice_under_two_prefixes() -> None:
    flow, s = flow_and_stream()
    op.output("both", op.merge("merged", totals("one", s), totals("two", s)), TestingSink([]))
    with TestDriver(flow) as driver:
        driver.send("in", [("a", 1), ("a", 2)])
        driver.end()
        assert driver.received("both") == [("a", 3), ("a", 3)]


def test_a_user_written_operator_has_one_port_by_default() -> None:
    flow, _ = flow_and_stream()
    step = flow.add("own", Operator())
    assert step.downs == (StreamId("own", "down"),)


def test_every_build_error_is_a_value_error_and_a_flow_error() -> None:
    assert issubclass(FlowBuildError, ValueError)
    assert issubclass(FlowBuildError, FlowError)
    assert issubclass(FlowTypeError, TypeError)


def test_an_input_s_operator_holds_its_source() -> None:
    flow = Dataflow("departures")
    source = TestingSource([1])
    op.input("in", flow, source)
    assert flow.step("in").operator == Input(source)
