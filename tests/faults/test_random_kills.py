"""Runs killed at random moments, as `benchmarks/kill_test.py` kills them for hours."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.conftest import ALIKE
from tests.faults.killing import Killer, Tally, kill_until_done
from tests.faults.market_runs import Market
from tests.faults.shop import Size
from tests.faults.tools import ToolUser
from tests.support.faults import Shop, assert_same, no_leftovers

pytestmark = [pytest.mark.spark, pytest.mark.extended, pytest.mark.timeout(1_800)]

SIZES = {Shop: Size(hours=4, epochs=8), Market: Size(hours=2, epochs=6)}
KILLS = 8
SEED = int(os.environ.get("FAULTS_SEED", "1"))
"""Where the kills fall, as far as that can be repeated."""


def test_random_kills_lose_and_double_nothing(spark: SparkSession, tmp_path: Path) -> None:
    print(f"FAULTS_SEED={SEED}")  # noqa: T201  (shown when the test fails)
    golden = new_shop(tmp_path / "golden")
    golden.run_here(spark, drain=True)
    killer, tally = Killer(random.Random(SEED)), Tally()
    while len(tally.kills) < KILLS:
        shop = new_shop(tmp_path / str(tally.finished))
        with no_leftovers() as children:
            kill_until_done(shop, killer, children, tally, KILLS)
        tally.finished += 1
        assert_same(shop.results(), golden.results())
    print(*tally.lines(), sep="\n")  # noqa: T201


@pytest.mark.parametrize("kind", [Shop, Market])
def test_random_kills_of_runs_and_tools_lose_and_double_nothing(
    kind: type[Shop], spark: SparkSession, tmp_path: Path
) -> None:
    print(f"FAULTS_SEED={SEED}")  # noqa: T201  (shown when the test fails)
    golden, killed = (new_shop(tmp_path / name, kind) for name in ("golden", "killed"))
    golden.run_here(spark)
    killed.options = ALIKE
    rng, tally = random.Random(SEED), Tally()
    with no_leftovers() as children:
        user = ToolUser(rng, killed, children, tally, KILLS)
        kill_until_done(killed, Killer(rng), children, tally, KILLS, between=user.use)
    print(*tally.lines(), sep="\n")  # noqa: T201
    assert_same(killed.results(), golden.results())
    assert killed.state(spark) == golden.state(spark)
    killed.check()


def new_shop(home: Path, kind: type[Shop] = Shop) -> Shop:
    home.mkdir()
    shop = kind(home, SIZES[kind])
    shop.write_inputs()
    return shop
