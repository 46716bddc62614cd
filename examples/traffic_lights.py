"""Traffic lights: the cars and passengers that pass each light, hour by hour.

    crossings ─ by_light ─ hourly ─┬─ down ─ figures
                                   └─ late ─ missed

A camera writes a line of JSON for each car, not quite in order. ``EventClock`` reads the time from
the line itself, so a car counts for the hour in which it passed, however fast the flow reads the
lines. An hour contains its first instant and not its last: the car of 09:00:00 counts for the hour
from nine on.

Lines may arrive late: with ``grace="10m"`` the hour until nine stays open until the watermark of
the light is ten past nine. The car of 08:58:30 is in time for that hour. The car of 08:59:00 is
not: it goes to the ``late`` stream. Each light has its own watermark, so the lines of one light do
not make those of another late.

Run it on the lines beside this file:

    python examples/traffic_lights.py

It prints, the lights in any order:

    {"light": "bridge", "until": "2024-05-01T09:00:00Z", "cars": 3, "passengers": 10}
    {"light": "bridge", "until": "2024-05-01T10:00:00Z", "cars": 2, "passengers": 2}
    {"light": "market", "until": "2024-05-01T09:00:00Z", "cars": 2, "passengers": 3}
    {"light": "market", "until": "2024-05-01T10:00:00Z", "cars": 1, "passengers": 2}
    MN 22 at bridge came 13 minutes late for the hour until 2024-05-01T09:00:00Z
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSource
from flow.connectors.stdio import StdOutSink

CROSSINGS = Path(__file__).parent / "samples" / "traffic_lights.jsonl"


def rfc_3339(instant: datetime) -> str:
    """Return an instant in UTC as RFC 3339 text."""
    return instant.isoformat().replace("+00:00", "Z")


def figures_of(item: tuple[str, tuple[win.WindowMetadata, dict[str, Any]]]) -> str:
    """Return an hour's results as JSON, with the hour's end."""
    light, (hour, figures) = item
    return json.dumps({"light": light, "until": rfc_3339(hour.close_time), **figures})


def missed_by(item: tuple[str, win.LateValue[dict[str, Any]]]) -> str:
    """Return the text of a car that missed its hour."""
    light, late = item
    return (
        f"{late.value['plate']} at {light} came {late.late_by // timedelta(minutes=1)} minutes "
        f"late for the hour until {rfc_3339(late.windows[0].close_time)}"
    )


graph = Dataflow("traffic_lights")
crossings = op.input("crossings", graph, JsonLinesSource(CROSSINGS))
hourly = win.aggregate_window(
    "hourly",
    op.key_on("by_light", crossings, "light"),
    clock=win.EventClock("at", wait_for_system_duration="0s"),
    windower=win.TumblingWindower(length="1h", grace="10m"),
    cars=win.CountDistinct("plate"),
    passengers=win.Sum("passengers"),
)
op.output("figures", hourly.down, StdOutSink(format=figures_of))
op.output("missed", hourly.late, StdOutSink(format=missed_by))

if __name__ == "__main__":
    run(graph)
