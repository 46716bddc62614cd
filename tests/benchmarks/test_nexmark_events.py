"""Events of the Nexmark auctions: their shares, hot keys and reproducibility."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.nexmark.auction_house import BASE_TIME, AuctionHouse
from benchmarks.nexmark.tables import Tables
from flow.testing import run_source

EVENTS = 50_000


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    return AuctionHouse(seed=3, rate=1_000).block(0, EVENTS)


def numbers(column: pa.ChunkedArray) -> list[int]:
    """The numbers, from 0, of persons or auctions whose ids are in a column."""
    return [int(text) - 1_000 for text in column.to_pylist()]


def second_of(row: dict[str, Any]) -> float:
    seconds: float = (row["date_time"] - BASE_TIME).total_seconds()
    return seconds


def test_fifty_events_are_one_person_three_auctions_and_46_bids(
    tables: dict[str, pa.Table],
) -> None:
    rows = {name: table.num_rows for name, table in tables.items()}
    assert rows == {"person": 1_000, "auction": 3_000, "bid": 46_000}


def test_events_come_in_order_and_evenly_spaced(tables: dict[str, pa.Table]) -> None:
    first = {
        name: [second_of(row) for row in tables[name].slice(0, 4).to_pylist()] for name in tables
    }
    assert first == {
        "person": [0.0, 0.05, 0.1, 0.15],
        "auction": [0.001, 0.002, 0.003, 0.051],
        "bid": [0.004, 0.005, 0.006, 0.007],
    }
    last = tables["bid"]["date_time"].to_pylist()[-1]
    assert last == BASE_TIME + timedelta(seconds=49.999)


def test_ids_are_text_and_count_from_a_thousand(tables: dict[str, pa.Table]) -> None:
    assert tables["person"]["id"].to_pylist()[:2] == ["1000", "1001"]
    assert numbers(tables["person"]["id"]) == list(range(1_000))
    assert numbers(tables["auction"]["id"]) == list(range(3_000))


def test_most_bids_and_auctions_are_of_the_hot_auction_and_the_hot_persons(
    tables: dict[str, pa.Table],
) -> None:
    hot = sum(number % 100 == 0 for number in numbers(tables["bid"]["auction"]))
    # The half that is not may hit it, too, once in a hundred times.
    assert 0.49 < hot / 46_000 < 0.52
    bidders, sellers = numbers(tables["bid"]["bidder"]), numbers(tables["auction"]["seller"])
    assert 0.74 < sum(number % 100 == 1 for number in bidders) / 46_000 < 0.77
    assert 0.72 < sum(number % 100 == 0 for number in sellers) / 3_000 < 0.79


def test_bids_are_for_auctions_in_flight_and_by_the_newest_persons(
    tables: dict[str, pa.Table],
) -> None:
    for bid, row in enumerate(tables["bid"].select(["auction", "bidder"]).to_pylist()):
        newest_auction, newest_person = bid // 46 * 3 + 2, bid // 46
        assert newest_auction - 100 <= int(row["auction"]) - 1_000 <= newest_auction + 10
        assert newest_person - 1_000 < int(row["bidder"]) - 1_000 <= newest_person + 10


def test_prices_are_spread_over_six_powers_of_ten(tables: dict[str, pa.Table]) -> None:
    prices = tables["bid"]["price"].to_pylist()
    assert min(prices) >= 100
    assert max(prices) <= 100_000_000
    for power in range(2, 8):
        share = sum(10**power <= price < 10 ** (power + 1) for price in prices) / len(prices)
        assert 0.15 < share < 0.18


def test_a_seed_determines_the_events() -> None:
    first, again, other = (AuctionHouse(seed).block(1_000, 500) for seed in (1, 1, 2))
    for name in first:
        assert first[name].equals(again[name])
    assert not first["bid"].equals(other["bid"])


def test_files_are_made_again_only_for_other_settings(tmp_path: Path) -> None:
    messages: list[str] = []
    for events in (1_000, 1_000, 500):
        Tables(tmp_path, events, AuctionHouse()).write(messages.append)
    assert messages == ["0 of 1,000 events are made", "0 of 500 events are made"]
    source = Tables(tmp_path, 500, AuctionHouse()).source("auction", ["seller"], epoch_events=100)
    assert source.rows_per_epoch == 6
    rows = run_source(source)
    expected = AuctionHouse().block(0, 500)["auction"].select(["seller"])
    assert rows == expected.to_pylist()
