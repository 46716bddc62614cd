"""Clicks once: a browser sends some clicks again, and each counts once in ten minutes.

    clicks ─ by_user ─ once ─┬─ down ─ passed
                             └─ late ─ late

A click is known by its user and its id. The first one passes, and repeats of it are dropped: those
whose time differs by less than ten minutes. So an id may be used again later:

    ann        9:00        9:04   9:05                  9:10
    c1          passes                             9:09:59 dropped
                dropped                                 passes: ten minutes after the first
    c2                     passes
    c3                            passes: five minutes late, which is the wait
    c2                    9:04:59 late: a second more than the wait

Once the watermark is ten minutes past a click, its id is forgotten, and a user without ids has no
state: the flow remembers ten minutes of clicks, however long it runs. A late click may be a repeat
of a click that is forgotten, or may not, so it goes to a stream of its own.

Run it on the clicks beside this file:

    python examples/clicks_once.py

It prints, in any order of users:

    ann 09:00:00 home
    bob 09:01:00 rugs
    ann 09:04:00 lamps
    ann 09:10:00 home
    ann 09:05:00 basket
    late by 0:00:01: ann, lamps
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSource
from flow.connectors.stdio import StdOutSink

CLICKS = Path(__file__).parent / "samples" / "clicks_twice.jsonl"


def line_of(item: tuple[str, dict[str, Any]]) -> str:
    """Return the text of a click."""
    user, click = item
    return f"{user} {click['at'][11:19]} {click['page']}"


def late_line_of(item: tuple[str, win.LateValue[dict[str, Any]]]) -> str:
    """Return the text of a late click."""
    user, late = item
    return f"late by {late.late_by}: {user}, {late.value['page']}"


graph = Dataflow("clicks_once")
clicks = op.input("clicks", graph, JsonLinesSource(CLICKS))
once = win.dedup(
    "once",
    op.key_on("by_user", clicks, "user"),
    win.EventClock("at", wait_for_system_duration="5m"),
    "id",
    ttl="10m",
)
op.output("passed", once.down, StdOutSink(format=line_of))
op.output("late", once.late, StdOutSink(format=late_line_of))

if __name__ == "__main__":
    run(graph)
