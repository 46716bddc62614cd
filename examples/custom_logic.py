"""Custom logic: an alert when a sensor falls silent.

If no built-in operator fits, ``op.stateful`` runs a `StatefulLogic` for each key. The engine calls
the logic with each value, and at the system time that ``notify_at`` returns, even without a value.
So a flow can report that an event did *not* happen. The logic reads the time from its `Moment`
argument, never from the machine's clock, so a replay gives the same alerts.

Run it; `TestDriver` needs no Spark, and the test advances system time:

    python examples/custom_logic.py

It prints:

    12:10 cellar: silent since 12:00
    12:14 attic: silent since 12:04
    12:25 cellar: back after 25 minutes
"""

from __future__ import annotations

from datetime import datetime, timedelta

from typing_extensions import override

import flow.operators as op
from flow import Dataflow, Moment
from flow.operators import KEEP, Keep, StatefulLogic
from flow.testing import TestDriver, TestingSink, TestingSource

PATIENCE = timedelta(minutes=10)

Alert = tuple[datetime, str]
State = tuple[datetime | None, bool]


class SilenceWatch(StatefulLogic[float, Alert, State]):
    """The watch of one sensor; its state is the time of the last reading, and True if silent."""

    def __init__(self, state: State | None) -> None:
        self.heard_at, self.silent = state or (None, False)

    @override
    def on_item(self, value: float, moment: Moment) -> tuple[list[Alert], Keep]:
        alerts: list[Alert] = []
        if self.silent and self.heard_at:
            minutes = (moment.now - self.heard_at) // timedelta(minutes=1)
            alerts.append((moment.now, f"back after {minutes} minutes"))
        self.heard_at, self.silent = moment.now, False
        return alerts, KEEP

    @override
    def notify_at(self) -> datetime | None:
        return self.heard_at + PATIENCE if self.heard_at and not self.silent else None

    @override
    def on_notify(self, moment: Moment) -> tuple[list[Alert], Keep]:
        self.silent = True
        return [(moment.now, f"silent since {self.heard_at:%H:%M}")], KEEP

    @override
    def snapshot(self) -> State:
        return self.heard_at, self.silent


graph = Dataflow("custom_logic")
readings = op.input("readings", graph, TestingSource([]))
alerts = op.stateful("silence", readings, SilenceWatch)
op.output("alerts", alerts, TestingSink([]))


def main() -> None:
    """Send readings of two sensors for half an hour, and print the alerts."""
    with TestDriver(graph, now="2024-05-01T12:00:00Z") as driver:
        driver.send("readings", [("attic", 24.0), ("cellar", 11.5)])
        driver.advance("4m")
        driver.send("readings", [("attic", 24.5)])
        driver.advance("6m")
        driver.advance("4m")
        driver.advance("11m")
        driver.send("readings", [("cellar", 11.0)])
    for sensor, (at, alert) in driver.received("alerts"):
        print(f"{at:%H:%M} {sensor}: {alert}")


if __name__ == "__main__":
    main()
