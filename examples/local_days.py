"""Local days: the use of a house in Paris each day, also on the days when the clocks change.

    readings ─ by_meter ─ daily ─ down ─ out

A meter reports every hour, in UTC, one more kilowatt-hour. A bill needs local days, and those are
not all 24 hours long: the last Sunday in March lacks an hour, and the last Sunday in October has an
hour twice. ``CalendarWindower`` makes local days, and also weeks, months and years.

    Paris     Sat 30 March         Sun 31 March       Mon 1 April
             |········ 24 h ······|······ 23 h ······|
    UTC    23:00                23:00              22:00

``TumblingWindower("1d")`` would make days of 24 hours from midnight UTC, which is one or two
o'clock at night in Paris.

Run it:

    python examples/local_days.py

It prints:

    Sat 30 March has 24 hours: 24 kWh
    Sun 31 March has 23 hours: 23 kWh
    Mon 01 April has 24 hours: 24 kWh
    Sat 26 October has 24 hours: 24 kWh
    Sun 27 October has 25 hours: 25 kWh
    Mon 28 October has 24 hours: 24 kWh
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.stdio import StdOutSink
from flow.testing import TestingSource

PARIS = ZoneInfo("Europe/Paris")
HOUR = timedelta(hours=1)


def readings_of(midnight: datetime, hours: int) -> Iterator[dict[str, Any]]:
    """Yield a meter's readings: one each hour, for `hours` hours from a local midnight on."""
    for number in range(hours):
        yield {"at": midnight.timestamp() + number * 3600, "meter": "paris", "kwh": 1}


def line_of(item: tuple[str, tuple[win.WindowMetadata, int]]) -> str:
    """Return the text of a day's use."""
    _, (day, kwh) = item
    hours = (day.close_time - day.open_time) // HOUR
    return f"{day.open_time.astimezone(PARIS):%a %d %B} has {hours} hours: {kwh} kWh"


READINGS = [
    *readings_of(datetime(2024, 3, 30, tzinfo=PARIS), hours=24 + 23 + 24),
    *readings_of(datetime(2024, 10, 26, tzinfo=PARIS), hours=24 + 25 + 24),
]

graph = Dataflow("local_days")
readings = op.input("readings", graph, TestingSource(READINGS))
daily = win.sum_window(
    "daily",
    op.key_on("by_meter", readings, "meter"),
    clock=win.EventClock("at", wait_for_system_duration="1h"),
    windower=win.CalendarWindower("day", tz="Europe/Paris"),
    by="kwh",
)
op.output("out", daily.down, StdOutSink(format=line_of))

if __name__ == "__main__":
    run(graph)
