"""Dead letters: unreadable lines and late values go to files of their own.

    sales ─┬─ ok ─ by_shop ─ sums ─┬─ down ─ sums
           │                       └─ late ─ dead_letter ─ late
           └─ errors ─ unreadable

Three kinds of input must not stop a flow that runs day and night, and must not vanish either:

- a line that is broken or does not fit the schema. A source with ``on_invalid="errors"``, read with
  ``op.try_input``, sends the line to the ``errors`` stream, with its place and the problem;
- a value that arrives after its window has closed. It goes to the ``late`` stream of the windowing
  operator, with its lateness and the window that it missed;
- a value whose time is far in the future, such as that of a till whose clock is wrong. With
  ``max_ahead`` it goes to the ``late`` stream too; without, all later values would be late.

All are ordinary streams. This flow writes them as JSON lines, to inspect, correct and read again.

Run it on the lines beside this file:

    python examples/dead_letters.py

It prints:

    sums
      09:00 north 19
      09:02 north 23
    late
      late: north 9 of 2024-05-01T09:00:55Z, by 40 s, for 09:00-09:01
      too_far_ahead: north 5 of 2204-05-01T09:02:40Z
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

SALES = Path(__file__).parent / "samples" / "sales.jsonl"
SCHEMA = {"at": pa.timestamp("us", "UTC"), "shop": pa.string(), "amount": pa.int64()}


def dead_letter(item: tuple[str, win.LateValue[dict[str, Any]]]) -> dict[str, Any]:
    """Return a late sale as a record: its fields, the reason, and the window that it missed."""
    _, late = item
    return {
        **late.value,
        "reason": late.reason.value,
        "late_by_seconds": late.late_by.total_seconds(),
        "missed_from": late.window and late.window.open_time,
        "missed_until": late.window and late.window.close_time,
    }


def make_flow(out: Path) -> Dataflow:
    """Return a flow that sums the sales of each shop, minute by minute."""
    graph = Dataflow("dead_letters")
    source = JsonLinesSource(SALES, schema=SCHEMA, on_invalid="errors")
    sales, unreadable = op.try_input("sales", graph, source)
    sums = win.aggregate_window(
        "sums",
        op.key_on("by_shop", sales, "shop"),
        clock=win.EventClock("at", wait_for_system_duration="30s", max_ahead="1h"),
        windower=win.TumblingWindower(length="1m"),
        sum=win.Sum("amount"),
    )
    op.output("sums_out", sums.down, JsonLinesSink(out / "sums"))
    late = op.map("dead_letter", sums.late, dead_letter)
    op.output("late_out", late, JsonLinesSink(out / "late"))
    op.output("unreadable_out", unreadable, JsonLinesSink(out / "unreadable"))
    return graph


def read_lines(directory: Path) -> list[dict[str, Any]]:
    """Read the output of a `JsonLinesSink`, which has a directory for each epoch."""
    files = sorted(directory.glob("epoch=*/*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().split("\n") if line]


def late_line(row: dict[str, Any]) -> str:
    """Return the text of a late sale."""
    sale = f"{row['reason']}: {row['shop']} {row['amount']} of {row['at']}"
    if row["missed_from"] is None:
        return sale
    window = f"{row['missed_from'][11:16]}-{row['missed_until'][11:16]}"
    return f"{sale}, by {row['late_by_seconds']:.0f} s, for {window}"


def main(out: Path) -> None:
    """Run the flow and print its three outputs."""
    run(make_flow(out))
    print("sums")
    for row in read_lines(out / "sums"):
        print(f"  {row['open_time'][11:16]} {row['key']} {row['sum']}")
    print("late")
    for row in read_lines(out / "late"):
        print(f"  {late_line(row)}")
    print("unreadable")
    for row in read_lines(out / "unreadable"):
        print(f"  {Path(row['where']).name}: {row['reason']}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
