"""A flow with every kind of state in four runs, each perhaps on another version of Spark.

``python -m tests.spark_versions.four_runs DIRECTORY NUMBER FILE`` is one of the runs, in a process
of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from flow.engine.spark.session.session import SparkSettings, make_session
from flow.testing import EOF, TestDriver
from tests.recovery.every_state import ITEMS, ROWS, START, go_on, make_flow, outputs_of

# The last run only closes windows, of items that another version may have read.
PARTS = (ITEMS[:200], ITEMS[200:400], ITEMS[400:], [])
Outputs = dict[str, list[str]]


def driver_outputs() -> Outputs:
    """Return the outputs of the in-process driver, in epochs as a query has them, sorted."""
    flow = make_flow([])
    with TestDriver(flow, now=START) as driver:
        for number in range(4):
            rows = pa.RecordBatch.from_pylist(ROWS[100 * number : 100 * (number + 1)])
            driver.send_all({"stream": ITEMS[200 * number : 200 * (number + 1)], "rows": rows})
        driver.end()
    return {name: sorted(map(repr, driver.received(name))) for name in outputs_of(flow)}


def items_of(number: int) -> list[Any]:
    """Return the items of a run, after those of the runs before; all but the last run just stop."""
    items = [item for part in PARTS[:number] for item in (*part, EOF())]
    return [*items, *PARTS[number], *([] if number == len(PARTS) - 1 else [EOF()])]


def run_part(directory: Path, number: int) -> Outputs:
    """Run the flow on the checkpoint in a directory, and return the items of each output."""
    return go_on(directory, items_of(number), drain=number == len(PARTS) - 1)


def run_parts(directory: Path, *numbers: int) -> list[Outputs]:
    """Run some parts, one after the other."""
    return [run_part(directory, number) for number in numbers]


def merged(runs: list[Outputs]) -> Outputs:
    """Return the items of each output in all runs, sorted."""
    return {name: sorted(item for run in runs for item in run[name]) for name in runs[0]}


if __name__ == "__main__":
    make_session("part", SparkSettings("local[2]", {"spark.driver.memory": "2g"}))
    found = run_part(Path(sys.argv[1]), int(sys.argv[2]))
    Path(sys.argv[3]).write_text(json.dumps(found))
