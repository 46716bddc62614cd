"""Takings of each hour, before the hour is over: a trigger, and panes that say what they are.

A till sends its sales at once, or, when it was offline, within ten minutes. While an hour has new
sales, its takings so far appear every fifteen minutes: *early*. They appear at the end of the hour:
*on time*. And they are corrected after each sale that comes in the ten minutes of grace: *late*.

Run it; `TestDriver` needs no Spark:

    python examples/early_takings.py

It prints, with the time at which each line appears:

    11:16 11:00-12:00  30 early
    11:35 11:00-12:00  75 early
    12:00 11:00-12:00  75 on time
    12:03 11:00-12:00  95 late
    12:19 12:00-13:00  10 early
    13:00 12:00-13:00  10 on time
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource

Sale = dict[str, Any]
Takings = tuple[str, tuple[win.WindowMetadata, float]]

ARRIVALS = [
    *(("11:01", "11:01", 30), ("11:20", "11:19", 40), ("11:21", "11:21", 5)),
    *(("12:03", "11:50", 20), ("12:04", "12:04", 10)),
]
"""Sales: when each arrives, when it was made, and its amount."""


def in_words(item: Takings) -> str:
    """Describe the takings of an hour, and how final they are."""
    _, (hour, amount) = item
    timing = "" if hour.pane is None else hour.pane.timing.value.replace("_", " ")
    return f"{hour.open_time:%H:%M}-{hour.close_time:%H:%M} {amount:>3} {timing}"


graph = Dataflow("early_takings")
sales = op.input("sales", graph, TestingSource(list[Sale]()))
takings = win.sum_window(
    "takings",
    op.key_on("by_shop", sales, "shop"),
    win.EventClock("at", wait_for_system_duration="0s"),
    win.TumblingWindower("1h", grace="10m"),
    by="amount",
    emit=win.AfterWatermark(early=win.Early(every="15m"), late=win.Late(count=1)),
)
op.output("out", op.map("in_words", takings.down, in_words), TestingSink([]))


def main() -> None:
    """Run the flow for two hours, minute by minute, and print its output."""
    now = datetime.fromisoformat("2024-05-01T11:00:00+00:00")
    with TestDriver(graph, now=now) as driver:
        for _ in range(125):
            now += timedelta(minutes=1)
            driver.advance("1m")
            for arrives, at, amount in ARRIVALS:
                if arrives == f"{now:%H:%M}":
                    sale = {"shop": "Oslo", "at": f"2024-05-01T{at}:00Z", "amount": amount}
                    driver.send("sales", [sale])
            for line in driver.take("out"):
                print(f"{now:%H:%M} {line}")


if __name__ == "__main__":
    main()
