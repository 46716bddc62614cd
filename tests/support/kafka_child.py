"""Running totals written to a topic by a process of its own, to be killed.

``python -m tests.support.kafka_child SERVERS TOPIC CHECKPOINT EPOCHS`` says on standard output what
it is at, a line each: ``sending 3``, ``sent 3``, ``committed 3``, ``epoch 3``. It dawdles there, so
that a kill finds it in each.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.kafka import KafkaSink
from flow.connectors.kafka.writing.sending import Sender
from flow.testing import TestingSource
from recovery import RecoveryConfig

SIZE, KEYS = 60, 7
LINES = 4
"""Lines that an epoch says."""
DAWDLES = 0.05


def items(epochs: int) -> list[tuple[str, int]]:
    """Return the items of all epochs."""
    return [(f"k{number % KEYS}", number) for number in range(epochs * SIZE)]


def expected(epochs: int) -> dict[bytes, list[int]]:
    """Return the expected totals of each key in the topic, in order."""
    totals: dict[bytes, list[int]] = {}
    for key, number in items(epochs):
        of_key = totals.setdefault(key.encode(), [])
        of_key.append((of_key[-1] if of_key else 0) + number)
    return totals


def say(what: str, epoch: int) -> None:
    """Print a phase for the watching test, and wait."""
    print(what, epoch, flush=True)  # noqa: T201
    time.sleep(DAWDLES)


class DawdlingSink(KafkaSink):
    """Sink that prints its phases."""

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        say("sending", epoch)
        _epochs.append(epoch)
        super().commit(epoch, messages)
        say("committed", epoch)


_epochs: list[int] = []
_flush = Sender.flush


def dawdling_flush(sender: Sender, seconds: float) -> None:
    """Flush as the sink does, and report the messages as sent while the transaction is open."""
    _flush(sender, seconds)
    say("sent", _epochs[-1])


def make_flow(servers: str, topic: str, epochs: int) -> Dataflow:
    """Build the flow."""
    flow = Dataflow("totals")
    numbers = op.input("numbers", flow, TestingSource(items(epochs), batch_size=SIZE))
    totals = op.stateful_map("total", numbers, running_total)
    op.output("out", totals, DawdlingSink(servers, topic))
    return flow


def running_total(total: int | None, number: int) -> tuple[int, int]:
    """Add a number."""
    return (total or 0) + number, (total or 0) + number


def main(servers: str, topic: str, checkpoint: str, epochs: str) -> None:
    """Run the flow to its end, or to its death."""
    Sender.flush = dawdling_flush  # type: ignore[method-assign]
    run(
        make_flow(servers, topic, int(epochs)),
        recovery=RecoveryConfig(checkpoint),
        master="local[1]",
        shards=2,
        partitions=1,
        on_epoch=lambda report: say("epoch", report.epoch),
    )
    print("done", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
