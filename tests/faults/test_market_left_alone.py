"""Output of the market without faults: it has all that runs with faults must keep."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.faults.market_inputs import ACCOUNTS, SYMBOLS
from tests.faults.market_runs import STEPS_WITH_CALLS, Market, new_market
from tests.faults.shop import Size
from tests.support.faults import lines_in

pytestmark = [pytest.mark.spark, pytest.mark.extended, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def market(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Market:
    market = new_market(tmp_path_factory.mktemp("market"), size=Size(hours=2, epochs=6))
    market.run_here(spark)
    return market


@pytest.fixture(scope="module")
def lines(market: Market) -> dict[str, list[Any]]:
    """The records of the log by kind."""
    by_kind = defaultdict[str, list[Any]](list)
    for line in lines_in(market.home / "out" / "log"):
        by_kind[line["what"]].append(line)
    return by_kind


def records(market: Market, name: str) -> Iterator[dict[str, Any]]:
    files = sorted((market.home / name).rglob("*.jsonl"))
    lines = chain.from_iterable(file.read_text("utf-8").splitlines() for file in files)
    return map(json.loads, lines)


def test_each_kind_of_record_is_in_the_log(lines: dict[str, list[Any]]) -> None:
    assert set(lines) == {
        *("call", "edition", "edition again", "late", "pair", "piece", "run", "run over"),
        *("site", "spread", "spreads", "streak", "streak over", "top"),
    }


def test_panes_are_early_on_time_and_late(market: Market, lines: dict[str, list[Any]]) -> None:
    panes = Counter(json.loads(row)["pane_timing"] for row in market.results().rows)
    assert set(panes) == {"early", "on_time", "late"}
    assert {piece["pane_timing"] for piece in lines["piece"]} >= {"early", "on_time"}


def test_each_trade_is_charged_once_and_sees_the_limit_of_its_epoch(
    market: Market, lines: dict[str, list[Any]]
) -> None:
    trades = {trade["n"] for trade in records(market, "trades")}
    for step, numbers in zip(STEPS_WITH_CALLS, (trades, None), strict=True):
        made = list(chain.from_iterable(market.calls(step).values()))
        assert len(set(made)) == len(made) > 0
        assert numbers is None or set(made) == numbers
    limits = [trade["limit"] for trade in lines["streak"]]
    assert [trade["limit_again"] for trade in lines["streak"]] == limits
    assert {None, 0, 1, 2} < set(limits)


def test_a_trade_that_is_reported_twice_passes_once(
    market: Market, lines: dict[str, list[Any]]
) -> None:
    times = Counter(trade["id"] for trade in records(market, "trades"))
    assert max(times.values()) > 1
    assert Counter(trade["id"] for trade in lines["streak"]) == Counter(times.keys())


def test_each_trade_leaves_a_join_once_or_is_late_or_waits(
    market: Market, spark: SparkSession, lines: dict[str, list[Any]]
) -> None:
    trades = Counter(trade["n"] for trade in records(market, "trades"))
    waiting = Counter(
        value["n"]
        for (step, key), state in market.state(spark).items()
        if step == "quoted" and key
        for value in values_in(state)
        if "price" in value
    )
    late = Counter(
        line["value"]["n"]
        for line in lines["late"]
        if line["step"] == "quoted" and line["side"] == 0
    )
    quoted = Counter(line["n"] for line in lines["spread"])
    assert quoted + late + waiting == trades


def values_in(state: Any) -> Iterator[dict[str, Any]]:
    """Yield the records anywhere in a state."""
    if isinstance(state, dict) and "n" in state:
        yield state
    elif isinstance(state, dict):
        yield from chain.from_iterable(map(values_in, state.values()))
    elif isinstance(state, (list, tuple)):
        yield from chain.from_iterable(map(values_in, state))
    elif hasattr(state, "__dict__"):
        yield from values_in(list(vars(state).values()))


def test_tables_and_keyed_steps_keep_state_while_the_market_is_open(
    market: Market, spark: SparkSession
) -> None:
    kept = Counter(step for step, key in market.state(spark) if key)
    for step in ("once", "runs", "panes", "pieces", "paired", "quoted", "streaks"):
        assert 0 < kept[step] <= SYMBOLS, step
    assert kept["limits"] == SYMBOLS - 1
    assert kept["fees"] == ACCOUNTS
    assert min(kept["site.partial"], kept["top.by_key"], kept["spreads"]) > 0
