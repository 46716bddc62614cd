"""Departures of each hour in a Delta table, corrected for late reports, and asked while it grows.

Reports of departures arrive as aircraft land, so some are late. The flow emits the hours of an
epoch at its end, and again after each correction within six hours of grace. In the table a
correction replaces the row of its hour. DuckDB asks the table after each epoch, as any reader of
Delta may.

Run it, with the extra ``delta`` and the package duckdb:

    python examples/flights_lake.py

It prints, after each epoch, the flights of each hour:

    epoch 0: EWR 05h 2, JFK 05h 1
    epoch 1: EWR 05h 2, EWR 06h 1, JFK 05h 2, JFK 07h 1
    epoch 2: EWR 05h 3, EWR 06h 1, JFK 05h 2, JFK 07h 1
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EpochReport, run
from flow.connectors.delta import DeltaSink
from flow.testing import TestingSource
from recovery import RecoveryConfig

REPORTS: list[dict[str, Any]] = [
    {"origin": origin, "departed_at": f"2013-01-01T{at}:00Z"}
    for origin, at in (
        *(("EWR", "05:17"), ("JFK", "05:42"), ("EWR", "05:58")),
        *(("EWR", "06:05"), ("JFK", "05:44")),
        *(("JFK", "07:01"), ("EWR", "05:15")),
    )
]
QUERY = """
    SELECT key, hour(open_time AT TIME ZONE 'UTC') AS hour, flights
    FROM hours ORDER BY key, open_time
"""


def make_flow(table: Path) -> Dataflow:
    """Return a flow that counts departures by airport and hour into a table."""
    graph = Dataflow("flights_lake")
    reports = op.input("reports", graph, TestingSource(REPORTS, batch_size=3))
    hourly = win.aggregate_window(
        "hourly",
        op.key_on("by_origin", reports, "origin"),
        win.EventClock("departed_at", wait_for_system_duration="0s"),
        win.TumblingWindower("1h", grace="6h"),
        emit="epoch",
        flights=win.Count(),
    )
    op.output("hours", hourly.down, DeltaSink(table, mode="upsert"))
    return graph


def main(folder: Path) -> None:
    """Run the flow, and ask its table after each epoch that reads reports."""
    table = folder / "hours"

    def ask(report: EpochReport) -> None:
        if report.end_of_input:
            return
        with duckdb.connect() as database:
            database.register("hours", DeltaTable(table).to_pyarrow_dataset())
            found = database.execute(QUERY).fetchall()
        shown = (f"{origin} {hour:02}h {flights}" for origin, hour, flights in found)
        print(f"epoch {report.epoch}: {', '.join(shown)}")

    run(make_flow(table), recovery=RecoveryConfig(str(folder / "checkpoint")), on_epoch=ask)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
