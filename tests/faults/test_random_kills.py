"""Runs killed at random moments, as `benchmarks/kill_test.py` kills them for hours."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.conftest import ALIKE
from tests.faults.killing import Killer, Tally, kill_until_done
from tests.faults.market_runs import new_market
from tests.faults.shop import Size
from tests.faults.tools import ToolUser
from tests.support.faults import Shop, assert_same, no_leftovers

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_800)]

SIZE = Size(hours=4, epochs=8)
MARKET_SIZE = Size(hours=2, epochs=6)
SEED = int(os.environ.get("FAULTS_SEED", "1"))
"""Where the kills fall, as far as that can be repeated."""


@pytest.mark.parametrize(
    "kills", [pytest.param(3, id="a few"), pytest.param(25, id="many", marks=pytest.mark.extended)]
)
def test_random_kills_lose_and_double_nothing(
    kills: int, spark: SparkSession, tmp_path: Path
) -> None:
    print(f"FAULTS_SEED={SEED}")  # noqa: T201  (shown when the test fails)
    golden = new_shop(tmp_path / "golden")
    golden.run_here(spark, drain=True)
    killer, tally = Killer(random.Random(SEED)), Tally()
    while len(tally.kills) < kills:
        shop = new_shop(tmp_path / str(tally.finished))
        with no_leftovers() as children:
            kill_until_done(shop, killer, children, tally, kills)
        tally.finished += 1
        assert_same(shop.results(), golden.results())
    print(*tally.lines(), sep="\n")  # noqa: T201


@pytest.mark.extended
def test_random_kills_of_runs_and_tools_lose_and_double_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    print(f"FAULTS_SEED={SEED}")  # noqa: T201  (shown when the test fails)
    golden = new_shop(tmp_path / "golden")
    golden.run_here(spark)
    rng, tally, kills = random.Random(SEED), Tally(), 12
    shop = new_shop(tmp_path / "shop")
    shop.options = ALIKE
    with no_leftovers() as children:
        user = ToolUser(rng, shop, children, tally, kills)
        kill_until_done(shop, Killer(rng), children, tally, kills, between=user.use)
    print(*tally.lines(), sep="\n")  # noqa: T201
    assert_same(shop.results(), golden.results())
    assert shop.state(spark) == golden.state(spark)


@pytest.mark.extended
def test_random_kills_of_a_flow_with_tables_calls_and_triggers_lose_and_double_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    print(f"FAULTS_SEED={SEED}")  # noqa: T201  (shown when the test fails)
    golden = new_market(tmp_path / "golden", size=MARKET_SIZE)
    golden.run_here(spark)
    rng, tally, kills = random.Random(SEED), Tally(), 12
    market = new_market(tmp_path / "market", size=MARKET_SIZE, options=ALIKE)
    with no_leftovers() as children:
        user = ToolUser(rng, market, children, tally, kills)
        kill_until_done(market, Killer(rng), children, tally, kills, between=user.use)
    print(*tally.lines(), sep="\n")  # noqa: T201
    assert_same(market.results(), golden.results())
    assert market.state(spark) == golden.state(spark)
    market.check()


def new_shop(home: Path) -> Shop:
    home.mkdir()
    shop = Shop(home, SIZE)
    shop.write_inputs()
    return shop
