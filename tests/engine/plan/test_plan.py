"""The compiler's passes, one by one, over small graphs; no engine is started."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, FlowBuildError, Step, Stream, UnusedStepWarning
from flow.dataflow import StreamId
from flow.engine.plan.compiler import (
    PASSES,
    assign_levels,
    check_ends,
    compile_flow,
    draw_edges,
    leave_out_unused,
    route_streams,
)
from flow.engine.plan.plan import Edge, EdgeKind, Plan
from flow.operators.building import add_step
from flow.operators.combining import Rekey
from flow.operators.stateless import Map
from flow.testing import TestingSink, TestingSource
from flow_windowing import Collect, Count, EventClock, Sum, SystemClock, TumblingWindower


def source(flow: Dataflow, name: str = "in") -> Stream[Any]:
    return op.input(name, flow, TestingSource([]))


def sink(name: str, up: Stream[Any]) -> None:
    op.output(name, up, TestingSink([]))


def total(name: str, up: Stream[Any]) -> Stream[Any]:
    return op.reduce_final(name, up, max)


def before(flow: Dataflow, last: Any) -> Plan:
    """A plan that all passes before `last` have been over."""
    plan = Plan(flow.flow_id, "", {step.step_id: step for step in flow.steps})
    for step_pass in PASSES[: PASSES.index(last)]:
        plan = step_pass(plan)
    return plan


def stream(name: str, port: str = "down") -> StreamId:
    return StreamId(name, port)


def test_the_passes_run_in_this_order() -> None:
    names = [step_pass.__name__ for step_pass in PASSES]
    assert names == [
        "check_ends",
        "leave_out_unused",
        "find_tables",
        "assign_levels",
        "lower_steps",
        "draw_edges",
        "route_streams",
        "find_fields_read",
        "find_feeds",
    ]


# --- check_ends -------------------------------------------------------------------------------


def test_check_ends_lists_the_inputs_in_order_of_declaration() -> None:
    flow = Dataflow("ends")
    s, second = source(flow, "b"), source(flow, "a")
    sink("out", op.merge("all", s, second))
    assert check_ends(before(flow, check_ends)).inputs == ("b", "a")


def test_check_ends_refuses_a_flow_without_an_input() -> None:
    with pytest.raises(FlowBuildError, match="flow 'empty' has no input"):
        check_ends(Plan("empty", "", {}))


def test_check_ends_refuses_a_flow_without_an_output() -> None:
    flow = Dataflow("endless")
    op.map("end", source(flow), abs)
    with pytest.raises(FlowBuildError, match="flow 'endless' has no output"):
        check_ends(before(flow, check_ends))


# --- leave_out_unused ---------------------------------------------------------------------------


def test_leave_out_unused_leaves_the_plan_as_it_was() -> None:
    flow = Dataflow("used")
    sink("out", source(flow))
    plan = before(flow, leave_out_unused)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert leave_out_unused(plan) == plan


def test_leave_out_unused_names_every_step_without_an_output() -> None:
    flow = Dataflow("unused")
    s = source(flow)
    sink("out", s)
    op.map("end", total("middle", s), abs)
    source(flow, "forgotten")
    plan = before(flow, leave_out_unused)
    with pytest.warns(UnusedStepWarning) as caught:
        assert leave_out_unused(plan) == plan
    assert [str(one.message).split("'")[1] for one in caught] == ["middle", "end", "forgotten"]


def test_leave_out_unused_leaves_out_an_optional_step_in_silence() -> None:
    flow = Dataflow("optional")
    s = source(flow)
    sink("out", s)
    (rekeyed,) = add_step("rekey", Rekey("all"), s)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(leave_out_unused(before(flow, leave_out_unused)).steps) == ["in", "out"]
        sink("late", rekeyed)
        assert "rekey" in leave_out_unused(before(flow, leave_out_unused)).steps


# --- assign_levels ----------------------------------------------------------------------------


def test_a_flow_without_keyed_steps_has_no_levels() -> None:
    flow = Dataflow("flat")
    sink("out", op.map("double", source(flow), abs))
    assert assign_levels(before(flow, assign_levels)).levels == ()


def test_independent_keyed_steps_share_a_level() -> None:
    flow = Dataflow("side_by_side")
    s = source(flow)
    sink("out", op.merge("all", total("first", s), total("second", s)))
    assert assign_levels(before(flow, assign_levels)).levels == (("first", "second"),)


def test_a_keyed_step_lies_one_level_after_the_highest_that_it_reads() -> None:
    #  in ─┬─ low ──┬─ high (join of low and in)
    #      └────────┘
    flow = Dataflow("two_levels")
    s = source(flow)
    low = op.map_value("same", total("low", s), abs)
    sink("out", op.join("high", s, low))
    assert assign_levels(before(flow, assign_levels)).levels == (("low",), ("high",))


def test_redistribute_takes_a_level_too() -> None:
    flow = Dataflow("spread")
    sink("out", total("sum", op.redistribute("spread", source(flow))))
    assert assign_levels(before(flow, assign_levels)).levels == (("spread",), ("sum",))


# --- draw_edges -------------------------------------------------------------------------------


def test_edges_lead_to_keyed_steps_and_outputs_and_know_their_side_and_level() -> None:
    #  in ─ key ─┬─ low ─┬─ pairs ─ out
    #            ├───────┘
    #            └─ spread ─ log
    flow = Dataflow("edges")
    keyed = op.key_on("key", source(flow), str)
    low = total("low", keyed)
    spread = op.redistribute("spread", keyed)
    sink("out", op.join("pairs", low, keyed))
    sink("log", spread)
    plan = draw_edges(before(flow, draw_edges))
    low_in = Edge(0, stream("key"), "low", 0, 1, EdgeKind.KEYED)
    spread_in = Edge(1, stream("key"), "spread", 0, 1, EdgeKind.SPREAD)
    left = Edge(2, stream("low"), "pairs", 0, 2, EdgeKind.KEYED)
    right = Edge(3, stream("key"), "pairs", 1, 2, EdgeKind.KEYED)
    out = Edge(4, stream("pairs"), "out", 0, 3, EdgeKind.OUTPUT)
    log = Edge(5, stream("spread"), "log", 0, 3, EdgeKind.OUTPUT)
    assert plan.edges == (low_in, spread_in, left, right, out, log)
    assert plan.outputs == (out, log)
    assert plan.edges_into("pairs") == (left, right)
    assert plan.edges_into("key") == ()


def test_the_number_of_an_edge_is_its_index_in_the_plan() -> None:
    flow = Dataflow("numbers")
    s = source(flow)
    sink("a", s)
    sink("b", total("sum", s))
    assert [edge.dest for edge in compile_flow(flow).edges] == [0, 1, 2]


# --- route_streams ----------------------------------------------------------------------------


def test_a_stream_reaches_its_readers_in_order_of_declaration() -> None:
    #  in ─ split ─┬ trues ─┬─ double ─┬─ sum ─ out
    #              │        └──────────┘(side by side)
    #              └ falses ─ log
    flow = Dataflow("routes")
    split = op.branch("split", source(flow), bool)
    doubled = op.map("double", split.trues, abs)
    sink("log", split.falses)
    sink("out", op.join("sum", doubled, split.trues))
    plan = route_streams(before(flow, route_streams))
    log, left, right, out = plan.edges
    assert plan.hops == {
        stream("in"): (plan.steps["split"],),
        stream("split", "trues"): (plan.steps["double"], right),
        stream("split", "falses"): (log,),
        stream("double"): (left,),
        stream("sum"): (out,),
    }


def test_a_stream_that_a_step_reads_twice_reaches_it_twice() -> None:
    flow = Dataflow("twice")
    s = source(flow)
    sink("out", op.merge("all", s, s))
    plan = compile_flow(flow)
    assert plan.hops_of(stream("in")) == (plan.steps["all"], plan.steps["all"])


def test_an_unread_stream_has_no_route() -> None:
    flow = Dataflow("nowhere")
    sink("out", op.branch("split", source(flow), bool).trues)
    assert compile_flow(flow).hops_of(stream("split", "falses")) == ()


# --- the whole --------------------------------------------------------------------------------


def test_the_same_flow_compiles_to_equal_plans_but_for_their_ids() -> None:
    flow = Dataflow("same")
    sink("out", total("sum", source(flow)))
    one, two = compile_flow(flow), compile_flow(flow)
    assert one.plan_id != two.plan_id
    assert (one.steps, one.inputs, one.edges, one.hops, one.levels) == (
        two.steps,
        two.inputs,
        two.edges,
        two.hops,
        two.levels,
    )


def test_equal_flows_compile_to_equal_graphs() -> None:
    def build() -> Plan:
        flow = Dataflow("same")
        op.raises("never", op.map("double", source(flow), abs))
        return compile_flow(flow)

    assert (build().edges, build().levels) == ((), ())
    assert build().steps["double"] == Step("double", Map(abs), (stream("in"),))
    assert build().steps["double"] == build().steps["double"]


def test_steps_can_be_exchanged_without_changing_the_routes() -> None:
    flow = Dataflow("exchange")
    sink("out", op.map("change", source(flow), abs))
    plan = compile_flow(flow)
    changed = Step("change", Map(str), (stream("in"),))
    other = plan.with_steps({**plan.steps, "change": changed})
    assert other.hops_of(stream("in")) == (changed,)
    assert other.hops_of(stream("change")) == plan.hops_of(stream("change"))
    assert plan.hops_of(stream("in")) == (Step("change", Map(abs), (stream("in"),)),)


# --- which fields of an input's records anybody reads ---------------------------------------------


def hourly(flow: Dataflow, name: str, **figures: Any) -> Any:
    keyed = op.key_on(f"{name}_key", source(flow, f"{name}_in"), "user.id")
    clock: EventClock[Any] = EventClock("at", "0s")
    return win.aggregate_window(name, keyed, clock, TumblingWindower("1h"), **figures)


def test_only_columns_that_windows_need_are_read_from_an_input() -> None:
    flow = Dataflow("f")
    made = hourly(flow, "w", total=Sum("price.net"), n=Count())
    sink("out", made.down)
    plan = compile_flow(flow)
    read = frozenset({"at", "price.net", "price"})
    assert plan.edges_into("w")[0].fields == read
    assert plan.fields_read == {"w_in": read | {"user.id", "user"}}


@pytest.mark.parametrize(
    "figure",
    [Collect(), Sum(lambda value: value["price"]), Sum()],
    ids=["the value itself", "a function of it", "the value itself, added up"],
)
def test_a_step_that_may_read_any_field_gets_all_fields(figure: Any) -> None:
    flow = Dataflow("f")
    sink("out", hourly(flow, "w", figure=figure).down)
    assert compile_flow(flow).fields_read == {}


def test_windows_over_all_keys_read_the_fields_of_their_aggregates() -> None:
    flow = Dataflow("f")
    users = op.key_on("user", source(flow), "user")
    clock, windower = EventClock("at", "0s"), TumblingWindower("1h")
    totals = win.aggregate_window_all("w", users, clock, windower, total=Sum("price"))
    sink("out", totals.down)
    assert compile_flow(flow).fields_read == {"in": {"user", "at", "price"}}


def test_late_values_have_all_fields() -> None:
    flow = Dataflow("f")
    made = hourly(flow, "w", n=Count())
    sink("out", made.down)
    sink("late", made.late)
    plan = compile_flow(flow)
    assert (plan.edges_into("w")[0].fields, plan.fields_read) == (None, {})


def test_an_input_that_another_step_reads_has_all_fields() -> None:
    flow = Dataflow("f")
    events = source(flow)
    made = win.count_window("n", events, SystemClock(), TumblingWindower("1h"), "user")
    sink("out", made.down)
    assert compile_flow(flow).fields_read == {"in": {"user"}}
    sink("all", op.key_on("key", events, "user"))
    assert compile_flow(flow).fields_read == {}
