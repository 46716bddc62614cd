"""Sensor temperature: one mean, three kinds of window, side by side.

                           ┌─ tumbling ─┐
    readings ─ by_sensor ──┼─ hopping ──┼─ all ─ out
                           └─ sliding ──┘

- *Tumbling*: windows of ten minutes, one after the other. ``emit="update"`` emits the mean so far
  at every reading, and nothing when the window closes.
- *Hopping*: ten minutes every five minutes. The windows overlap, and a reading is in two.
- *Sliding*: for each reading the ten minutes before it, both ends inclusive. A reading that arrives
  out of order also enters the open windows that contain it.

The last two emit the mean once, when the window closes: when the sensor's watermark, its latest
reading less a wait of ten minutes, is past the end of the window.

Run it on the readings beside this file; that of 12:06 arrives after that of 12:12:

    python examples/sensor_temperature.py

It prints, the sensors and kinds in any order:

    tumbling attic 12:00-12:10 20.0 so far
    tumbling attic 12:10-12:20 27.0 so far
    tumbling attic 12:00-12:10 21.0 so far
    tumbling attic 12:10-12:20 25.0 so far
    tumbling cellar 12:00-12:10 11.0 so far
    hopping attic 11:55-12:05 20.0
    hopping attic 12:00-12:10 21.0
    hopping attic 12:05-12:15 24.5
    hopping attic 12:10-12:20 25.0
    hopping attic 12:15-12:25 23.0
    hopping cellar 11:55-12:05 11.0
    hopping cellar 12:00-12:10 11.0
    sliding attic 11:51-12:01 20.0
    sliding attic 11:56-12:06 21.0
    sliding attic 12:02-12:12 24.5
    sliding attic 12:08-12:18 25.0
    sliding cellar 11:53-12:03 11.0
"""

from __future__ import annotations

from pathlib import Path

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSource
from flow.connectors.stdio import StdOutSink

READINGS = Path(__file__).parent / "samples" / "temperatures.jsonl"

Mean = tuple[str, tuple[win.WindowMetadata, float]]


def line_of(kind: str, item: Mean, note: str = "") -> str:
    """Return the text of a window's mean."""
    sensor, (window, mean) = item
    return f"{kind} {sensor} {window.open_time:%H:%M}-{window.close_time:%H:%M} {mean:.1f}{note}"


graph = Dataflow("sensor_temperature")
readings = op.input("readings", graph, JsonLinesSource(READINGS))
by_sensor = op.key_on("by_sensor", readings, "sensor")
clock = win.EventClock("at", wait_for_system_duration="10m")

tumbling = win.mean_window(
    "tumbling", by_sensor, clock, win.TumblingWindower("10m"), "celsius", emit="update"
)
hopping = win.mean_window(
    "hopping", by_sensor, clock, win.SlidingWindower("10m", offset="5m"), "celsius"
)
sliding = win.mean_window("sliding", by_sensor, clock, win.EventSlidingWindower("10m"), "celsius")

lines = op.merge(
    "all",
    op.map("tumbling_line", tumbling.down, lambda mean: line_of("tumbling", mean, " so far")),
    op.map("hopping_line", hopping.down, lambda mean: line_of("hopping", mean)),
    op.map("sliding_line", sliding.down, lambda mean: line_of("sliding", mean)),
)
op.output("out", lines, StdOutSink())

if __name__ == "__main__":
    run(graph)
