"""Rendering of a key's state in a windowing step."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from typing_extensions import override

import flow.operators as op
from flow import Dataflow
from flow.instants import NEVER, Moment
from flow.testing import TestingSink, TestingSource
from flow_windowing import (
    Aggregator,
    ApproxCountDistinct,
    ApproxQuantile,
    Collect,
    Count,
    CountDistinct,
    EventClock,
    Latest,
    MaxK,
    Mean,
    Min,
    Quantile,
    StdDev,
    Sum,
    TopK,
    TumblingWindower,
    aggregate_window,
)
from flow_windowing.aggregates.folding import FoldingBuilder, NamedAggregates
from flow_windowing.rules.key_state import (
    DriverState,
    IntervalState,
    PackedList,
    Waiting,
    WaitQueue,
    tag_of,
)
from flow_windowing.rules.metadata import WindowMetadata
from flow_windowing.rules.window_logic import Arrival
from flow_windowing.time_joins.interval_matching import LEFT, RIGHT
from recovery.identity.fingerprint import describe
from recovery.reading.inert import load_inert
from recovery.reading.rendering import WindowingStep, aggregates_in, waiting_values, windower_of


def driver_state(**changes: Any) -> DriverState:
    return DriverState(None, None, None, 0, 0, {}, (), {}, {})._replace(**changes)


def test_time_since_a_value_advances_the_watermark_if_it_makes_a_timer_due() -> None:
    """Base 100, set at running time 40; the epoch is at 70, of which the flow was down for 10."""
    step = WindowingStep({"clock": {"type": "EventClock"}}, Moment(70, 10))
    open_window = {"clock": (100, 40), "windows": {1: ()}}
    assert step.watermark_us(driver_state(**open_window), due_us=500) == 120
    assert step.watermark_us(driver_state(**open_window), due_us=NEVER) == 100
    # Nothing could be due: what the clock does by default.
    assert step.watermark_us(driver_state(clock=(100, 40)), due_us=NEVER) == 120


def test_other_clocks() -> None:
    system = WindowingStep({"clock": {"type": "SystemClock"}}, Moment(70, 10))
    assert system.watermark_us(driver_state(), due_us=NEVER) == 70
    own = WindowingStep({"clock": {"type": "MyClock"}}, Moment(70, 10))
    assert own.watermark_us(driver_state(clock=(100, 40)), due_us=NEVER) is None
    assert own.view(driver_state(clock=(100, 40)), NEVER)["clock"] == [100, 40]


def test_buffered_values_in_blocks_are_read() -> None:
    queue = WaitQueue()
    for number in range(400):
        queue.push(Waiting(1_000 - number, number, {"n": number}))
    state = driver_state(waiting=queue.snapshot())
    assert state.waiting is not None
    assert state.waiting[1]  # there are blocks
    found = waiting_values(state)
    assert [one.timestamp_us for one in found] == list(range(601, 1_001))
    assert found[0].value == {"n": 399}


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        (
            {"type": "TumblingWindower", "length": "1h", "align_to": 0, "closed": "right"},
            "TumblingWindower(length='1h', align_to=datetime.datetime(1970, 1, 1, 0, 0, "
            "tzinfo=datetime.timezone.utc), closed='right', grace=None)",
        ),
        ({"type": "SessionWindower", "gap": "5m"}, "SessionWindower(gap='5m', inclusive=True"),
        ({"type": "CalendarWindower", "unit": "day", "tz": "UTC"}, "CalendarWindower(unit='day'"),
        ({"type": "CountWindower", "count": 3, "step": None}, "CountWindower(count=3"),
        ({"type": "TheirWindower", "n": 3}, "None"),
        ({"type": "TumblingWindower", "length": "-1h"}, "None"),
        ({"type": "TumblingWindower", "lengths": "1h"}, "None"),
        ({"type": "EventClock"}, "None"),
        ("code", "None"),
        (None, "None"),
    ],
)
def test_a_windower_is_made_from_its_description_in_a_checkpoint(config: Any, shown: str) -> None:
    assert repr(windower_of(config)).startswith(shown)


def test_windows_of_an_unknown_windower_have_no_bounds() -> None:
    step = WindowingStep({"windower": {"type": "TheirWindower"}}, Moment(0))
    (only,) = step.windows(driver_state(windows={7: (1,)}))
    assert only == (7, None, (1,))
    assert step.view(driver_state(windows={7: (1,)}), NEVER)["windows"] == [{"id": 7, "value": [1]}]


def test_the_state_of_an_interval_join_shows_the_values_of_each_side() -> None:
    step = WindowingStep({"clock": {"type": "EventClock"}}, Moment(70, 10))
    retained = [
        (3_000_000, tag_of(4, RIGHT, 0), {"n": 1}),
        (2_000_000, tag_of(5, LEFT, 1), {"n": 2}),
        (1_000_000, tag_of(6, LEFT, 0), {"n": 3}),
    ]
    state = IntervalState((100, 40), 7, retained)
    assert step.interval_view(state, due_us=500) == {
        "watermark": "1970-01-01T00:00:00.000120Z",
        "clock": [100, 40],
        "left": [
            {"timestamp": "1970-01-01T00:00:01Z", "value": {"n": 3}, "matched": False},
            {"timestamp": "1970-01-01T00:00:02Z", "value": {"n": 2}, "matched": True},
        ],
        "right": [{"timestamp": "1970-01-01T00:00:03Z", "value": {"n": 1}, "matched": False}],
    }


def test_the_state_of_an_as_of_join_shows_the_values_of_each_side() -> None:
    step = WindowingStep({"clock": {"type": "SystemClock"}, "direction": "backward"}, Moment(70))
    retained = [(3_000_000, tag_of(4, RIGHT, 1), None), (2_000_000, tag_of(5, LEFT, 0), {"n": 2})]
    assert step.interval_view(IntervalState(None, 6, retained), due_us=500) == {
        "watermark": "1970-01-01T00:00:00.000070Z",
        "clock": None,
        "left": [{"timestamp": "1970-01-01T00:00:02Z", "value": {"n": 2}}],
        "right": [{"timestamp": "1970-01-01T00:00:03Z", "value": None}],
    }


def test_the_emitted_result_of_a_window_is_shown_also_if_it_is_current() -> None:
    config = {"type": "FoldingBuilder", "aggregator": {"type": "Count"}}
    step = WindowingStep({"builder": config}, Moment(0))
    window = WindowMetadata.of_us(7, 7, 7)
    state = driver_state(windows={7: (3,), 9: (2,)}, emissions={7: (window, 1), 9: None})
    assert step.view(state, NEVER)["emitted"] == {"7": 1, "9": 2}


def test_the_windows_of_aggregates_show_the_results_so_far() -> None:
    """The accumulators are those of a real window, read as the tools read a checkpoint."""
    aggregates: dict[str, Aggregator[Any, Any, Any]] = {
        "n": Count(where=lambda value: value["x"] > 1),
        "mean": Mean("x"),
        "total": Sum("x", missing="fail"),
        "spread": StdDev("x"),
        "half": Quantile("x", 0.5),
        "about_half": ApproxQuantile("x", 0.5, accuracy=0.001),
        "most": MaxK("x", 2),
        "top": TopK("kind", 1),
        "kinds": CountDistinct("kind"),
        "about": ApproxCountDistinct("kind"),
        "least": Min("x"),
        "latest": Latest("x"),
        "all": Collect("x"),
    }
    named = NamedAggregates(tuple(aggregates), tuple(aggregates.values()))
    logic = FoldingBuilder(named, "close")(None)
    for number in range(4):
        value = {"x": number / 2, "kind": "ab"[number % 2]}
        logic.on_value_at(value, Arrival(number, number, number))
    state = load_inert(pickle.dumps(logic.snapshot(), 5))
    config = describe(FoldingBuilder(named, "close"))
    (only,) = WindowingStep({"builder": config}, Moment(0)).windows(
        driver_state(windows={7: state})
    )
    assert only.value == {
        "n": 1,
        "mean": 0.75,
        "total": 3.0,
        "spread": pytest.approx(0.6455, abs=1e-4),
        "half": 0.75,
        "about_half": pytest.approx(0.5, abs=0.01),
        "most": [1.5, 1.0],
        "top": ["a"],
        "kinds": 2,
        "about": 2,
        "least": 0.0,
        "latest": 1.5,
        "all": [0.0, 0.5, 1.0, 1.5],
    }


class Product(Aggregator[int, list[int], int]):
    """The product of ints, whose accumulator is the list of them."""

    @override
    def initialize(self) -> list[int]:
        return []

    @override
    def add(self, state: list[int], value: int) -> list[int]:
        return [*state, value]

    @override
    def merge(self, state: list[int], other: list[int]) -> list[int]:
        return state + other

    @override
    def result(self, state: list[int]) -> int:
        return math.prod(state)


def product_flow(**aggregates: Aggregator[Any, Any, Any]) -> Dataflow:
    """Return a flow with a step of aggregates."""
    flow = Dataflow("products")
    keyed = op.input("in", flow, TestingSource(()))
    clock, windower = EventClock("at", "0s"), TumblingWindower("1h")
    out = aggregate_window("hourly", keyed, clock, windower, **aggregates)
    op.output("out", out.down, TestingSink([]))
    return flow


@pytest.mark.parametrize(
    ("flow", "value"),
    [
        (None, {"product": [2, 3], "n": 2}),
        (product_flow(product=Product(), n=Count()), {"product": 6, "n": 2}),
        (product_flow(product=Mean("x"), n=Count()), {"product": [2, 3], "n": 2}),
    ],
)
def test_the_flow_computes_the_result_of_an_aggregate_of_the_users(
    flow: Dataflow | None, value: dict[str, Any]
) -> None:
    """Without the flow, or with another aggregate in it, the accumulator is shown as it is."""
    named = NamedAggregates(("product", "n"), (Product(), Count()))
    config = describe(FoldingBuilder(named, "close"))
    step = WindowingStep({"builder": config}, Moment(0), None, aggregates_in(flow, "hourly"))
    (only,) = step.windows(driver_state(windows={7: ([[2, 3], 2],)}))
    assert only.value == value


def test_the_flow_computes_the_result_of_the_only_aggregate_of_a_step() -> None:
    config = describe(FoldingBuilder(Product(), "close"))
    step = WindowingStep({"builder": config}, Moment(0), None, {None: Product()})
    (only,) = step.windows(driver_state(windows={7: ([2, 3],)}))
    assert only.value == 6


@pytest.mark.parametrize("builder", ["FoldingBuilder", "DiscardingBuilder"])
def test_a_window_with_a_trigger_shows_its_accumulator(builder: str) -> None:
    step = WindowingStep({"builder": {"type": builder, "aggregator": {"type": "Count"}}}, Moment(0))
    (only,) = step.windows(driver_state(windows={7: (3, (2, 3, 1, NEVER, False))}))
    assert only.value == 3


def test_a_joins_window_shows_the_value_of_each_side() -> None:
    config = {"type": "FoldingBuilder", "aggregator": {"type": "OneOfEachSide"}}
    step = WindowingStep({"builder": config}, Moment(0))
    (only,) = step.windows(driver_state(windows={7: ((((0, 1), "left"), None),)}))
    assert only.value == ["left", None]


@pytest.mark.parametrize("named", [False, True])
def test_a_list_shows_its_packed_entries(named: bool) -> None:
    aggregator: dict[str, Any] = {"type": "NamedAggregates", "names": ["all"]}
    config = {"type": "FoldingBuilder", "aggregator": aggregator if named else {"type": "Collect"}}
    packed = PackedList(["third"], (pickle.dumps(["first", "second"], 5),))
    state = load_inert(pickle.dumps([packed] if named else packed, 5))
    (only,) = WindowingStep({"builder": config}, Moment(0)).windows(
        driver_state(windows={7: (state, (0, 3, 3, NEVER, False))})
    )
    entries = ["first", "second", "third"]
    assert only.value == ({"all": entries} if named else entries)


def test_a_window_of_all_combinations_shows_the_values_of_each_side() -> None:
    config = {"type": "FoldingBuilder", "aggregator": {"type": "AllOfEachSide", "sides": 2}}
    step = WindowingStep({"builder": config}, Moment(0))
    entries = [((5, 1), (0, "second")), ((0, 2), (0, "first"))]
    (only,) = step.windows(driver_state(windows={7: (entries,)}))
    assert only.value == [["first", "second"], []]


def test_the_window_of_a_join_that_emits_before_the_close_shows_the_values_of_each_side() -> None:
    step = WindowingStep({"builder": {"type": "JoinBuilder"}}, Moment(0))
    sides = [[((0, 1), "left")], []]
    (only,) = step.windows(driver_state(windows={7: sides}))
    assert only.value == [["left"], []]
