"""Output of the shop without faults: it has the properties that runs with faults must keep."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import SMALL, Golden
from tests.faults.shop import TOWNS, USERS, write_inputs

pytestmark = [pytest.mark.spark, pytest.mark.extended, pytest.mark.timeout(900)]


def inputs(tmp_path: Path, name: str) -> list[dict[str, Any]]:
    write_inputs(tmp_path, SMALL)
    files = sorted((tmp_path / name).iterdir())
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def lines(golden: Golden, what: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in golden.results.log.elements()]
    return [row for row in rows if row["what"] == what]


def states_of(golden: Golden, step_id: str) -> dict[str, Any]:
    """Return the state of each key of a step, without the progress of its shards."""
    kept = {key: state for (step, key), state in golden.state.items() if step == step_id}
    return {key: state[0] for key, state in kept.items() if key}


def test_each_click_is_in_a_visit_or_late_or_still_in_state(golden: Golden, tmp_path: Path) -> None:
    clicks = {click["n"] for click in inputs(tmp_path, "clicks")}
    visited = [n for visit in lines(golden, "visit") for n, _ in visit["pages"]]
    late = [row["value"]["n"] for row in lines(golden, "late") if row["key"].startswith("user")]
    assert len({*visited, *late}) == len(visited) + len(late)
    kept = states_of(golden, "visits")
    assert len(kept) == USERS
    waiting = [
        one.value["n"] for state in kept.values() if state.waiting for one in state.waiting[0]
    ]
    opened = [n for state in kept.values() for (pages,) in state.windows.values() for n, _ in pages]
    assert sorted([*visited, *late, *waiting, *opened]) == sorted(clicks)
    assert min(len(visited), len(late), len(waiting), len(opened)) > 0


def test_amounts_of_a_user_are_summed_in_order(golden: Golden, tmp_path: Path) -> None:
    spent: dict[str, int] = defaultdict(int)
    sums = {}
    for order in inputs(tmp_path, "orders"):
        spent[order["user"]] += order["amount"]
        sums[order["n"]] = spent[order["user"]]
    assert {order["n"]: order["spent"] for order in lines(golden, "order")} == sums


def test_events_of_a_town_are_numbered_without_a_gap(golden: Golden) -> None:
    numbers: dict[str, list[int]] = defaultdict(list)
    for row in [*lines(golden, "order"), *lines(golden, "visit")]:
        numbers[row["town"]].append(row["number"])
    assert len(numbers) == TOWNS
    for of_town in numbers.values():
        assert sorted(of_town) == list(range(1, len(of_town) + 1))


def test_hours_join_visits_with_orders(golden: Golden) -> None:
    hours = [json.loads(row) for row in golden.results.rows.elements()]
    assert len({(row["town"], row["hour"]) for row in hours}) == len(hours) > TOWNS
    assert any("visitor" in row and "buyer" in row for row in hours)


def test_a_click_matches_an_order_of_its_user_or_waits_for_one(
    golden: Golden, tmp_path: Path
) -> None:
    users = {
        name: {one["n"]: one["user"] for one in inputs(tmp_path / name, name)}
        for name in ("clicks", "orders")
    }
    pairs = lines(golden, "pair")
    assert all(pair["user"] == users["clicks"][pair["click"]] for pair in pairs)
    assert all(pair["user"] == users["orders"][pair["order"]] for pair in pairs)
    assert len({pair["order"] for pair in pairs}) == len(pairs) > USERS
    waiting = states_of(golden, "led_to").values()
    assert any(clicks and not orders for clicks, orders in (state.sides for state in waiting))


def test_both_joins_keep_state_while_the_shop_is_open(golden: Golden) -> None:
    kept = Counter(step for step, key in golden.state if key)
    assert kept["hours"] == TOWNS
    assert 0 < kept["led_to"] <= USERS
