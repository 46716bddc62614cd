"""Visits: the clicks of each user, up to half an hour apart, with an update at every click.

    clicks ─ by_user ─ visits ─┬─ down ─── updates
                               └─ closed ─ over

A click at most 30 minutes from a visit joins it. A click that arrives out of order may close the
gap between two visits, which then merge:

    ann        9:00      9:25      9:50    10:10                   12:00
    1st click   [H]
    2nd click   [H]                [B]
    3rd click   [H        L         B]                two visits become one
    4th click   [H        L         B       T]
    5th click   [H        L         B       T]                      [H]

``emit="update"`` emits the result of a visit after every click. When a visit merges into another,
its last result is retracted: the step emits a `Retracted` under its id, and then an update of the
merged visit, which keeps the id of the earlier one. A visit's id is its open time in microseconds;
``merged_ids`` has the ids of the visits that merged into it.

Run it on the clicks beside this file:

    python examples/visits.py

It prints, the users in any order, the visits that have closed first or last:

    ann 09:00-09:00: 1 click, last on home
    ann 09:50-09:50: 1 click, last on basket
    ann 09:50-09:50: taken back: 1 click, last on basket
    ann 09:00-09:50: 3 clicks, last on basket
    ann 09:00-10:10: 4 clicks, last on thanks
    ann 12:00-12:00: 1 click, last on home
    bob 09:05-09:05: 1 click, last on home
    bob 09:05-09:35: 2 clicks, last on rugs
    ann 09:00-10:10: over; the visit of 09:50 is part of it
    ann 12:00-12:00: over
    bob 09:05-09:35: over
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSource
from flow.connectors.stdio import StdOutSink

CLICKS = Path(__file__).parent / "samples" / "clicks.jsonl"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Figures = dict[str, Any]


def span_of(visit: win.WindowMetadata) -> str:
    """Return the text of a visit's bounds so far."""
    return f"{visit.open_time:%H:%M}-{visit.close_time:%H:%M}"


def figures_of(visit: Figures) -> str:
    """Return the text of a visit's results."""
    clicks = visit["clicks"]
    return f"{clicks} click{'s' if clicks > 1 else ''}, last on {visit['page']}"


def update_of(item: tuple[str, tuple[win.WindowMetadata, Figures | win.Retracted[Figures]]]) -> str:
    """Return the text of an update or a retraction."""
    user, (visit, news) = item
    if isinstance(news, win.Retracted):
        return f"{user} {span_of(visit)}: taken back: {figures_of(news.value)}"
    return f"{user} {span_of(visit)}: {figures_of(news)}"


def end_of(item: tuple[str, win.WindowMetadata]) -> str:
    """Return the text of a closed visit, with the visits that merged into it."""
    user, visit = item
    merged = [EPOCH + timedelta(microseconds=opened) for opened in sorted(visit.merged_ids)]
    parts = "".join(f"; the visit of {opened:%H:%M} is part of it" for opened in merged)
    return f"{user} {span_of(visit)}: over{parts}"


graph = Dataflow("visits")
clicks = op.input("clicks", graph, JsonLinesSource(CLICKS))
visits = win.aggregate_window(
    "visits",
    op.key_on("by_user", clicks, "user"),
    clock=win.EventClock("at", wait_for_system_duration="1h"),
    windower=win.SessionWindower(gap="30m"),
    emit="update",
    clicks=win.Count(),
    page=win.Latest("page"),
)
op.output("updates", visits.down, StdOutSink(format=update_of))
op.output("over", visits.closed, StdOutSink(format=end_of))

if __name__ == "__main__":
    run(graph)
