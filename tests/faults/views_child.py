"""A run with a view, in a process to be killed: ``python -m tests.faults.views_child HOME``.

Each epoch gives all keys one value, the number of the epoch.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flow.operators as op
import flow.views.writing as writing
from flow import Dataflow, run
from flow.testing import TestingSource
from flow.views import ViewSink
from flow.views.rows import ViewRow
from flow.views.tables import Ask, ViewState
from recovery import RecoveryConfig

KEYS = [f"key {n}" for n in range(50)]
EPOCHS = 8
VIEW = "newest"


def make_flow() -> Dataflow:
    """Return the flow."""
    flow = Dataflow("numbers")
    items = [(key, number) for number in range(EPOCHS) for key in KEYS]
    read = op.input("in", flow, TestingSource(items, batch_size=len(KEYS)))
    last = op.stateful_map("last", read, lambda _, value: (value, value))
    op.output(VIEW, last, ViewSink())
    return flow


def strike(point: str, at: int) -> None:
    """Kill this process and what it started before, amid or after the transaction of an epoch."""
    commit, write_state = writing.ViewWriter.commit, writing.write_state

    def struck_commit(self: Any, epoch: int, rows: Sequence[ViewRow]) -> None:
        if (point, at) == ("before", epoch):
            _die()
        commit(self, epoch, rows)
        if (point, at) == ("after", epoch):
            _die()

    def struck_write(ask: Ask, state: ViewState) -> None:
        if (point, at) == ("amid", state.epoch):
            _die()
        write_state(ask, state)

    writing.ViewWriter.commit = struck_commit  # type: ignore[method-assign]
    writing.write_state = struck_write


def _die() -> None:
    os.killpg(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the flow once, to its end or to its death."""
    home, point, at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    strike(point, at)
    run(make_flow(), recovery=RecoveryConfig(home / "checkpoint"), master="local[2]", drain=False)


if __name__ == "__main__":
    main()
