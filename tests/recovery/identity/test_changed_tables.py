"""Changes of tables between two runs on a checkpoint."""

from __future__ import annotations

from typing import Any

import flow.operators as op
from flow import Dataflow
from flow.engine.plan.compiler import compile_flow
from flow.testing import TestingSink, TestingSource
from recovery.identity.admitting import admit
from recovery.identity.fingerprint import Change, Effect, compare, fingerprint


def plan(**table: Any) -> Any:
    flow = Dataflow("rules")
    items = op.input("items", flow, TestingSource([]))
    if table:
        rules = op.table("rules", op.input("changes", flow, TestingSource([])), **table)
        items = op.map_with("score", items, rules, max)
    op.output("out", items, TestingSink([]))
    return compile_flow(flow)


def changes(before: Any, now: Any) -> list[Change]:
    return compare(fingerprint(before), fingerprint(now))


def test_another_key_of_a_table_does_not_fit_its_versions() -> None:
    (change,) = changes(plan(key="id"), plan(key="name"))
    assert (change.step_id, change.effect) == ("rules", Effect.WRONG_STATE)


def test_a_size_limit_may_change() -> None:
    assert changes(plan(key="id"), plan(key="id", max_bytes=1)) == []


def test_a_new_table_starts_empty_and_a_removed_one_is_left() -> None:
    assert ("rules", Effect.STARTS_EMPTY) in [
        (one.step_id, one.effect) for one in changes(plan(), plan(key="id"))
    ]
    assert changes(plan(key="id"), plan()) == []


def test_a_checkpoint_of_a_version_without_tables_fits() -> None:
    before = {name: one for name, one in fingerprint(plan()).items() if name != "tables"}
    assert compare(before, fingerprint(plan())) == []


def test_a_table_that_is_reset_gets_a_folder_of_its_own() -> None:
    first = admit(None, plan(key="id"), "checkpoint", (), drop_removed=False)
    reset = admit(first.kept, plan(key="name"), "checkpoint", ["rules"], drop_removed=False)
    assert reset.names == {"rules": '["rules", 1]'}
