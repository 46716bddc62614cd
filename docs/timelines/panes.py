"""The panes that each value of a run fires, as text to write beside the value."""

from __future__ import annotations

from collections.abc import Sequence

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource
from timelines.runs import KEY, Value


def panes_beside(
    values: Sequence[Value], windower: win.Windower[None], trigger: win.AfterWatermark
) -> tuple[str, ...]:
    """Send values one by one, as one key, and return the panes after each of them."""
    flow = Dataflow("timeline")
    clock = win.EventClock[Value](lambda value: value.at, "0s")
    stream = op.input("in", flow, TestingSource([]))
    out = win.collect_window("w", stream, clock, windower, list, False, emit=trigger)
    op.output("down", out.down, TestingSink([]))
    found = []
    with TestDriver(flow) as driver:
        for value in values:
            driver.send("in", [(KEY, value)])
            found.append(", ".join(_text(*item) for _, item in driver.take("down")))
    return tuple(found)


def _text(window: win.WindowMetadata, values: Sequence[Value]) -> str:
    if window.pane is None:
        raise ValueError(f"{window!r} has no pane")
    names = " ".join(value.label for value in values)
    return f"pane {window.pane.index}, {window.pane.timing.value}: {names}"
