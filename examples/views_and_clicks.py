"""Views and clicks: the page views with a click within ten minutes.

    views ── views_by_id ───┐
                            ├─ match ─ down ─ out
    clicks ─ clicks_by_id ──┘

Views and clicks arrive on two inputs; their key is the view's id. A session with a gap of ten
minutes contains a view and the clicks that follow it soon enough. When the session closes,
``join_window`` emits a pair, with ``None`` for a side without a value. Of several clicks
``insert_mode="first"`` keeps the first by timestamp, whatever the order of arrival.

A view id never appears again after a while. With ``forget_after`` the state of a key expires once
the key has been silent for an hour past the wait, so that a flow that runs for years does not grow.

Run it on the views and clicks beside this file:

    python examples/views_and_clicks.py

It prints, the views in any order:

    v1: lamps, 'buy' after 180 seconds
    v2: rugs, no click
    v3: sofas, no click
    v3: 'menu' too long after its view
    v4: clocks, 'buy' after 600 seconds
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSource
from flow.connectors.stdio import StdOutSink

SAMPLES = Path(__file__).parent / "samples"

Event = dict[str, str]
Pair = tuple[Event, Event] | tuple[Event, None] | tuple[None, Event]


def line_of(item: tuple[str, tuple[win.WindowMetadata, Pair]]) -> str:
    """Return the text of a view and its click, or of the one that came alone."""
    view_id, (_, pair) = item
    match pair:
        case (None, click):
            return f"{view_id}: {click['button']!r} too long after its view"
        case (view, None):
            return f"{view_id}: {view['page']}, no click"
        case (view, click):
            after = datetime.fromisoformat(click["at"]) - datetime.fromisoformat(view["at"])
            seconds = after // timedelta(seconds=1)
            return f"{view_id}: {view['page']}, {click['button']!r} after {seconds} seconds"


graph = Dataflow("views_and_clicks")
views = op.input("views", graph, JsonLinesSource(SAMPLES / "views.jsonl"))
clicks = op.input("clicks", graph, JsonLinesSource(SAMPLES / "view_clicks.jsonl"))
matched = win.join_window(
    "match",
    op.key_on("views_by_id", views, "view"),
    op.key_on("clicks_by_id", clicks, "view"),
    clock=win.EventClock("at", wait_for_system_duration="15m", forget_after="1h"),
    windower=win.SessionWindower(gap="10m"),
    insert_mode="first",
)
op.output("out", matched.down, StdOutSink(format=line_of))

if __name__ == "__main__":
    run(graph)
