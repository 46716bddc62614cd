"""Orders and shipments: an interval join, which finds orders that were not shipped in time.

A shipment belongs to its order if it leaves the warehouse within two days of the order; both have
the order's number as their key. ``how="left"`` also emits each order without such a shipment, once
no shipment in time can come any more. Records may arrive an hour late: the clock waits for them.

Run it; `TestDriver` needs no Spark:

    python examples/orders_and_shipments.py

It prints:

    on 1 May at 16:00
      A1 shipped after 5 h
    on 3 May at 18:00
      A2 not shipped by 3 May, 15:30
      A3 shipped after 23 h
    at the end
      A4 not shipped by 4 May, 12:00
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource

Row = dict[str, Any]
Joined = tuple[str, tuple[win.WindowMetadata, tuple[Row, Row | None]]]

START = "2024-05-01T16:00:00Z"
DAY_ONE: dict[str, list[Row]] = {
    "orders": [
        {"order": "A1", "at": "2024-05-01T11:00:00Z"},
        {"order": "A2", "at": "2024-05-01T15:30:00Z"},
    ],
    "shipments": [{"order": "A1", "at": "2024-05-01T16:00:00Z"}],
}
DAY_THREE: dict[str, list[Row]] = {
    "orders": [
        {"order": "A3", "at": "2024-05-02T18:30:00Z"},
        {"order": "A4", "at": "2024-05-02T12:00:00Z"},
    ],
    "shipments": [{"order": "A3", "at": "2024-05-03T17:30:00Z"}],
}


def in_words(item: Joined) -> str:
    """Describe the shipment of an order, or the time by which it should have been shipped."""
    number, (interval, (order, shipment)) = item
    if shipment is None:
        return f"{number} not shipped by {interval.close_time.day} {interval.close_time:%B, %H:%M}"
    took = datetime.fromisoformat(shipment["at"]) - datetime.fromisoformat(order["at"])
    return f"{number} shipped after {took // timedelta(hours=1)} h"


graph = Dataflow("orders_and_shipments")
orders = op.input("orders", graph, TestingSource(list[Row]()))
shipments = op.input("shipments", graph, TestingSource(list[Row]()))
joined = win.join_interval(
    "shipped",
    op.key_on("orders_by_number", orders, "order"),
    op.key_on("shipments_by_number", shipments, "order"),
    clock=win.EventClock("at", wait_for_system_duration="1h"),
    before="0s",
    after="2d",
    how="left",
)
op.output("out", op.map("in_words", joined.down, in_words), TestingSink([]))


def main() -> None:
    """Run the flow over three days and print its output."""
    with TestDriver(graph, now=START) as driver:
        driver.send_all(DAY_ONE)
        show("on 1 May at 16:00", driver)
        driver.advance("2d2h")
        driver.send_all(DAY_THREE)
        show("on 3 May at 18:00", driver)
        driver.end()
        show("at the end", driver)


def show(heading: str, driver: TestDriver) -> None:
    """Print the output since the last call."""
    print(heading)
    for line in driver.take("out"):
        print(f"  {line}")


if __name__ == "__main__":
    main()
