"""Kills of flows with tables and with async calls, and the runs that recover.

An epoch of such a flow does, in this order: it reads the changes, writes the new version of each
table, reads the sources of lookup tables that are due, logs the plan with the versions, and makes
its calls in tasks.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import recovery
from tests.faults.conftest import ALIKE, Golden, Watch
from tests.faults.market_runs import EDITIONS, STEPS_WITH_CALLS, Market, new_market
from tests.faults.shop import Size
from tests.faults.stores_child import KEEP_EPOCHS, TABLE_KEYS
from tests.support.faults import Child, assert_same, lines_in

pytestmark = [pytest.mark.spark, pytest.mark.extended, pytest.mark.timeout(900)]

SIZE = Size(hours=2, epochs=6)
EPOCH = 4
"""An epoch in which the lookup table is read anew, after 12 minutes."""
TRADE = 88
"""A trade of that epoch."""
EPOCHS = 30
"""Epochs of the flow of limits."""


@pytest.fixture(scope="module")
def left_alone(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Market:
    """A market that no fault has struck."""
    market = new_market(tmp_path_factory.mktemp("market"), size=SIZE)
    market.run_here(spark)
    market.check()
    return market


@pytest.fixture(scope="module")
def golden(left_alone: Market, spark: SparkSession) -> Golden:
    return Golden(left_alone.results(), left_alone.state(spark))


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return new_market(tmp_path, size=SIZE, options=ALIKE)


@pytest.mark.parametrize(
    ("point", "at", "logged"),
    [
        ("changes", EPOCH, EPOCH - 1),
        ("look up", 1, EPOCH - 1),
        ("read", EPOCH, EPOCH),
        ("before call", TRADE, EPOCH),
        ("after call", TRADE, EPOCH),
        ("level 2", TRADE, EPOCH),
        ("before commit log", EPOCH, EPOCH),
        ("after outputs", EPOCH, EPOCH),
    ],
)
def test_a_replay_sees_the_versions_and_makes_the_calls_of_the_killed_epoch(
    point: str,
    at: int,
    logged: int,
    market: Market,
    left_alone: Market,
    golden: Golden,
    spark: SparkSession,
    watched: Watch,
) -> None:
    watched(market.start_struck(point, at)).die()
    assert (market.logged("offsets"), market.logged("commits")) == (logged, EPOCH - 1)
    read = len(list((market.home / "editions").iterdir()))
    before = {step: market.calls(step) for step in STEPS_WITH_CALLS}

    market.run_here(spark)
    assert_same(market.results(), golden.results)
    assert market.state(spark) == golden.state
    market.check()
    if logged == EPOCH:
        assert seen_editions(market, EPOCH) == {edition_at(market, EPOCH, spark)} == {read - 1}
    for step in STEPS_WITH_CALLS:
        assert market.calls(step).keys() == left_alone.calls(step).keys(), "the same identities"
        again = {call for call, made in market.calls(step).items() if len(made) > 1}
        assert again <= before[step].keys(), "only calls of the killed epoch were repeated"
    if point == "after call":
        (call,) = [call for call, made in before["charged"].items() if TRADE in made]
        assert market.calls("charged")[call] == [TRADE, TRADE]


def seen_editions(market: Market, epoch: int) -> set[int]:
    """Return the editions in the outputs of an epoch."""
    lines = lines_in(market.home / "out" / "log", f"epoch={epoch:08d}-*")
    return {line["edition"] for line in lines if line["what"] in EDITIONS}


def edition_at(market: Market, epoch: int, spark: SparkSession) -> int:
    """Return the edition in the version of the table that an epoch logged."""
    file = market.home / "edition.parquet"
    recovery.export(market.checkpoint, "editions", file, epoch=epoch, spark=spark)
    (row,) = pq.read_table(file).to_pylist()
    return int(row["value"])


def limits(home: Path) -> list[dict[str, Any]]:
    """Return the output of the flow of limits, in the order of its items."""
    return sorted(map(dict, lines_in(home / "out")), key=lambda line: line["n"])


EXPECTED = [
    {"kind": f"kind {n % 2}", "n": n, "count": n // 2 + 1}
    | {"limit": n, "again": n, "keys": min(n + 1, TABLE_KEYS) + 1}
    for n in range(EPOCHS)
]


@pytest.mark.parametrize(
    ("point", "at"),
    [
        ("before write", 7),
        ("after write", 7),
        ("before removal", 1),
        ("after removal", 1),
        ("after removal", 3),
        ("before removal", 6),
    ],
)
def test_a_kill_while_files_of_a_table_are_written_or_removed_loses_no_version(
    point: str, at: int, spark: SparkSession, tmp_path: Path, watched: Watch
) -> None:
    watched(start(tmp_path, point, at)).die()
    checkpoint = tmp_path / "checkpoint"
    assert recovery.verify(checkpoint, spark=spark) == []
    before = lines_in(tmp_path / "out")
    assert 0 < len(before) < EPOCHS
    watched(start(tmp_path, "nowhere", 0)).finish()
    assert limits(tmp_path) == EXPECTED
    assert recovery.verify(checkpoint, spark=spark) == []

    oldest, *_ = recovery.status(checkpoint, spark=spark).epochs
    recovery.rewind(checkpoint, oldest, yes=True, spark=spark)
    watched(start(tmp_path, "nowhere", 0)).finish()
    assert limits(tmp_path) == EXPECTED


def test_files_of_versions_that_no_run_can_need_are_removed_after_a_kill(
    spark: SparkSession, tmp_path: Path, watched: Watch
) -> None:
    watched(start(tmp_path, "before removal", 2)).die()
    watched(start(tmp_path, "nowhere", 0)).finish()
    files = sorted(file.name for file in (tmp_path / "checkpoint" / "tables" / "limits").iterdir())
    last = recovery.status(tmp_path / "checkpoint", spark=spark).tables[0].version
    assert last == EPOCHS
    assert min(map(number_of, files)) > EPOCHS // 3, files
    assert len(files) < EPOCHS - KEEP_EPOCHS


def number_of(file: str) -> int:
    return int(file.partition(".")[0])


def start(home: Path, point: str, at: int) -> Child:
    command = [sys.executable, "-m", "tests.faults.stores_child", str(home), "table"]
    return Child.start([*command, str(EPOCHS), point, str(at)], home)
