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


@pytest.mark.parametrize(
    ("part", "attribute"),
    [
        (lambda flow, s: flow.step("in"), "step_id"),
        (lambda flow, s: flow.step("in"), "operator"),
        (lambda flow, s: flow.step("in"), "ups"),
        (lambda flow, s: flow, "flow_id"),
        (lambda flow, s: s, "stream_id"),
        (lambda flow, s: Map(abs), "mapper"),
    ],
)
def test_a_part_of_a_flow_cannot_be_changed(part: Any, attribute: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(part(*flow_and_stream()), attribute, None)


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


def test_a_step_id_can_be_used_once() -> None:
    flow, s = flow_and_stream()
    problem = r"Dataflow\('departures'\) already has a step 'in'"
    with pytest.raises(FlowBuildError, match=problem):
        op.filter("in", s, bool)
    assert [step.step_id for step in flow.steps] == ["in"]


class Telling(TestingSource[Any]):
    on_invalid = "errors"


Refused = list[tuple[Callable[[Dataflow, Any], Any], str]]

REFUSED: Refused = [
    (lambda flow, s: Dataflow("  "), "a Dataflow needs a name, got an empty one"),
    (lambda flow, s: op.map("", s, abs), "a step id must not be empty"),
    (lambda flow, s: op.map(" \t", s, abs), "a step id must not be empty"),
    (
        lambda flow, s: flow.step("treble"),
        "Dataflow('departures') has no step 'treble'; its steps are: 'in'",
    ),
    (lambda flow, s: Dataflow("empty").step("any"), "its steps are: none"),
    (
        lambda flow, s: op.merge("both", s, op.input("other", Dataflow("arrivals"), [])),
        "step 'both' reads stream 'other' of Dataflow('arrivals'), but belongs to "
        "Dataflow('departures')",
    ),
    (lambda flow, s: op.merge("all"), "step 'all' needs at least one stream to read"),
    (lambda flow, s: op.join("two", s), "step 'two': a join needs two or more streams, got 1"),
    (
        lambda flow, s: op.try_input("in2", flow, TestingSource([])),
        "step 'in2': op.try_input needs a source with on_invalid",
    ),
    (lambda flow, s: op.input("in2", flow, Telling([])), "read it with op.try_input"),
    (lambda flow, s: compile_flow(Dataflow("empty")), "flow 'empty' has no input: start with"),
    (lambda flow, s: TestDriver(flow), "flow 'departures' has no output: end with"),
]
REFUSED_TYPES: Refused = [
    (lambda flow, s: Dataflow(7), "a Dataflow's name must be text, got 7"),  # type: ignore[arg-type]
    (
        lambda flow, s: op.map(3, s, abs),  # type: ignore[arg-type]
        "a step id must be text, got int 3: the first argument of every operator",
    ),
    (lambda flow, s: op.merge(s, s), "a step id must be text, got Stream Stream('in'"),
    (
        lambda flow, s: op.map("next", op.branch("big", s, bool), abs),  # type: ignore[arg-type]
        "step 'next' must read a Stream, got BranchOut ",
    ),
    (
        lambda flow, s: op.merge("next", op.branch("big", s, bool)),  # type: ignore[arg-type]
        "it holds several streams, name the one you mean",
    ),
    (lambda flow, s: op.merge("next", (s, s)), "it holds several streams"),  # type: ignore[arg-type]
    (lambda flow, s: op.map("next", flow, abs), ": make a stream of it first, with op.input"),  # type: ignore[arg-type]
    (lambda flow, s: op.map("n", [1, 2], abs), "step 'n' must read a Stream, got list [1, 2]"),  # type: ignore[arg-type]
    (lambda flow, s: flow.add("o", Merge(), "in"), "step 'o' must read a Stream, got str 'in'"),  # type: ignore[arg-type]
    (lambda flow, s: list(s), "use an operator such as op.map"),
    (
        lambda flow, s: op.input("in2", s, TestingSource([])),
        "step 'in2': an input is added to a Dataflow, got Stream",
    ),
    (lambda flow, s: op.input("in2", flow, 1), "step 'in2': source must be a Source, got int 1"),  # type: ignore[arg-type]
    (lambda flow, s: op.output("out", s, []), "step 'out': sink must be a Sink, got list []"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("build", "problem"), REFUSED + REFUSED_TYPES)
def test_what_is_no_flow_is_refused_with_advice(
    build: Callable[[Dataflow, Any], Any], problem: str
) -> None:
    error = FlowBuildError if (build, problem) in REFUSED else FlowTypeError
    with pytest.raises(error, match=re.escape(problem)):
        build(*flow_and_stream())


def test_a_source_that_reports_errors_has_a_stream_of_them() -> None:
    out = op.try_input("in", Dataflow("departures"), Telling([]))
    assert out.errors.stream_id == StreamId("in", "errors")


@pytest.mark.parametrize(
    "build",
    [
        lambda s: op.raises("never", op.map("same", s, str)),
        lambda s: op.inspect("see", op.map("same", s, str)),
        lambda s: op.output("out", op.branch("big", s, bool).trues, TestingSink([])),
    ],
    ids=["raises", "inspect", "one stream of a branch"],
)
def test_a_step_that_leads_to_an_end_is_not_warned_of(build: Callable[[Any], object]) -> None:
    flow, s = flow_and_stream()
    build(s)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_flow(flow).inputs == ("in",)


def test_a_step_that_leads_to_no_output_is_warned_of_by_name() -> None:
    flow, s = flow_and_stream()
    seen = op.inspect("see", s)
    op.map("end", op.reduce_final("dead", seen, max), abs)
    op.input("forgotten", flow, TestingSource([]))
    with pytest.warns(UnusedStepWarning) as caught:
        compile_flow(flow)
    assert [str(one.message) for one in caught] == [
        f"step {name!r} of flow 'departures' is never used by an output: its items go nowhere"
        for name in ("dead", "end", "forgotten")
    ]


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


def test_a_sub_flow_is_a_plain_function_and_can_be_used_twice_under_two_prefixes() -> None:
    items = [("a", 1), ("a", -5), ("a", 2)]
    both = run_once(items, lambda s: op.merge("merged", totals("one", s), totals("two", s)))
    assert both == [("a", 3), ("a", 3)]


def test_a_user_written_operator_has_one_port_by_default() -> None:
    flow, _ = flow_and_stream()
    step = flow.add("own", Operator())
    assert step.downs == (StreamId("own", "down"),)


def test_every_build_error_is_a_value_error_and_a_flow_error() -> None:
    assert issubclass(FlowBuildError, ValueError)
    assert issubclass(FlowBuildError, FlowError)
    assert issubclass(FlowTypeError, TypeError)
