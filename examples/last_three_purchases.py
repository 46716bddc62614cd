"""The last three purchases of each customer, and their average price.

    purchases ─ by_customer ─ last_three ─ down ─ out

``CountWindower(3, step=1)`` opens a window at every purchase and closes a window that has three.
From the third purchase on, each purchase completes a window with the two before it.

                lamp  rug  sofa  vase  clock  chair
    window 0   [················]
    window 1         [················]
    window 2              [·················]
    window 3                    [··················]
    4 and 5 are not full: they stay open  [·············

The windows do not depend on time, so the clock is system time. Bob has made two purchases: his
window stays open, and a later run that continues from a checkpoint would fill it.

Run it on the purchases beside this file:

    python examples/last_three_purchases.py

It prints:

    ann: lamp, rug, sofa at 120.0 on average
    ann: rug, sofa, vase at 100.0 on average
    ann: sofa, vase, clock at 120.0 on average
    ann: vase, clock, chair at 80.0 on average
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSource
from flow.connectors.stdio import StdOutSink

PURCHASES = Path(__file__).parent / "samples" / "purchases.jsonl"


def line_of(item: tuple[str, tuple[win.WindowMetadata, dict[str, Any]]]) -> str:
    """Return the text of a customer's window."""
    customer, (_, three) = item
    return f"{customer}: {', '.join(three['items'])} at {three['mean']:.1f} on average"


graph = Dataflow("last_three_purchases")
purchases = op.input("purchases", graph, JsonLinesSource(PURCHASES))
last_three = win.aggregate_window(
    "last_three",
    op.key_on("by_customer", purchases, "customer"),
    clock=win.SystemClock(),
    windower=win.CountWindower(3, step=1),
    items=win.Collect("item"),
    mean=win.Mean("price"),
)
op.output("out", last_three.down, StdOutSink(format=line_of))

if __name__ == "__main__":
    run(graph)
