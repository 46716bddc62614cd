"""Dead letters: what cannot be read, and what comes too late, goes to files of its own.

Two things must not stop a flow that runs day and night, and must not vanish either:

- a line that is broken or does not fit the schema. A source with ``on_invalid="errors"``, read with
  ``op.try_input``, sends it to the ``errors`` stream, with where it stands and what is wrong;
- a value whose window has closed. It leaves the windowing operator on its ``late`` stream, with how
  late it was and which window it missed.

Both are streams like any other. Here they are written as JSON lines, to be looked at, mended, and
read again.

Run it on the lines beside this file:

    python examples/dead_letters.py

It prints:

    sums
      09:00 north 19
      09:02 north 23
    late
      09:00 north 9, late by 40 s
    unreadable
      sales.jsonl, line 3: not JSON: Expecting value at column 58
      sales.jsonl, line 6: field 'amount' does not fit int64: 'a lot'
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSink, JsonLinesSource
from flow_windowing import EventClock, LateValue, TumblingWindower, WindowMetadata

SALES = Path(__file__).parent / "samples" / "sales.jsonl"
SCHEMA = {"at": pa.timestamp("us", "UTC"), "shop": pa.string(), "amount": pa.int64()}


def sum_of(item: tuple[str, tuple[WindowMetadata, int]]) -> dict[str, Any]:
    """Lay a window's sum out in columns."""
    shop, (window, total) = item
    return {"minute": window.open_time, "shop": shop, "sum": total}


def late_sale(item: tuple[str, LateValue[dict]]) -> dict[str, Any]:
    """Lay a late sale out in columns: the sale as it was, and what it missed."""
    _, late = item
    return {
        **late.value,
        "late_by_seconds": late.late_by.total_seconds(),
        "missed": late.window.open_time,
    }


def make_flow(out: Path) -> Dataflow:
    """Sum up the sales of each shop, minute by minute."""
    flow = Dataflow("dead_letters")
    source = JsonLinesSource(SALES, schema=SCHEMA, on_invalid="errors")
    sales, unreadable = op.try_input("sales", flow, source)
    sums = win.fold_window(
        "sums",
        op.key_on("by_shop", sales, "shop"),
        clock=EventClock("at", wait_for_system_duration="30s"),
        windower=TumblingWindower(length="1m"),
        builder=int,
        folder=lambda total, sale: total + sale["amount"],
        merger=lambda total, other: total + other,
    )
    op.output("sums_out", op.map("sum", sums.down, sum_of), JsonLinesSink(out / "sums"))
    op.output("late_out", op.map("late", sums.late, late_sale), JsonLinesSink(out / "late"))
    op.output("unreadable_out", unreadable, JsonLinesSink(out / "unreadable"))
    return flow


def read_lines(directory: Path) -> list[dict[str, Any]]:
    """Read back what a `JsonLinesSink` has written: a directory for each epoch."""
    files = sorted(directory.glob("epoch=*/*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().split("\n") if line]


def main(out: Path) -> None:
    """Run the flow and print what is in each of the three outputs."""
    run(make_flow(out))
    print("sums")
    for row in read_lines(out / "sums"):
        print(f"  {row['minute'][11:16]} {row['shop']} {row['sum']}")
    print("late")
    for row in read_lines(out / "late"):
        what = f"{row['missed'][11:16]} {row['shop']} {row['amount']}"
        print(f"  {what}, late by {row['late_by_seconds']:.0f} s")
    print("unreadable")
    for row in read_lines(out / "unreadable"):
        print(f"  {Path(row['where']).name}: {row['reason']}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
