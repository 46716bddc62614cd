"""A run with a table or a view, in a process to be killed.

``python -m tests.faults.stores_child HOME KIND EPOCHS POINT AT``: each epoch reads one item. A
table changes with it: the limit becomes the number of the epoch, and another key gets a long value.
In a view all keys get the number of the epoch. So an item that sees another version than that of
its epoch shows, and so does an answer with values of two epochs.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSink
from flow.engine.checkpoint.storage import Storage
from flow.engine.tables import table_files
from flow.testing import Advance, TestingSource
from flow.views import ViewSink, view_sink
from recovery import RecoveryConfig

KEEP_EPOCHS = 4
TABLE_KEYS = 8
VIEW, VIEW_KEYS = "newest", [f"key {n}" for n in range(50)]
NOW = "2024-06-01T00:00:00Z"


def make_flow(home: Path, kind: str, epochs: int) -> Dataflow:
    """Return the flow with a "table" or with a "view"."""
    flow = Dataflow("limits")
    read = op.input("in", flow, TestingSource(list(range(epochs)), batch_size=1))
    if kind == "view":
        spread = op.flat_map("spread", read, lambda number: [(key, number) for key in VIEW_KEYS])
        op.output(VIEW, op.stateful_map("last", spread, lambda _, n: (n, n)), ViewSink())
        return flow
    changes: list[Any] = []
    for number in range(epochs):
        changed = f"key {number % TABLE_KEYS}"
        changes += [("limit", number), (changed, f"{number:0200d}"), Advance("1s")]
    limits = op.table("limits", op.input("changes", flow, TestingSource(changes)))
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
    """Kill this process and what it started before or after a change of a table or of the view.

    Args:
        point: "before" or "after", and "write" or "removal" of a file of a table, or "commit" of
            the view, or "state", the last statement of its transaction; such as "before write".
        at: the number of the write or removal in this process, from 1, or the epoch of the view.
    """

    def die_around(owner: Any, name: str, what: str, number_of: Callable[..., int]) -> None:
        method = getattr(owner, name)

        def struck(*arguments: Any) -> None:
            number = number_of(*arguments)
            _die_if((point, at) == (f"before {what}", number))
            method(*arguments)
            _die_if((point, at) == (f"after {what}", number))

        setattr(owner, name, struck)

    for name, what in (("write_bytes", "write"), ("remove", "removal")):
        die_around(Storage, name, what, _table_files())
    die_around(view_sink.ViewWriter, "commit", "commit", lambda _, epoch, rows: epoch)
    die_around(view_sink, "write_state", "state", lambda _, state: state.epoch)


def _table_files() -> Callable[..., int]:
    """Return a function that numbers calls with names of a table's files, others by 0."""
    numbers = count(1)
    return lambda _storage, name, *_: next(numbers) if name.startswith("tables/") else 0


def _die_if(condition: bool) -> None:
    if condition:
        os.killpg(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the flow once, to its end or to its death."""
    _, folder, kind, epochs, point, at = sys.argv
    home = Path(folder)
    table_files.REMOVAL_VERSIONS = 4
    strike(point, int(at))
    run(
        make_flow(home, kind, int(epochs)),
        recovery=RecoveryConfig(home / "checkpoint", keep_epochs=KEEP_EPOCHS),
        master="local[2]",
        shards=2,
        partitions=1,
        drain=False,
        system_time=NOW,
    )


if __name__ == "__main__":
    main()
