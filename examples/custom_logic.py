"""A logic of one's own: an alert when a sensor falls silent.

Where no ready operator fits, ``op.stateful`` runs a `StatefulLogic` for each key. The engine calls
it with each value, and at the system time that it asks for with ``notify_at``, even when no value
comes at all: that is how a flow can say that something did *not* happen. Time is always the
`Moment` that the engine hands over, never the machine's clock, so a replay gives the same alerts.

Run it; `TestDriver` needs no Spark, and system time moves when it is told to:

    python examples/custom_logic.py

It prints:

    12:10 cellar: silent since 12:00
    12:14 attic: silent since 12:04
    12:25 cellar: back after 25 minutes
"""

from __future__ import annotations

from datetime import datetime, timedelta

import flow.operators as op
from flow import Dataflow, Moment
from flow.operators import KEEP, Keep, StatefulLogic
from flow.testing import TestDriver, TestingSink, TestingSource

PATIENCE = timedelta(minutes=10)

State = tuple[datetime | None, bool]


class SilenceWatch(StatefulLogic[float, str, State]):
    """Watches one sensor. The state is when it was last heard of, and whether an alert is out."""

    def __init__(self, state: State | None) -> None:
        self.heard_at, self.alerted = state or (None, False)

    def on_item(self, value: float, moment: Moment) -> tuple[list[str], Keep]:  # noqa: ARG002
        """Take note of the time of a reading; what it reads does not matter here."""
        alerts = []
        if self.alerted:
            silence = (moment.now - self.heard_at) // timedelta(minutes=1)
            alerts.append(f"{moment.now:%H:%M} %s: back after {silence} minutes")
        self.heard_at, self.alerted = moment.now, False
        return alerts, KEEP

    def notify_at(self) -> datetime | None:
        """When to be called if nothing comes; never again while an alert is out."""
        return None if self.alerted else self.heard_at + PATIENCE

    def on_notify(self, moment: Moment) -> tuple[list[str], Keep]:
        """Nothing came."""
        self.alerted = True
        return [f"{moment.now:%H:%M} %s: silent since {self.heard_at:%H:%M}"], KEEP

    def snapshot(self) -> State:
        """What the next epoch, or the next run, builds this logic from."""
        return self.heard_at, self.alerted


flow = Dataflow("silence")
readings = op.input("readings", flow, TestingSource([]))
alerts = op.stateful("silence", readings, SilenceWatch)
op.output("alerts", alerts, TestingSink([]))


def main() -> None:
    """Send readings of two sensors over half an hour and print the alerts."""
    with TestDriver(flow, now="2024-05-01T12:00:00Z") as driver:
        driver.send("readings", [("attic", 24.0), ("cellar", 11.5)])
        driver.advance("4m")
        driver.send("readings", [("attic", 24.5)])
        driver.advance("6m")
        driver.advance("4m")
        driver.advance("11m")
        driver.send("readings", [("cellar", 11.0)])
    for sensor, alert in driver.received("alerts"):
        print(alert % sensor)


if __name__ == "__main__":
    main()
