"""A flow of one windowing step, records for the flow, and its results on both paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pyarrow as pa

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key

E = TypeVar("E")

START = datetime(2023, 12, 14, 10, 30, tzinfo=UTC)
SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])
PORTS = ("down", "late", "closed")


def window_flow(
    clock: Any,
    windower: Any,
    aggregates: dict[str, Any],
    *,
    ordered: bool = False,
    emit: Any = "close",
    timestamp: Any = None,
) -> Dataflow:
    """Return a flow that aggregates the records of each user, with an output for each port."""
    flow = Dataflow("windows")
    stream = op.key_on("key", op.input("in", flow, TestingSource([])), "user")
    out = win.aggregate_window(
        "w",
        stream,
        clock,
        windower,
        ordered=ordered,
        emit=emit,
        timestamp=timestamp,
        **aggregates,
    )
    add_outputs(out)
    return flow


def add_outputs(out: Any) -> None:
    """Add an output for each port of a windowing step."""
    for port in PORTS:
        op.output(port, getattr(out, port), TestingSink([]))


def records(epoch: list[tuple[str, int]], first: int | None = None) -> pa.RecordBatch:
    """Return records of users and seconds after `START`.

    Args:
        epoch: user and second of each record.
        first: the number of the first record; by default a record's number is its second.
    """
    rows = [
        {
            "user": user,
            "ts": START + timedelta(seconds=second),
            "n": second if first is None else first + place,
        }
        for place, (user, second) in enumerate(epoch)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def results_by_key(driver: TestDriver) -> dict[str, Any]:
    """Return what each port emitted for each key, and the step's counts.

    Values are texts, in which nan equals nan and 1 differs from 1.0.
    """
    found: dict[str, Any] = {}
    for port in PORTS:
        of_key: dict[str, list[str]] = {}
        for key, value in driver.received(port):
            of_key.setdefault(key, []).append(repr(value))
        found[port] = of_key
    counts = driver.stats.counts
    found["counted"] = {what: n for (step, what), n in counts.items() if step == "w" and n}
    return found


def on_path(alone: bool) -> AbstractContextManager[None]:
    """Run steps key by key if `alone`, else over columns."""
    return key_by_key() if alone else nullcontext()


def check_paths_agree(
    flow: Dataflow,
    epochs: Sequence[E],
    alone: Sequence[bool],
    play: Callable[[TestDriver, E], None],
) -> None:
    """Check that results do not depend on the path of each epoch.

    Args:
        flow: a flow of `window_flow`.
        epochs: the epochs, no more than `alone` has elements.
        alone: True for an epoch that runs key by key.
        play: a function that runs an epoch.
    """

    def outcome(paths: Sequence[bool]) -> dict[str, Any]:
        with TestDriver(flow, now=START) as t:
            for epoch, is_alone in zip(epochs, paths, strict=False):
                with on_path(is_alone):
                    play(t, epoch)
            t.end()
            return results_by_key(t)

    expected = outcome([True] * len(alone))
    assert outcome([False] * len(alone)) == expected
    assert outcome(alone) == expected
