"""Declarations of aggregates: columns of numbers, order, arrivals, and whether they span keys."""

from __future__ import annotations

from typing import Any

import pytest

import flow_windowing as win
from flow_windowing.aggregates.aggregator import Aggregator, Form, form_of
from flow_windowing.columnar.aggregates.accumulator_column import has_kernel, is_order_free
from tests.support.columns import Epoch, Step, as_dicts, as_records, equal_rows, outcome

DECLARED: dict[Any, tuple[bool, bool, bool, bool]] = {
    # columns of numbers, ignores the order of entering, ignores arrivals, spans keys
    win.Count(): (True, True, True, True),
    win.Count("n"): (True, True, True, True),
    win.Sum("n"): (True, True, True, True),
    win.Mean("n"): (True, True, True, True),
    win.Min("n"): (True, True, False, True),
    win.Max("n"): (True, True, False, True),
    win.First("n"): (True, True, False, False),
    win.Last("n"): (True, True, False, False),
    win.Earliest("n"): (True, True, False, True),
    win.Latest("n"): (True, True, False, True),
    win.CountDistinct("n"): (False, True, True, True),
    win.Quantile("n", 0.5): (False, True, True, True),
    win.StdDev("n"): (False, False, True, True),
    win.TopK("n", 1): (False, True, False, True),
    win.MinK("n", 1): (False, True, False, True),
    win.MaxK("n", 1): (False, True, False, True),
    win.MinKUnique("n", 1): (False, True, False, True),
    win.MaxKUnique("n", 1): (False, True, False, True),
    win.Collect("n"): (False, False, False, False),
    win.CollectUnique("n"): (False, False, False, False),
    win.ApproxTopK("n", 1): (False, False, False, True),
    win.ApproxCountDistinct("n"): (False, True, True, True),
    win.ApproxQuantile("n", 0.5): (False, True, True, True),
    # Without a path of a field there is no column to read.
    win.Sum(): (False, False, True, True),
    win.Sum(len): (False, False, True, True),
}


@pytest.mark.parametrize("aggregate", DECLARED, ids=repr)
def test_an_aggregate_declares_its_columns_and_what_matters(aggregate: Any) -> None:
    assert DECLARED[aggregate] == (
        has_kernel(aggregate),
        is_order_free(aggregate),
        form_of(aggregate).ignores_arrival,
        aggregate.spans_keys,
    )


class Twice(win.Sum):
    """An aggregate of the user's own, with another result than the built-in one."""

    def result(self, state: Any) -> Any:
        return 2 * super().result(state)


def test_a_form_holds_for_the_class_that_declares_it_and_not_for_a_subclass() -> None:
    assert form_of(Twice("n")) == Form() != form_of(win.Sum("n"))
    assert form_of(win.MaxK("n", 1)) == Form(ignores_order=True)


@pytest.mark.parametrize("form", [as_dicts, as_records], ids=["objects", "records"])
def test_a_subclass_of_a_built_in_aggregate_has_its_own_result(form: Any) -> None:
    step = Step(win.SystemClock(), win.TumblingWindower("1m"), {"total": Twice("whole")})
    (value,) = outcome(step, [Epoch(equal_rows(3, whole=5))], form)["down"]["a"]
    assert "{'total': 30}" in value


def test_every_aggregate_is_listed() -> None:
    public = {one for one in vars(win).values() if isinstance(one, type)}
    aggregates = {one for one in public if issubclass(one, Aggregator)} - {Aggregator}
    assert aggregates == {type(one) for one in DECLARED}
