"""Errors for names that people try first, which name the right ones."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, Stream
from flow.errors import FlowTypeError, TimestampError
from flow.instants import instant_us
from flow.testing import TestingSource

ATTRIBUTES: list[tuple[Any, str, str]] = [
    (win, "HoppingWindower", "use SlidingWindower(length=, offset=)"),
    (win, "Avg", "use Mean"),
    (win, "Tumblingwindower", "is it TumblingWindower?"),
    (win, "AfterCount", "use Early(count=), or Late(count=)"),
    (win, "PaneInfo", "use WindowMetadata.pane"),
    (op, "window", "import flow_windowing as win"),
    (op, "key_by", "use key_on(step_id, stream, key)"),
    (op, "dedup", "use win.dedup(step_id, stream, clock, id, ttl=...)"),
    (op, "distinct", "use win.dedup(step_id, stream, clock, id, ttl=...)"),
    (op, "async_map", "use map_async(step_id, stream, fn, capacity=100)"),
    (op, "map_batch", "use map_batches(step_id, stream, fn)"),
    (op, "flat_map_batch", "use map_batches(step_id, stream, fn)"),
    (op, "join_window", "import flow_windowing as win, and use win.join_window"),
    (win, "as_records", "use op.records(step_id, out.down)"),
    (win, "deduplicate", "use dedup(step_id, stream, clock, id, ttl=...)"),
]

ARGUMENTS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: win.TumblingWindower(size="1h"),
        "TumblingWindower has no argument 'size': use length",
    ),
    (lambda: win.SlidingWindower("1h", every="5m"), "has no argument 'every': use offset"),
    (lambda: win.SessionWindower(timeout="5m"), "has no argument 'timeout': use gap"),
    (lambda: win.EventClock("at", wait="1m"), "use wait_for_system_duration"),
    (lambda: win.Early(period="1m"), "Early has no argument 'period': use every="),
    (lambda: win.ApproxCountDistinct("user", error=0.01), "it has field=, precision="),
    (lambda: win.TopK(3, fields="user"), "TopK has no argument 'fields': is it field=?"),
    (lambda: win.SystemClock(zone="UTC"), "SystemClock has no argument 'zone': it takes none"),
    (lambda: win.TumblingWindower("1h", colour="red"), "has length=, align_to=, closed=, grace="),
    (lambda: win.AfterWatermark(allowed_lateness="1m"), "use grace= of the windower"),
]


@pytest.mark.parametrize(("module", "name", "hint"), ATTRIBUTES)
def test_a_module_names_the_right_attribute(module: Any, name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert f"has no {name!r}" in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("from flow_windowing import HoppingWindower", "'HoppingWindower': use SlidingWindower("),
        ("from flow_windowing import Count, Countt", "'Countt': is it Count?"),
        ("from flow.operators import collect_window", "import flow_windowing as win"),
        ("from flow.testing import run_main", "use run(flow) of flow, or a TestDriver"),
    ],
)
def test_an_import_names_the_right_name(statement: str, hint: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(statement, {})
    assert hint in str(caught.value)


def test_a_name_that_an_import_and_inspection_may_try_is_only_missing() -> None:
    assert not hasattr(win, "HoppingWindower")
    with pytest.raises(ImportError, match="cannot import name 'qqq' from 'flow_windowing'"):
        exec("from flow_windowing import qqq", {})


def test_a_private_name_is_compared_with_no_other() -> None:
    with pytest.raises(AttributeError, match=r"has no '_map_value'$"):
        op._map_value  # noqa: B018


@pytest.mark.parametrize(("make", "hint"), ARGUMENTS)
def test_a_configuration_names_the_right_argument(make: Callable[[], Any], hint: str) -> None:
    with pytest.raises(FlowTypeError) as caught:
        make()
    assert hint in str(caught.value)


def test_an_argument_that_a_windower_has_is_taken() -> None:
    assert win.CalendarWindower("month", "UTC", every=3).every == 3


class Noted(win.Aggregator[Any, int, int]):
    """An aggregate that takes any argument."""

    def __init__(self, **notes: Any) -> None:
        self.notes = notes

    def initialize(self) -> int:
        return 0

    def add(self, state: int, value: Any) -> int:
        return state + value

    def merge(self, state: int, other: int) -> int:
        return state + other

    def result(self, state: int) -> int:
        return state


def test_a_class_with_arguments_of_any_name_takes_them() -> None:
    assert Noted(colour="red").notes == {"colour": "red"}


def test_windowers_and_clocks_are_still_copied_and_pickled() -> None:
    for one in (win.SlidingWindower("1h", "5m"), win.EventClock("at", "1m")):
        assert copy.copy(one) == pickle.loads(pickle.dumps(one)) == one


def test_a_stream_says_that_operators_are_functions() -> None:
    stream: Stream[Any] = op.input("in", Dataflow("flow"), TestingSource([]))
    with pytest.raises(AttributeError, match=r"write op\.map\(\.\.\.\)"):
        getattr(stream, "map")  # noqa: B009  (a type checker refuses the attribute)


def test_completion_offers_public_names_only() -> None:
    assert dir(op) == sorted(op.__all__)
    assert dir(win) == sorted(win.__all__)


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (
            1_700_000_000_000,
            "a number of Unix milliseconds, write EventClock(..., unit='ms')",
        ),
        (1.7e15, "a number of Unix microseconds, write EventClock(..., unit='us')"),
        (1_700_000_000_000_000_000, "unit='ns'), or divide it by 1,000,000,000"),
    ],
)
def test_a_timestamp_in_a_smaller_unit_is_recognised(number: float, hint: str) -> None:
    with pytest.raises(TimestampError) as caught:
        instant_us(number)
    assert hint in str(caught.value)
