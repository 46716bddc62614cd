"""A run that corrects rows of an Iceberg table, in a process to be killed.

``python -m tests.faults.lake_child HOME MODE POINT AT``: each epoch raises the counts of some keys,
and the process is killed before or after the commit of the catalog in epoch AT.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.iceberg import IcebergSink
from flow.testing import TestingSource
from recovery import RecoveryConfig
from tests.support.iceberg import TABLE, properties

EPOCHS = 6
KEYS = 5


def make_flow(home: Path, mode: Any) -> Dataflow:
    """Return the flow: a count of each key."""
    flow = Dataflow("counts")
    items = [f"key {(number * number) % KEYS}" for number in range(3 * EPOCHS)]
    read = op.input("in", flow, TestingSource(items, batch_size=3))
    counts = op.stateful_map("counts", op.key_on("by_key", read, str), counted)
    sink = IcebergSink(properties(home), TABLE, mode=mode, key="key")
    op.output("out", op.map("row", counts, row_of), sink)
    return flow


def counted(count: int | None, _value: str) -> tuple[int, int]:
    """Count an item."""
    return (count or 0) + 1, (count or 0) + 1


def row_of(item: tuple[str, int]) -> dict[str, Any]:
    """Return a count as a row."""
    return {"key": item[0], "n": item[1]}


def strike(point: str, at: int) -> None:
    """Kill this process and what it started before or after the commit of an epoch."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table.update import AddSnapshotUpdate

    commit = SqlCatalog.commit_table

    def struck(self: Any, table: Any, requirements: Any, updates: Any) -> Any:
        added = [one.snapshot for one in updates if isinstance(one, AddSnapshotUpdate)]
        is_struck = any(one.summary["flow.epoch"] == str(at) for one in added)
        if is_struck and point == "before":
            os.killpg(os.getpid(), signal.SIGKILL)
        done = commit(self, table, requirements, updates)
        if is_struck and point == "after":
            os.killpg(os.getpid(), signal.SIGKILL)
        return done

    SqlCatalog.commit_table = struck


def main() -> None:
    """Run the flow to its end, or to its death."""
    home, mode, point, at = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    strike(point, at)
    run(
        make_flow(home, mode),
        recovery=RecoveryConfig(home / "checkpoint"),
        master="local[1]",
        shards=2,
        partitions=1,
    )


if __name__ == "__main__":
    main()
