"""Traffic lights: how many vehicles cross at each colour, every ten seconds.

A camera writes a line of JSON for each vehicle, not quite in order. ``EventClock`` takes the time
from the line itself and waits five seconds for lines that are out of order, so a vehicle counts for
when it crossed, however fast or slow the lines are read.

A window holds what happens at its start and not what happens at its end: the vehicle of 08:00:10
counts for the second window. Where nothing crossed, there is no window.

Run it on the lines beside this file:

    python examples/traffic_lights.py

It prints, the colours in any order:

    {"light": "green", "vehicles": 3, "until": "2024-05-01T08:00:10Z"}
    {"light": "green", "vehicles": 1, "until": "2024-05-01T08:00:20Z"}
    {"light": "green", "vehicles": 2, "until": "2024-05-01T08:00:40Z"}
    {"light": "amber", "vehicles": 1, "until": "2024-05-01T08:00:20Z"}
    {"light": "red", "vehicles": 1, "until": "2024-05-01T08:00:20Z"}
"""

from __future__ import annotations

import json
from pathlib import Path

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSource
from flow.connectors.stdio import StdOutSink
from flow_windowing import EventClock, TumblingWindower, WindowMetadata

CROSSINGS = Path(__file__).parent / "samples" / "traffic_lights.jsonl"


def line_of(item: tuple[str, tuple[WindowMetadata, int]]) -> str:
    """Write a window's count as JSON, with its end as RFC 3339 text."""
    light, (window, vehicles) = item
    until = window.close_time.isoformat().replace("+00:00", "Z")
    return json.dumps({"light": light, "vehicles": vehicles, "until": until})


flow = Dataflow("traffic_lights")
crossings = op.input("crossings", flow, JsonLinesSource(CROSSINGS))
by_light = op.key_on("by_light", crossings, "light")
counts = win.fold_window(
    "counts",
    by_light,
    clock=EventClock("at", wait_for_system_duration="5s"),
    windower=TumblingWindower(length="10s"),
    builder=int,
    folder=lambda count, _: count + 1,
    merger=lambda count, other: count + other,
)
op.output("out", counts.down, StdOutSink(format=line_of))

if __name__ == "__main__":
    run(flow)
