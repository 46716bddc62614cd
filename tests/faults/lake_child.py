"""A run that corrects rows of a table in a lakehouse, in a process to be killed.

``python -m tests.faults.lake_child HOME LAKE MODE POINT AT``: each epoch raises the counts of
some keys, and the process is killed before or after the commit of epoch AT to the table. LAKE is
the module of `tests.support` for the kind of table.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.lakehouse.lake_sink import LakeSink
from flow.testing import TestingSource
from recovery import RecoveryConfig

EPOCHS = 6
KEYS = 5


def make_flow(sink: LakeSink) -> Dataflow:
    """Return the flow: a count of each key."""
    flow = Dataflow("counts")
    items = [f"key {(number * number) % KEYS}" for number in range(3 * EPOCHS)]
    read = op.input("in", flow, TestingSource(items, batch_size=3))
    counts = op.stateful_map("counts", op.key_on("by_key", read, str), counted)
    op.output("out", op.map("row", counts, row_of), sink)
    return flow


def counted(count: int | None, _value: str) -> tuple[int, int]:
    """Count an item."""
    return (count or 0) + 1, (count or 0) + 1


def row_of(item: tuple[str, int]) -> dict[str, Any]:
    """Return a count as a row."""
    return {"key": item[0], "n": item[1]}


def strike(sink: Any, point: str, at: int) -> None:
    """Kill this process and what it started before or after the commit of an epoch."""
    publish = type(sink)._publish

    def struck(self: Any, table: Any, new: Any, messages: Any, context: Any) -> None:
        if (context.epoch, point) == (at, "before"):
            os.killpg(os.getpid(), signal.SIGKILL)
        publish(self, table, new, messages, context)
        if (context.epoch, point) == (at, "after"):
            os.killpg(os.getpid(), signal.SIGKILL)

    type(sink)._publish = struck


def main() -> None:
    """Run the flow to its end, or to its death."""
    home, lake, mode, point, at = sys.argv[1:]
    sink = importlib.import_module(lake).sink_to(Path(home) / "t", mode=mode, key="key")
    strike(sink, point, int(at))
    run(
        make_flow(sink),
        recovery=RecoveryConfig(f"{home}/checkpoint"),
        master="local[1]",
        shards=2,
        partitions=1,
    )


if __name__ == "__main__":
    main()
