"""Epochs of flows with tables: the plans that lack a table, and sources that do not answer."""

from __future__ import annotations

from dataclasses import replace

import flow.operators as op
from flow import Dataflow
from flow.connectors.source import MemoryLog, Planner, Split
from flow.engine.epoch.context import Control
from flow.engine.feed.clocks import FixedTime
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.plan import Plan
from flow.engine.tables.table_files import TableVersion
from flow.instants import Moment
from flow.testing import TestingSink, TestingSource
from tests.engine.feed.test_feed import NOON, START, Doubting, Script, make_feed, slices
from tests.support.feeding import feed_of


def test_an_undone_epoch_of_before_a_table_was_added_is_planned_anew() -> None:
    a = replace(make_feed(Script(slices(1))).next(START), at={"items": 1})
    b = replace(a, at={"items": 2})
    feed = feed_of(with_table(Script()), FixedTime(NOON), plan=table_flow(), undone=[a, b])
    assert feed.next(a).at == {"items": 1}


def test_an_interrupted_epoch_of_before_a_table_was_added_sees_the_table() -> None:
    begun = make_feed(Script(slices(1))).next(START)
    assert begun.control is not None
    control = TestingSource([("a", 1), ("b", 2)], batch_size=1).planner(MemoryLog(), 1)
    feed = feed_of(with_table(control), FixedTime(NOON), plan=table_flow(("a", 1), ("b", 2)))
    fitted = feed.fitted(begun)
    tables = {"known": TableVersion(1, 1)}
    assert fitted == replace(begun, control=replace(begun.control, tables=tables))
    assert len(feed.tables.contents["known"]) == 2


def test_an_interrupted_epoch_skips_an_input_that_feeds_a_table_now() -> None:
    begun = replace(START, control=Control(Moment(NOON)), at={"changes": 1})
    begun = replace(begun, read=(("changes", Split("piece")),))
    feed = feed_of(with_table(Script()), FixedTime(NOON), plan=table_flow())
    assert feed.readings(START, begun) == []


def with_table(control: Planner) -> dict[str, Planner]:
    return {"changes": control, "items": Script(slices(1))}


def table_flow(*rows: tuple[str, int]) -> Plan:
    flow = Dataflow("table")
    changes, items = (op.input(name, flow, TestingSource([*rows])) for name in ("changes", "items"))
    known = op.table("known", changes)
    op.output("out", op.map_with("map", items, known, lambda item, _: item), TestingSink([]))
    return compile_flow(flow)


def test_items_wait_for_the_changes_of_a_table_whose_source_is_in_doubt() -> None:
    control = Doubting()
    feed = feed_of(with_table(control), FixedTime(NOON), plan=table_flow())
    assert feed.next(START) is START
    control.doubts = False
    assert [name for name, _ in feed.next(START).read] == ["items"]
