"""A history, then live data: hours of flights that begin in an archive and end in new files.

`Then` reads the archive to its end, and continues with the files of a directory. The window from
11:00 to 12:00 has flights of both: event time has no gap at the switch. The first run ends once it
has read all files; the second run continues from its checkpoint, and reads the archive no more.

    python examples/history_then_live.py

It prints:

    run 1
      10:00 JFK: 2 flights
    run 2
      11:00 JFK: 3 flights
      12:00 JFK: 1 flights
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSource, ParquetSource
from flow.connectors.then import Then
from flow.testing import TestingSink
from recovery import RecoveryConfig

SCHEMA = pa.schema([("origin", pa.string()), ("at", pa.string())])
ARCHIVED = ["10:05", "10:40", "11:10"]
NEW = [["11:20"], ["11:50", "12:30"]]
"""Departures from JFK on 1 May 2024; the new ones by file."""


def row(time: str) -> dict[str, str]:
    """Return the record of a departure."""
    return {"origin": "JFK", "at": f"2024-05-01T{time}:00Z"}


def make_flow(archive: Path, inbox: Path, out: list[str]) -> Dataflow:
    """Return the flow: flights of an archive, then of an inbox, counted by hour."""
    graph = Dataflow("history_then_live")
    live = JsonLinesSource(inbox, schema=SCHEMA, follow=True)
    flights = op.input("flights", graph, Then(ParquetSource(archive), live))
    hourly = win.aggregate_window(
        "hourly",
        op.key_on("by_origin", flights, "origin"),
        clock=win.EventClock("at", wait_for_system_duration="10m", on_idle="hold"),
        windower=win.TumblingWindower(length="1h"),
        flights=win.Count(),
    )
    op.output("out", op.map("in_words", hourly.down, in_words), TestingSink(out))
    return graph


def in_words(item: tuple[str, tuple[win.WindowMetadata, dict[str, Any]]]) -> str:
    """Describe an hour of an airport."""
    origin, (window, counts) = item
    return f"{window.open_time:%H:%M} {origin}: {counts['flights']} flights"


def main() -> None:
    """Run the flow twice, and print its output."""
    home = Path(tempfile.mkdtemp())
    try:
        run_twice(home)
    finally:
        shutil.rmtree(home)


def run_twice(home: Path) -> None:
    """Run the flow, add a file to the inbox, and run the flow again."""
    archive, inbox = home / "archive", home / "inbox"
    for folder in (archive, inbox):
        folder.mkdir()
    pq.write_table(pa.Table.from_pylist([row(t) for t in ARCHIVED], SCHEMA), archive / "0.parquet")
    recovery = RecoveryConfig(home / "checkpoint")
    for number, times in enumerate(NEW, 1):
        out: list[str] = []
        lines = "".join(f"{json.dumps(row(time))}\n" for time in times)
        (inbox / f"{number}.jsonl").write_text(lines)
        run(
            make_flow(archive, inbox, out),
            recovery=recovery,
            trigger="available",
            drain=number == len(NEW),
        )
        print(f"run {number}")
        for line in out:
            print(f"  {line}")


if __name__ == "__main__":
    main()
