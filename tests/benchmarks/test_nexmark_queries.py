"""Results of the Nexmark queries on small examples, compared with DuckDB, and on Spark."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from benchmarks.nexmark.answers import ANSWERS, WrongResultError, check
from benchmarks.nexmark.auction_house import BASE_TIME, SHARES, AuctionHouse
from benchmarks.nexmark.measuring import Settings, measure
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.tables import Tables
from flow.connectors.sink import to_record
from flow.testing import TestDriver, TestingSink, TestingSource

Row = dict[str, Any]
Events = Mapping[str, list[Row]]

needs_duckdb = pytest.mark.skipif(
    importlib.util.find_spec("duckdb") is None, reason="DuckDB is not installed"
)
EVENTS = 5_000
HOUSE = AuctionHouse(seed=7, rate=100)
"""Its events take 50 seconds: five windows of ten."""


def at(second: float) -> datetime:
    return BASE_TIME + timedelta(seconds=second)


def second_of(instant: datetime) -> float:
    return (instant - BASE_TIME).total_seconds()


def query_rows(name: str, epochs: Iterable[Events], between: str = "0s") -> list[Row]:
    """Run a query over epochs in process, and return its results as the rows of a table."""
    flow = QUERIES[name].flow(lambda table, columns: TestingSource([]), TestingSink([]))
    with TestDriver(flow, now=BASE_TIME) as driver:
        for tables in epochs:
            driver.send_all(tables)
            driver.advance(between)
        driver.end()
        return [to_record(item) for item in driver.received("out")]


def bids(*fields: tuple[str, str, int, float]) -> Events:
    names = ("auction", "bidder", "price")
    rows = [dict(zip(names, bid[:3], strict=True), date_time=at(bid[3])) for bid in fields]
    return {"bid": rows}


def test_q5_finds_the_auctions_with_the_most_bids_of_each_window() -> None:
    # second   0  1  2  3  4  5  6  7  8  9 10 11
    # A           *     *
    # B                 *  *                    *
    went = bids(
        ("A", "u", 1, 1), ("A", "u", 1, 3), ("B", "u", 1, 3), ("B", "u", 1, 4), ("B", "u", 1, 11)
    )
    rows = query_rows("q5", [went])
    hot = sorted((second_of(row["starttime"]), row["auction"], row["bids"]) for row in rows)
    first, last = [(-8, "A", 1), (-6, "A", 2)], [(6, "B", 1), (8, "B", 1), (10, "B", 1)]
    both = [(-4, "A", 2), (-4, "B", 2), (-2, "A", 2), (-2, "B", 2), (0, "A", 2), (0, "B", 2)]
    assert hot == [*first, *both, (2, "B", 3), (4, "B", 2), *last]


def test_q7_finds_all_bids_with_the_highest_price_of_each_window() -> None:
    went = [("A", "u", 5, 1), ("B", "v", 9, 2), ("A", "w", 9, 3), ("A", "x", 9, 4)]
    rows = query_rows("q7", [bids(*went, ("A", "y", 8, 5), ("B", "u", 4, 10))])
    assert sorted((second_of(row["date_time"]), row["bidder"], row["price"]) for row in rows) == [
        (2, "v", 9),
        (3, "w", 9),
        (4, "x", 9),
        (10, "u", 4),
    ]


def test_q8_finds_persons_who_registered_and_sold_within_one_window() -> None:
    # second    0         10        20
    # ann       P    AA   |         |      sells twice, is found once
    # bob         P       A         |      sells too late
    # cat                 | P A     |
    # dan          A      |         |      came long ago
    persons = [("ann", 1), ("bob", 2), ("cat", 12)]
    auctions = [("dan", 3), ("ann", 5), ("ann", 6), ("bob", 10), ("cat", 13)]
    tables = {
        "person": [{"id": name, "name": name.upper(), "date_time": at(s)} for name, s in persons],
        "auction": [{"seller": name, "date_time": at(s)} for name, s in auctions],
    }
    rows = query_rows("q8", [tables])
    assert sorted((row["id"], row["name"], second_of(row["starttime"])) for row in rows) == [
        ("ann", "ANN", 0),
        ("cat", "CAT", 10),
    ]


def test_q11_ends_a_session_after_more_than_ten_seconds_without_a_bid() -> None:
    # second    0         10         21
    # ann       *         *          *
    # bob           *
    went = bids(("A", "ann", 1, 0), ("A", "bob", 1, 4), ("A", "ann", 1, 10), ("A", "ann", 1, 21))
    rows = query_rows("q11", [went])
    sessions = [
        (row["key"], second_of(row["open_time"]), second_of(row["close_time"]), row["bids"])
        for row in rows
    ]
    assert sorted(sessions) == [("ann", 0, 10, 2), ("ann", 21, 21, 1), ("bob", 4, 4, 1)]


def test_q12_counts_by_system_time_not_by_the_times_of_bids() -> None:
    first = bids(("A", "ann", 1, 700), ("A", "bob", 1, 0), ("A", "ann", 1, 3))
    rows = query_rows("q12", [first, bids(("A", "ann", 1, 1))], between="12s")
    windows = [(row["key"], second_of(row["open_time"]), row["bids"]) for row in rows]
    assert sorted(windows) == [("ann", 0, 2), ("ann", 10, 1), ("bob", 0, 1)]


@cache
def events() -> dict[str, list[Row]]:
    return {table: rows.to_pylist() for table, rows in HOUSE.block(0, EVENTS).items()}


def in_epochs(name: str, count: int = 4) -> list[Events]:
    """Return the events that a query reads, in epochs of equal event time."""

    def part(table: str, number: int) -> list[Row]:
        rows = events()[table]
        return rows[number * len(rows) // count : (number + 1) * len(rows) // count]

    return [
        {table: part(table, number) for table in QUERIES[name].reads} for number in range(count)
    ]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("q5", "q11") else pytest.mark.extended)
        for name in QUERIES
    ],
)
def test_results_do_not_depend_on_epoch_boundaries(name: str) -> None:
    def rows(epochs: int) -> list[str]:
        return sorted(map(str, query_rows(name, in_epochs(name, epochs))))

    assert rows(1) == rows(5)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    made = Tables(tmp_path_factory.mktemp("nexmark"), EVENTS, HOUSE)
    made.write()
    return made


def written(rows: list[Row], folder: Path) -> Path:
    """Write rows as a sink would, without columns that hold no information."""
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(rows)
    named = [name for name in table.schema.names if name != "merged_ids"]
    pq.write_table(table.select(named), folder / "rows.parquet")
    return folder


@needs_duckdb
@pytest.mark.parametrize("name", QUERIES)
def test_duckdb_agrees_and_detects_a_wrong_result(
    name: str, tables: Tables, tmp_path: Path
) -> None:
    rows = query_rows(name, in_epochs(name))
    assert len(rows) > 4
    assert check(name, tables.folder, written(rows, tmp_path / "out")) > 4
    with pytest.raises(WrongResultError, match=rf"{name}: 1 rows are missing, such as .* 0 too"):
        check(name, tables.folder, written(rows[1:], tmp_path / "less"))
    with pytest.raises(WrongResultError, match=r"rows are missing.*1 too many, such as"):
        check(name, tables.folder, written([*rows, rows[0]], tmp_path / "twice"))


def test_every_query_has_an_answer() -> None:
    assert list(ANSWERS) == list(QUERIES)
    assert {table for query in QUERIES.values() for table in query.reads} <= set(SHARES)


@pytest.mark.spark
@pytest.mark.extended
def test_a_query_runs_on_spark_with_recovery_and_is_measured(
    spark: SparkSession, tables: Tables
) -> None:
    found: list[tuple[Any, ...]] = []
    messages: list[str] = []

    def look(result: Path) -> None:
        rows = pq.read_table(result, partitioning=None).to_pylist()
        found.extend((row["starttime"], row["auction"], row["bids"]) for row in rows)

    settings = Settings(tables, "streaming", cores=2, epoch_events=EVENTS // 2)
    measurement = measure(QUERIES["q5"], settings, messages.append, look)
    rows = query_rows("q5", in_epochs("q5"))
    assert sorted(found) == sorted((one["starttime"], one["auction"], one["bids"]) for one in rows)
    assert messages[:2] == ["epoch 0: 2,300 rows read", "epoch 1: 4,600 rows read"]
    assert (measurement.rows, measurement.events) == (2_300, 2_500)
    assert 0 < measurement.seconds < measurement.whole_seconds
    assert measurement.core_seconds > 0
