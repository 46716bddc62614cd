"""Output of the shop and of the market without faults: what runs with faults must keep."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.faults.conftest import SMALL, Golden
from tests.faults.market_inputs import ACCOUNTS, SYMBOLS
from tests.faults.market_runs import STEPS_WITH_CALLS, Market, new_market
from tests.faults.shop import TOWNS, USERS, Size, write_inputs
from tests.support.faults import lines_in

pytestmark = [pytest.mark.spark, pytest.mark.extended, pytest.mark.timeout(900)]
Records = list[dict[str, Any]]


def records(folder: Path) -> Records:
    """Return the records of an input."""
    files = sorted(folder.rglob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def by_kind(lines: Iterator[Any]) -> dict[str, Records]:
    """Return the records of a log by kind."""
    found: dict[str, Records] = defaultdict(list)
    for line in lines:
        found[line["what"]].append(line)
    return found


def records_in(state: Any) -> Iterator[dict[str, Any]]:
    """Yield the records anywhere in a state."""
    if isinstance(state, dict) and "n" in state:
        yield state
    elif isinstance(state, dict):
        yield from records_in(list(state.values()))
    elif isinstance(state, (list, tuple)):
        yield from chain.from_iterable(map(records_in, state))
    elif hasattr(state, "__dict__"):
        yield from records_in(list(vars(state).values()))


# --- the shop ---------------------------------------------------------------------------------


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Records]:
    write_inputs(tmp_path, SMALL)
    return {name: records(tmp_path / name) for name in ("clicks", "orders")}


@pytest.fixture
def lines(golden: Golden) -> dict[str, Records]:
    return by_kind(map(json.loads, golden.results.log.elements()))


def states_of(golden: Golden, step_id: str) -> list[Any]:
    """Return the state of each key of a step, without the progress of its shards."""
    return [state[0] for (step, key), state in golden.state.items() if step == step_id and key]


def test_each_click_is_in_a_visit_or_late_or_still_in_state(
    golden: Golden, lines: dict[str, Records], inputs: dict[str, Records]
) -> None:
    visited = [n for visit in lines["visit"] for n, _ in visit["pages"]]
    late = [row["value"]["n"] for row in lines["late"] if row["key"].startswith("user")]
    kept = states_of(golden, "visits")
    assert len(kept) == USERS
    waiting = [one.value["n"] for state in kept if state.waiting for one in state.waiting[0]]
    opened = [n for state in kept for (pages,) in state.windows.values() for n, _ in pages]
    clicks = {click["n"] for click in inputs["clicks"]}
    assert sorted([*visited, *late, *waiting, *opened]) == sorted(clicks)
    assert min(len(visited), len(late), len(waiting), len(opened)) > 0


def test_amounts_are_summed_and_events_are_numbered_in_order(
    lines: dict[str, Records], inputs: dict[str, Records]
) -> None:
    spent: dict[str, int] = defaultdict(int)
    sums = {}
    for order in inputs["orders"]:
        spent[order["user"]] += order["amount"]
        sums[order["n"]] = spent[order["user"]]
    assert {order["n"]: order["spent"] for order in lines["order"]} == sums
    numbers: dict[str, list[int]] = defaultdict(list)
    for row in [*lines["order"], *lines["visit"]]:
        numbers[row["town"]].append(row["number"])
    assert len(numbers) == TOWNS
    for of_town in numbers.values():
        assert sorted(of_town) == list(range(1, len(of_town) + 1))


def test_joins_emit_pairs_and_keep_state(
    golden: Golden, lines: dict[str, Records], inputs: dict[str, Records]
) -> None:
    hours = [json.loads(row) for row in golden.results.rows.elements()]
    assert len({(row["town"], row["hour"]) for row in hours}) == len(hours) > TOWNS
    assert any("visitor" in row and "buyer" in row for row in hours)
    clicks, orders = ({one["n"]: one["user"] for one in rows} for rows in inputs.values())
    for pair in lines["pair"]:
        assert pair["user"] == clicks[pair["click"]] == orders[pair["order"]]
    pairs = lines["pair"]
    assert len({pair["order"] for pair in pairs}) == len(pairs) > USERS
    sides = [state.sides for state in states_of(golden, "led_to")]
    assert any(clicks and not orders for clicks, orders in sides)
    assert (len(states_of(golden, "hours")), len(sides) <= USERS) == (TOWNS, True)


# --- the market -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def market(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Market:
    market = new_market(tmp_path_factory.mktemp("market"), size=Size(hours=2, epochs=6))
    market.run_here(spark)
    return market


@pytest.fixture(scope="module")
def log(market: Market) -> dict[str, Records]:
    return by_kind(iter(lines_in(market.home / "out" / "log")))


def test_each_kind_of_record_and_of_pane_is_in_the_output(
    market: Market, log: dict[str, Records]
) -> None:
    assert set(log) == {
        *("call", "edition", "edition again", "late", "pair", "piece", "run", "run over"),
        *("site", "spread", "spreads", "streak", "streak over", "top"),
    }
    panes = Counter(json.loads(row)["pane_timing"] for row in market.results().rows)
    assert set(panes) == {"early", "on_time", "late"}
    assert {piece["pane_timing"] for piece in log["piece"]} >= {"early", "on_time"}


def test_each_trade_passes_and_is_charged_once_and_sees_the_limit_of_its_epoch(
    market: Market, log: dict[str, Records]
) -> None:
    trades = records(market.home / "trades")
    for step in STEPS_WITH_CALLS:
        made = list(chain.from_iterable(market.calls(step).values()))
        assert len(set(made)) == len(made) > 0
        assert step != "charged" or set(made) == {trade["n"] for trade in trades}
    times = Counter(trade["id"] for trade in trades)
    assert max(times.values()) > 1, "some trades are reported twice"
    assert Counter(trade["id"] for trade in log["streak"]) == Counter(times.keys())
    limits = [trade["limit"] for trade in log["streak"]]
    assert [trade["limit_again"] for trade in log["streak"]] == limits
    assert {None, 0, 1, 2} < set(limits)


def test_each_trade_leaves_a_join_once_or_is_late_or_waits(
    market: Market, spark: SparkSession, log: dict[str, Records]
) -> None:
    states = [
        state for (step, key), state in market.state(spark).items() if step == "quoted" and key
    ]
    late = [
        line["value"]["n"] for line in log["late"] if (line["step"], line["side"]) == ("quoted", 0)
    ]
    quoted = [line["n"] for line in log["spread"]]
    trades = [trade["n"] for trade in records(market.home / "trades")]
    waiting = [record["n"] for record in records_in(states) if "price" in record]
    assert sorted([*quoted, *late, *waiting]) == sorted(trades)


def test_tables_and_keyed_steps_keep_state_while_the_market_is_open(
    market: Market, spark: SparkSession
) -> None:
    kept = Counter(step for step, key in market.state(spark) if key)
    for step in ("once", "runs", "panes", "pieces", "paired", "quoted", "streaks"):
        assert 0 < kept[step] <= SYMBOLS, step
    assert kept["limits"] == SYMBOLS - 1
    assert kept["fees"] == ACCOUNTS
    assert min(kept["site.partial"], kept["top.by_key"], kept["spreads"]) > 0
