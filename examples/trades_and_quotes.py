"""Trades and quotes: an as-of join, which finds the quote that was valid as a trade took place.

The partner of a trade is the last quote of its symbol at or before it, at most a minute old. A
quote without a bid ends the one before it: trading is halted. Feeds arrive in any order; the clock
waits two seconds, and each trade leaves once, when no quote can change its pair any more.

Run it; `TestDriver` needs no Spark:

    python examples/trades_and_quotes.py

It prints:

    at 14:30:06
      ACME 100 at 20.02: 0.02 above the bid
    at 14:30:10
      ACME 50 at 20.05: 0.01 above the bid
      ZETA 10 at 7.5: no quote
    at the end
      ACME 70 at 20.1: no quote
"""

from __future__ import annotations

from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource

Row = dict[str, Any]
Quoted = tuple[str, tuple[win.WindowMetadata, tuple[Row, float | None]]]

START = "2024-05-01T14:30:06Z"
FIRST: dict[str, list[Row]] = {
    "quotes": [
        {"symbol": "ACME", "at": "2024-05-01T14:30:01Z", "bid": 20.00},
        {"symbol": "ACME", "at": "2024-05-01T14:30:04Z", "bid": 20.04},
    ],
    "trades": [
        {"symbol": "ACME", "at": "2024-05-01T14:30:03Z", "price": 20.02, "size": 100},
        {"symbol": "ACME", "at": "2024-05-01T14:30:06Z", "price": 20.05, "size": 50},
        {"symbol": "ZETA", "at": "2024-05-01T14:30:06Z", "price": 7.50, "size": 10},
    ],
}
SECOND: dict[str, list[Row]] = {
    "trades": [{"symbol": "ACME", "at": "2024-05-01T14:30:09Z", "price": 20.10, "size": 70}],
    "quotes": [{"symbol": "ACME", "at": "2024-05-01T14:30:08.500Z", "bid": None}],
}


def in_words(item: Quoted) -> str:
    """Describe a trade and its distance from the bid at its time."""
    symbol, (_, (trade, bid)) = item
    sold = f"{symbol} {trade['size']} at {trade['price']}"
    return (
        f"{sold}: no quote" if bid is None else f"{sold}: {trade['price'] - bid:.2f} above the bid"
    )


graph = Dataflow("trades_and_quotes")
trades = op.input("trades", graph, TestingSource(list[Row]()))
quotes = op.input("quotes", graph, TestingSource(list[Row]()))
quoted = win.join_asof(
    "quoted",
    op.key_on("trades_by_symbol", trades, "symbol"),
    op.key_on("quotes_by_symbol", quotes, "symbol"),
    clock=win.EventClock("at", wait_for_system_duration="2s"),
    tolerance="1m",
    right_value="bid",
)
op.output("out", op.map("in_words", quoted.down, in_words), TestingSink([]))


def main() -> None:
    """Run the flow over some seconds and print its output."""
    with TestDriver(graph, now=START) as driver:
        driver.send_all(FIRST)
        show("at 14:30:06", driver)
        driver.advance("4s")
        driver.send_all(SECOND)
        show("at 14:30:10", driver)
        driver.end()
        show("at the end", driver)


def show(heading: str, driver: TestDriver) -> None:
    """Print the output since the last call, in order of symbols."""
    print(heading)
    for line in sorted(driver.take("out")):
        print(f"  {line}")


if __name__ == "__main__":
    main()
