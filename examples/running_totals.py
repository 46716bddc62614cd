"""Running totals: state per key that outlives the process.

Each file in the inbox contains a day's movements. The flow runs once a day, reads the new files,
and stops. ``op.stateful_map`` keeps a balance for each account.

With a `RecoveryConfig`, the balances stay on disk after a run, and so does the list of files that
have been read: the next run continues with both. If a run is killed, the next run replays the epoch
that was not finished, and no movement counts twice.

Run it; here the two days are two runs in one process:

    python examples/running_totals.py

It prints, the accounts in any order:

    Monday
    ann: 10 makes 10
    ann: -4 makes 6
    bob: 5 makes 5
    Tuesday
    ann: 20 makes 26
    bob: -1 makes 4
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSource
from flow.connectors.stdio import StdOutSink
from recovery import RecoveryConfig

DAYS = {
    "Monday": [
        {"account": "ann", "amount": 10},
        {"account": "bob", "amount": 5},
        {"account": "ann", "amount": -4},
    ],
    "Tuesday": [
        {"account": "bob", "amount": -1},
        {"account": "ann", "amount": 20},
    ],
}


def add(total: int | None, movement: dict[str, Any]) -> tuple[int, str]:
    """Return the new balance of an account and the text to emit, from the balance so far."""
    balance: int = (total or 0) + movement["amount"]
    return balance, f"{movement['amount']} makes {balance}"


def make_flow(inbox: Path) -> Dataflow:
    """Return a flow that keeps the balances of the accounts in the inbox."""
    graph = Dataflow("running_totals")
    # A source that follows a directory has no end; `trigger="available"` ends the run.
    movements = op.input("movements", graph, JsonLinesSource(inbox, follow=True))
    by_account = op.key_on("by_account", movements, "account")
    totals = op.stateful_map("totals", by_account, add)
    op.output("out", totals, StdOutSink(format=lambda item: f"{item[0]}: {item[1]}"))
    return graph


def deliver(inbox: Path, day: str, movements: list[dict[str, Any]]) -> None:
    """Move a finished file to the inbox, since the source must not read a file half written."""
    file = inbox.with_name(f"{day}.jsonl")
    file.write_text("".join(json.dumps(movement) + "\n" for movement in movements))
    file.rename(inbox / file.name)


def main(folder: Path) -> None:
    """Run the flow once a day."""
    inbox, recovery = folder / "inbox", RecoveryConfig(folder / "checkpoint")
    inbox.mkdir()
    for day, movements in DAYS.items():
        print(day)
        deliver(inbox, day, movements)
        run(make_flow(inbox), recovery=recovery, trigger="available")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
