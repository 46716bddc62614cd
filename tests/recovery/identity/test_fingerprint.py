"""Changes of a flow and its checkpoint: state that is kept, empty, wrong, moved or removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import CheckpointError, Dataflow
from flow.connectors.dataframe import DataFrameSource
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.plan import Plan
from flow.errors import FlowBuildError
from flow.testing import TestingSink, TestingSource
from flow_windowing import Count, EventClock, Mean, SessionWindower, Sum, TumblingWindower
from recovery import RecoveryConfig
from recovery.identity.fingerprint import Effect, compare, describe, fingerprint, without_levels

Build = Callable[[Any], Any]


def hourly(**changes: Any) -> Build:
    """Return a windowing step of hours, with changes."""
    arguments: dict[str, Any] = {
        "clock": EventClock("at", "5m"),
        "windower": TumblingWindower("1h"),
        "n": Count(),
        "total": Sum("amount"),
        **changes,
    }
    kept = {name: value for name, value in arguments.items() if value is not None}
    return lambda stream: win.aggregate_window("hourly", stream, **kept).down


def flow_of(*builds: Build, source: str = "in") -> Dataflow:
    """Return a flow of keyed steps that each read the input."""
    flow = Dataflow("f")
    stream = op.input(source, flow, TestingSource([]))
    for number, build in enumerate(builds):
        op.output(f"out {number}", build(stream), TestingSink([]))
    if not builds:
        op.output("out", stream, TestingSink([]))
    return flow


def changes(before: Dataflow, now: Dataflow) -> list[tuple[str, Effect, str]]:
    prints = [fingerprint(compile_flow(flow)) for flow in (before, now)]
    return [(one.step_id, one.effect, one.what) for one in compare(*prints)]


@pytest.mark.parametrize(
    "now",
    [
        hourly(),
        hourly(windower=TumblingWindower("60m")),
        hourly(clock=EventClock("at", "2h")),
        hourly(clock=EventClock("at", "5m", on_idle="hold")),
        hourly(clock=EventClock("at", "5m", forget_after="1d")),
        hourly(windower=TumblingWindower("1h", grace="1m")),
        *(hourly(emit=emit) for emit in ("update", win.Early(count=3))),
        hourly(ordered=True),
        hourly(timestamp="last"),
    ],
)
def test_harmless_changes_are_no_change(now: Build) -> None:
    assert changes(flow_of(hourly()), flow_of(now)) == []


@pytest.mark.parametrize(
    ("now", "what"),
    [
        ({"windower": TumblingWindower("30m")}, "windower.length was '1h' and is '30m'"),
        (
            {"windower": SessionWindower("1h")},
            "windower was 'TumblingWindower' and is 'SessionWindower'",
        ),
        (
            {"windower": TumblingWindower("1h", closed="right")},
            "windower.closed was 'left' and is 'right'",
        ),
        ({"clock": EventClock("created_at", "5m")}, "clock.ts_getter was 'at' and is 'created_at'"),
        (
            {"clock": EventClock("at", "5m", scope="stream")},
            "clock.scope was 'key' and is 'stream'",
        ),
        (
            {"emit": win.AfterWatermark(win.Early(count=3), accumulate=False)},
            "builder was 'FoldingBuilder' and is 'DiscardingBuilder'",
        ),
        ({"clock": win.SystemClock()}, "clock was 'EventClock' and is 'SystemClock'"),
        ({"total": Mean("amount")}, "builder.aggregator.aggregators was"),
    ],
)
def test_changes_that_affect_state_are_named(now: dict[str, Any], what: str) -> None:
    found = changes(flow_of(hourly()), flow_of(hourly(**now)))
    assert [(step_id, effect) for step_id, effect, _ in found] == [("hourly", Effect.WRONG_STATE)]
    assert found[0][2].startswith(what)


def stateful(step_id: str, mapper: Any = lambda a, b: (a, b)) -> Build:
    return lambda stream: op.stateful_map(step_id, stream, mapper)


def totals(mapper: Any = max) -> Build:
    return stateful("totals", mapper)


def filtered(predicate: Any) -> Build:
    return lambda stream: hourly()(op.filter("large", stream, predicate))


KIND = ("x", Effect.WRONG_STATE, "was stateful_map and is reduce_final")
NEW = ("hourly", Effect.STARTS_EMPTY, "is new: it starts without state")
GONE = ("hourly", Effect.REMOVED, "is not in the flow any more")
CASES: dict[str, tuple[list[Build], list[Build], list[Any]]] = {
    "code": ([totals(max)], [totals(min)], []),
    "a stateless step": ([totals()], [lambda s: totals()(op.map_value("more", s, abs))], []),
    "an output": ([totals()], [totals(), lambda s: s], []),
    "an expression": ([filtered(pc.field("n") > 1)], [filtered(pc.field("amount") > 2)], []),
    "a function for an expression": ([filtered(pc.field("n") > 1)], [filtered(bool)], []),
    "an expression for a function": ([filtered(any)], [filtered(pc.field("n") > 2)], []),
    "another kind": ([stateful("x")], [lambda s: op.reduce_final("x", s, max)], [KIND]),
    "a new step": ([totals()], [totals(), hourly()], [NEW]),
    "a removed step": ([totals(), hourly()], [totals()], [GONE]),
}


@pytest.mark.parametrize(("before", "now", "what"), CASES.values(), ids=CASES)
def test_the_effect_of_other_changes(before: list[Build], now: list[Build], what: Any) -> None:
    assert changes(flow_of(*before), flow_of(*now)) == what


def test_a_new_input_starts_empty() -> None:
    assert changes(flow_of(source="a"), flow_of(source="b")) == [
        ("b", Effect.STARTS_EMPTY, "is new: it is read from its beginning")
    ]


def test_another_level_moves_state_if_levels_are_recorded() -> None:
    before = flow_of(totals())
    below = flow_of(lambda s: totals()(stateful("first")(s)))
    effects = [(step_id, effect) for step_id, effect, _ in changes(before, below)]
    assert effects == [("first", Effect.STARTS_EMPTY), ("", Effect.MOVED)]
    kept = without_levels(fingerprint(compile_flow(before)))
    found = compare(kept, fingerprint(compile_flow(below)))
    assert [(one.step_id, one.effect) for one in found] == [("first", Effect.STARTS_EMPTY)]


def test_streaming_data_frames_must_keep_their_number_and_order(spark: SparkSession) -> None:
    """Spark knows them by their places: it would give one the offset of another."""

    def reading(*names: str) -> Plan:
        flow = Dataflow("frames")
        for name in names:
            source = DataFrameSource(spark.readStream.format("rate").load())
            op.output(f"{name}_out", op.input(name, flow, source), TestingSink([]))
        op.output("out", op.input("plain", flow, TestingSource([1])), TestingSink([]))
        return compile_flow(flow)

    kept = DROP.admit(None, reading("a", "b")).kept
    DROP.admit(kept, reading("a", "b"))
    for names in (("b", "a"), ("a",), ("a", "c"), ("a", "b", "c"), ()):
        with pytest.raises(CheckpointError, match="data frames that it reads were 'a', 'b' and"):
            DROP.admit(kept, reading(*names))


CHANGED = hourly(windower=TumblingWindower("30m"))
CONFIG = RecoveryConfig("there")
RESET = RecoveryConfig("there", reset_steps=["hourly"])
DROP = RecoveryConfig("there", on_removed="drop")


def admit(config: RecoveryConfig, before: Any, *builds: Build, source: str = "in") -> Any:
    """Admit a flow to the checkpoint of an admission before, or to none."""
    plan = compile_flow(flow_of(*builds, source=source))
    return config.admit(before and before.kept, plan)


def test_a_flow_that_does_not_fit_is_refused_with_advice() -> None:
    before = admit(CONFIG, None, hourly())
    with pytest.raises(CheckpointError) as caught:
        admit(CONFIG, before, CHANGED)
    assert str(caught.value).splitlines() == [
        "checkpoint there does not fit the flow as it is now:",
        "  step 'hourly': windower.length was '1h' and is '30m'",
        "what may be done:",
        "  - run the flow as it was",
        "  - reset these steps: RecoveryConfig(..., reset_steps=['hourly'])",
        "  - start over, on another checkpoint",
    ]


def test_a_step_that_is_reset_keeps_its_state_under_another_name() -> None:
    admission = admit(RESET, admit(CONFIG, None, hourly()), CHANGED)
    assert (admission.kept["names"], admission.dropped) == (
        {"hourly": '["hourly", 1]'},
        ("hourly",),
    )
    assert admission.warnings == ("step 'hourly' starts without its state, as reset_steps asks",)


def test_a_step_is_reset_once_for_repeated_requests() -> None:
    first = admit(RESET, admit(CONFIG, None, hourly()), hourly())
    again = admit(RESET, first, hourly())
    assert (again.kept["names"], again.dropped, again.warnings) == (first.kept["names"], (), ())
    third = admit(RESET, again, CHANGED)
    assert (third.kept["names"], third.dropped) == ({"hourly": '["hourly", 2]'}, ('["hourly", 1]',))


def test_state_of_a_removed_step_is_dropped_only_on_request() -> None:
    before = admit(CONFIG, None, totals(), hourly())
    with pytest.raises(CheckpointError, match=r"on_removed='drop'"):
        admit(CONFIG, before, totals())
    assert admit(DROP, before, totals()).dropped == ("hourly",)


def test_a_removed_step_that_returns_starts_without_its_old_state() -> None:
    """The state is dropped in each epoch of a run until an epoch has succeeded."""
    both, one = (compile_flow(flow_of(totals(), *more)) for more in ([hourly()], []))
    removed = DROP.admit(DROP.admit(None, both).kept, one)
    back = DROP.admit(removed.kept, both, removed.dropped)
    assert (back.kept["names"], back.dropped) == ({"hourly": '["hourly", 1]'}, ())
    assert back.warnings == ("step 'hourly' is new: it starts without state",)
    assert DROP.admit(removed.kept, both).kept["names"] == {}, "once it is gone"
    again = DROP.admit(DROP.admit(back.kept, one).kept, both, ["hourly", '["hourly", 1]'])
    assert again.kept["names"] == {"hourly": '["hourly", 2]'}


def test_a_removed_input_resumes_when_it_returns() -> None:
    reset = RecoveryConfig("there", reset_steps=["in"])
    kept = admit(reset, admit(CONFIG, None, hourly()), hourly())
    away = admit(CONFIG, kept, hourly(), source="other")
    assert away.warnings == ("step 'other' is new: it is read from its beginning",)
    back = admit(CONFIG, away, hourly())
    assert back.warnings == ("step 'in' is back: it is read from where it was left",)
    assert back.kept["names"] == {"in": '["in", 1]'}
    again = admit(CONFIG, back, hourly())
    assert (again.warnings, again.kept["names"]) == ((), back.kept["names"])
    assert admit(reset, away, hourly()).kept["names"] == {"in": '["in", 2]'}


def test_what_cannot_be_reset_is_an_error() -> None:
    with pytest.raises(FlowBuildError, match=r"'nothing', which keeps nothing; .*: 'in', 'hourly'"):
        admit(RecoveryConfig("there", reset_steps=["nothing"]), None, hourly())


def test_a_time_zone_is_compared_by_name() -> None:
    by_name = win.CalendarWindower("day", "Europe/Paris")
    by_zone = win.CalendarWindower("day", ZoneInfo("Europe/Paris"))
    assert describe(by_name) == describe(by_zone)
    assert describe(by_name) != describe(win.CalendarWindower("day", ZoneInfo("Asia/Tokyo")))


def test_a_user_written_windower_is_compared_by_name() -> None:
    class Odd(win.Windower[Any]):
        def build(self, state: Any) -> Any: ...

    assert describe(Odd()) == {
        "type": "test_a_user_written_windower_is_compared_by_name.<locals>.Odd"
    }


# --- joins ------------------------------------------------------------------------------------

Sides = Callable[[Any, Any], tuple[Any, ...]]


def joined(sides: Sides = lambda a, c: (a, c), **modes: Any) -> Dataflow:
    """A join of two inputs, and a join of them in windows."""
    flow = Dataflow("f")
    a, c = (op.input(name, flow, TestingSource([])) for name in "ac")
    clock, windower = EventClock("at", "5m"), TumblingWindower("1h")
    for name, stream in {"a": a, "c": c}.items():
        op.output(f"read {name}", stream, TestingSink([]))
    read = sides(a, c)
    op.output("out", op.join("j", *read, **modes), TestingSink([]))
    windows = win.join_window("w", *read, clock=clock, windower=windower, **modes)
    op.output("out of windows", windows.down, TestingSink([]))
    return flow


def passing(name: str, stream: Any) -> Any:
    return op.filter_value(name, stream, bool)


@pytest.mark.parametrize(
    ("before", "now", "what"),
    [
        (
            lambda a, c: (a, c),
            lambda a, c: (c, a),
            [
                "side 0 read step 'a', which is side 1 now",
                "side 1 read step 'c', which is side 0 now",
            ],
        ),
        (
            lambda a, c: (passing("p", a), a),
            lambda a, c: (a, passing("p", a)),
            ["side 0 read step 'p', which is side 1 now"],
        ),
        (lambda a, c: (a, c), lambda a, c: (a, a), ["side 1 read step 'c' and reads step 'a'"]),
        (lambda a, c: (a, c), lambda a, c: (passing("p", a), passing("q", c)), []),
        (lambda a, c: (passing("p", a), c), lambda a, c: (passing("other", a), c), []),
        (lambda a, c: (a, c), lambda a, c: (op.merge("m", a, passing("p", c)), c), []),
        (lambda a, c: (a, a), lambda a, c: (a, a), []),
    ],
)
def test_other_sides_are_refused(before: Sides, now: Sides, what: list[str]) -> None:
    found = changes(joined(before), joined(now))
    assert found == [(step, Effect.WRONG_STATE, one) for step in ("j", "w") for one in what]


def test_sides_after_keyed_steps_are_traced_to_these_steps() -> None:
    def sides(first: str, second: str) -> Sides:
        def keyed(a: Any, c: Any) -> tuple[Any, Any]:
            total = win.count_window("n", c, EventClock("at", "5m"), TumblingWindower("1h"), str)
            found = {"a": a, "down": total.down, "late": total.late}
            return found[first], found[second]

        return keyed

    (change, _) = changes(joined(sides("a", "late")), joined(sides("a", "down")))
    assert change == ("j", Effect.WRONG_STATE, "side 1 read step 'n' (late) and reads step 'n'")


def test_the_modes_of_joins_are_compared() -> None:
    for mode, place, before, now in (
        ("insert_mode", "builder.aggregator", "first", "last"),
        ("emit_mode", "builder", "running", "complete"),
    ):
        what = f"{mode} was '{before}' and is '{now}'"
        assert changes(joined(**{mode: before}), joined(**{mode: now})) == [
            ("j", Effect.WRONG_STATE, what),
            ("w", Effect.WRONG_STATE, f"{place}.{what}"),
        ]


# --- tables -----------------------------------------------------------------------------------


def looking_up(**table: Any) -> Dataflow:
    """A flow that looks up items in a table, or in none."""
    flow = Dataflow("rules")
    items = op.input("items", flow, TestingSource([]))
    if table:
        rules = op.table("rules", op.input("changes", flow, TestingSource([])), **table)
        items = op.map_with("score", items, rules, max)
    op.output("out", items, TestingSink([]))
    return flow


def test_another_key_of_a_table_does_not_fit_its_versions_and_a_size_limit_may_change() -> None:
    ((step_id, effect, _),) = changes(looking_up(key="id"), looking_up(key="name"))
    assert (step_id, effect) == ("rules", Effect.WRONG_STATE)
    assert changes(looking_up(key="id"), looking_up(key="id", max_bytes=1)) == []


def test_a_new_table_starts_empty_and_a_removed_one_is_left() -> None:
    found = [change[:2] for change in changes(looking_up(), looking_up(key="id"))]
    assert ("rules", Effect.STARTS_EMPTY) in found
    assert changes(looking_up(key="id"), looking_up()) == []


def test_a_table_that_is_reset_gets_a_folder_of_its_own() -> None:
    first = CONFIG.admit(None, compile_flow(looking_up(key="id")))
    config = RecoveryConfig("there", reset_steps=["rules"])
    reset = config.admit(first.kept, compile_flow(looking_up(key="name")))
    assert reset.kept["names"] == {"rules": '["rules", 1]'}
