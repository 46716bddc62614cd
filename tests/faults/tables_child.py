"""A run with a table, in a process to be killed: ``python -m tests.faults.tables_child HOME``.

Each epoch reads one item and changes the table: the limit becomes the number of the epoch, and
another key gets a long value. So an item that sees another version than that of its epoch shows.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSink
from flow.engine.checkpoint.storage import Storage
from flow.engine.tables import log
from flow.testing import Advance, TestingSource
from recovery import RecoveryConfig

EPOCHS = 30
KEEP_EPOCHS = 4
KEYS = 8
NOW = "2024-06-01T00:00:00Z"
TABLES = "tables/"


def make_flow(home: Path) -> Dataflow:
    """Return the flow."""
    flow = Dataflow("limits")
    changes: list[Any] = []
    for number in range(EPOCHS):
        changes += [("limit", number), (f"key {number % KEYS}", f"{number:0200d}"), Advance("1s")]
    limits = op.table("limits", op.input("changes", flow, TestingSource(changes)))
    read = op.input("in", flow, TestingSource(list(range(EPOCHS)), batch_size=1))
    first = op.map_with("first", read, limits, with_limit)
    kept = op.stateful_map("kept", op.key_on("by_kind", first, "kind"), counted)
    second = op.map_with("second", kept, limits, with_limit_again)
    op.output("write", second, JsonLinesSink(home / "out"))
    return flow


def with_limit(number: int, limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item with the limit that it sees before the shuffle."""
    return {"kind": f"kind {number % 2}", "n": number, "limit": limits.get("limit")}


def with_limit_again(item: Any, limits: Mapping[str, Any]) -> dict[str, Any]:
    """Add the limit that an item sees after the shuffle, and the number of keys."""
    return {**item[1], "again": limits.get("limit"), "keys": len(limits)}


def counted(count: int | None, item: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Count the items of a kind."""
    count = (count or 0) + 1
    return count, {**item, "count": count}


def strike(point: str, at: int) -> None:
    """Kill this process and what it started before or after a write or removal of a table's file.

    Args:
        point: "before" or "after" and "write" or "removal", such as "before write".
        at: the number of the write or removal in this process, from 1.
    """
    done: Counter[str] = Counter()
    write, remove = Storage.write_bytes, Storage.remove

    def die_at(when: str, what: str) -> None:
        if (point, at) == (f"{when} {what}", done[what]):
            os.killpg(os.getpid(), signal.SIGKILL)

    def struck_write(self: Storage, name: str, data: bytes) -> None:
        is_table = name.startswith(TABLES)
        done["write"] += is_table
        if is_table:
            die_at("before", "write")
        write(self, name, data)
        if is_table:
            die_at("after", "write")

    def struck_remove(self: Storage, name: str) -> None:
        is_table = name.startswith(TABLES)
        done["removal"] += is_table
        if is_table:
            die_at("before", "removal")
        remove(self, name)
        if is_table:
            die_at("after", "removal")

    Storage.write_bytes, Storage.remove = struck_write, struck_remove  # type: ignore[method-assign]


def main() -> None:
    """Run the flow once, to its end or to its death."""
    home, point, at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    log.REMOVAL_VERSIONS = 4
    strike(point, at)
    run(
        make_flow(home),
        recovery=RecoveryConfig(home / "checkpoint", keep_epochs=KEEP_EPOCHS),
        master="local[2]",
        shards=2,
        partitions=1,
        drain=False,
        system_time=NOW,
    )


if __name__ == "__main__":
    main()
