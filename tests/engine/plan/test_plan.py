"""The compiler's passes, one by one, over small graphs; no engine is started."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc
import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, Stream
from flow.connectors.files import ParquetSource
from flow.dataflow import add_step
from flow.engine.plan.compiler import (
    PASSES,
    assign_levels,
    check_ends,
    compile_flow,
    leave_out_unused,
)
from flow.engine.plan.plan import Plan
from flow.operators.stateless import Rekey
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


# --- check_ends -------------------------------------------------------------------------------


def test_check_ends_lists_the_inputs_in_order_of_declaration() -> None:
    flow = Dataflow("ends")
    s, second = source(flow, "b"), source(flow, "a")
    sink("out", op.merge("all", s, second))
    assert check_ends(before(flow, check_ends)).inputs == ("b", "a")


# --- leave_out_unused ---------------------------------------------------------------------------


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


LEVELS: dict[str, tuple[Callable[[Stream[Any]], Stream[Any]], tuple[tuple[str, ...], ...]]] = {
    "no keyed steps": (lambda s: op.map("double", s, abs), ()),
    "independent keyed steps share a level": (
        lambda s: op.merge("all", total("first", s), total("second", s)),
        (("first", "second"),),
    ),
    #  in ─┬─ low ──┬─ high (join of low and in)
    #      └────────┘
    "a keyed step lies one level after the highest that it reads": (
        lambda s: op.join("high", s, op.map_value("same", total("low", s), abs)),
        (("low",), ("high",)),
    ),
    "redistribute takes a level too": (
        lambda s: total("sum", op.redistribute("spread", s)),
        (("spread",), ("sum",)),
    ),
}


@pytest.mark.parametrize(("build", "levels"), LEVELS.values(), ids=LEVELS)
def test_levels_of_keyed_steps(
    build: Callable[[Stream[Any]], Stream[Any]], levels: tuple[tuple[str, ...], ...]
) -> None:
    flow = Dataflow("levels")
    sink("out", build(source(flow)))
    assert assign_levels(before(flow, assign_levels)).levels == levels


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
    sink("late", made.late)  # Late values have all fields.
    plan = compile_flow(flow)
    assert (plan.edges_into("w")[0].fields, plan.fields_read) == (None, {})


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


def test_fields_are_those_of_filters_and_of_the_steps_after_them() -> None:
    flow = Dataflow("f")
    paid = op.filter("paid", source(flow), pc.field("order", "paid") & (pc.field("n") > 1))
    sink("out", win.count_window("n", paid, SystemClock(), TumblingWindower("1h"), "user").down)
    assert compile_flow(flow).fields_read == {"in": {"user", "order", "n"}}
    sink("all", paid)
    assert compile_flow(flow).fields_read == {}


def test_a_source_is_told_the_filters_that_all_of_its_records_meet_first() -> None:
    def told(flow: Dataflow) -> str:
        compiled: Any = compile_flow(flow).steps["in"].operator
        return str(compiled.source._wanted)

    flow = Dataflow("f")
    events = op.input("in", flow, ParquetSource("x"))
    large = op.filter("large", events, pc.field("n") > 1)
    sink("out", op.filter("later", op.filter("open", large, pc.field("open")), bool))
    assert told(flow) == "((n > 1) and open)"
    sink("all large", large)
    assert told(flow) == "(n > 1)"
    sink("all", events)
    assert told(flow) == "None"


def test_an_input_that_another_step_reads_has_all_fields() -> None:
    flow = Dataflow("f")
    events = source(flow)
    made = win.count_window("n", events, SystemClock(), TumblingWindower("1h"), "user")
    sink("out", made.down)
    assert compile_flow(flow).fields_read == {"in": {"user"}}
    sink("all", op.key_on("key", events, "user"))
    assert compile_flow(flow).fields_read == {}
