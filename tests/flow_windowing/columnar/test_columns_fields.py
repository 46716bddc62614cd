"""Aggregates over the column of a field: no record becomes a dict, few values are buffered."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

import flow_windowing as win
from flow.errors import StepError
from flow.testing import TestDriver, key_by_key
from flow_windowing import EventClock, StdDev, TumblingWindower
from flow_windowing.aggregates.folding import FoldingBuilder, NamedAggregates
from flow_windowing.columnar.values import records
from flow_windowing.columnar.windows.windowing import WindowPlan
from flow_windowing.deduplication.ids import IdOf
from flow_windowing.deduplication.operator import DedupBuilder
from flow_windowing.lowering import DriverBuilder, fields_of, plan_of
from tests.support.columns import (
    PICKED,
    Step,
    as_dicts,
    as_records,
    equal_rows,
)
from tests.support.own_clock import own
from tests.support.window_flow import START

PATIENT = EventClock("ts", "5s")
MINUTES = TumblingWindower("1m")


@pytest.mark.parametrize("emit", ["close", "update"])
def test_records_do_not_become_dicts_to_aggregate_a_field(emit: str) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a record has become a dict")

    step = Step(PATIENT, MINUTES, PICKED, emit=emit)
    rows = [*equal_rows(2, whole=3), *equal_rows(1, real=2.5, text=None)]
    with mock.patch.object(records, "rows_of", refuse), TestDriver(step.flow(), now=START) as t:
        t.send("in", as_records(rows))
        t.end()
        (*_, (_, (_, value))) = t.received("down")
    assert value == {
        "texts": 1,
        "median": 0.5,
        "often": ["x"],
        "most": [2.5, 0.5],
        "least": [1, 3],
        "different": [3, 1],
        "spread": pytest.approx(1.1547, abs=1e-4),
    }


@pytest.mark.parametrize(
    ("name", "waits"),
    [(name, name in ("different", "spread")) for name in PICKED],
)
def test_values_are_buffered_only_if_order_matters(name: str, waits: bool) -> None:
    config = DriverBuilder(PATIENT, MINUTES, FoldingBuilder(PICKED[name], "close"))
    plan = plan_of(config)
    assert isinstance(plan, WindowPlan)
    assert plan.waits == waits


def test_unused_columns_are_not_read() -> None:
    builder = FoldingBuilder(NamedAggregates(tuple(PICKED), tuple(PICKED.values())), "close")
    config = DriverBuilder(PATIENT, MINUTES, builder)
    plan = plan_of(config)
    assert isinstance(plan, WindowPlan)
    assert fields_of(plan) == {"ts", "text", "real", "whole"}


@pytest.mark.parametrize(
    ("clock", "aggregator", "waits"),
    [(PATIENT, win.TopK(len, 1), True), (own(PATIENT), win.Sum("n"), False)],
)
def test_functions_and_clocks_of_ones_own_may_read_any_column(
    clock: Any, aggregator: Any, waits: bool
) -> None:
    plan = plan_of(DriverBuilder(clock, MINUTES, FoldingBuilder(aggregator, "close")))
    assert isinstance(plan, WindowPlan)
    assert (plan.waits, fields_of(plan)) == (waits, None)
    assert DedupBuilder(own(PATIENT), IdOf("id"), 1).lower().fields is None


@pytest.mark.parametrize("emit", ["close", "update"])
def test_an_invalid_value_is_refused_with_its_record(emit: str) -> None:
    step = Step(PATIENT, MINUTES, {"spread": StdDev("text")}, emit=emit)
    messages = []
    for way in (as_records, as_dicts):
        with TestDriver(step.flow(), now=START) as t, pytest.raises(StepError) as raised:
            t.send("in", way(equal_rows(1, text=None) + equal_rows(1, text="much")))
        messages.append(str(raised.value))
    with key_by_key(), TestDriver(step.flow(), now=START) as t:
        with pytest.raises(StepError) as raised:
            t.send("in", as_dicts(equal_rows(1, text=None) + equal_rows(1, text="much")))
        messages.append(str(raised.value))
    assert len(set(messages)) == 1
    assert "StdDev('text') needs numbers, not 'much' (str)" in messages[0]
    assert "'text': 'much'" in messages[0]


def test_a_field_that_no_record_has_gives_empty_results() -> None:
    step = Step(
        PATIENT, MINUTES, {"n": win.CountDistinct("nowhere"), "top": win.TopK("no.where", 1)}
    )
    with TestDriver(step.flow(), now=START) as t:
        t.send("in", as_records(equal_rows(3)))
        t.advance(timedelta(minutes=2))
        ((_, (_, value)),) = t.received("down")
    assert value == {"n": 0, "top": []}
