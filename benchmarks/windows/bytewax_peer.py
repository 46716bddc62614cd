"""Bytewax's `fold_window` over the same objects, in memory, in batches of a thousand.

The module imports only the job from this project, so it can run on another Python.
"""

from __future__ import annotations

import gc
import pickle
import time
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.operators.windowing import EventClock, TumblingWindower, fold_window
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main
from typing_extensions import override

from benchmarks.windows.job import Figure, Job

WAIT = timedelta(seconds=10)
MINUTE_US = 60_000_000
START = datetime(1970, 1, 1, tzinfo=UTC)
BATCH = 1_000


def fold(job: Job) -> Figure:
    """Return the seconds of `run_main`; with the setting `wakes` it wakes up to close windows."""
    wakes = bool(job.settings["wakes"])
    _run(_batches(job.warm), wakes)
    batches = _batches(job.data)
    gc.freeze()  # The time should not include a search for garbage among all items.
    started = time.perf_counter()
    closed = _run(batches, wakes)
    seconds = time.perf_counter() - started
    Path(job.out).mkdir()
    rows = [_plain(item) for item in closed]
    (Path(job.out) / "all.pickle").write_bytes(pickle.dumps(rows))
    return Figure(seconds)


def _batches(folder: str) -> list[list[Any]]:
    files = sorted(Path(folder).glob("*.objects"))
    items = [item for path in files for item in pickle.loads(path.read_bytes())]
    return [items[first : first + BATCH] for first in range(0, len(items), BATCH)]


def _run(batches: list[list[Any]], wakes: bool) -> list[Any]:
    settings: dict[str, Any] = {} if wakes else {"to_system_utc": lambda _: None}
    clock: EventClock[Any] = EventClock(itemgetter(0), WAIT, **settings)
    minutes = TumblingWindower(length=timedelta(microseconds=MINUTE_US), align_to=START)
    flow, closed = Dataflow("folding"), list[Any]()
    events = op.input("events", flow, _Ready(batches))
    out = fold_window("windows", events, clock, minutes, float, _add, float.__add__)
    op.output("out", out.down, _ListSink(closed))
    run_main(flow)
    return closed


def _add(total: float, value: tuple[datetime, float]) -> float:
    return total + value[1]


def _plain(item: Any) -> tuple[str, int, int, float]:
    key, (window_id, total) = item
    return key, window_id * MINUTE_US, (window_id + 1) * MINUTE_US, total


class _Ready(DynamicSource[Any]):
    """Source of batches in memory."""

    def __init__(self, batches: list[list[Any]]) -> None:
        self._batches = batches

    @override
    def build(self, step_id: str, worker_index: int, worker_count: int) -> _ReadyPartition:
        return _ReadyPartition(self._batches)


class _ReadyPartition(StatelessSourcePartition[Any]):
    def __init__(self, batches: list[list[Any]]) -> None:
        self._batches = iter(batches)

    @override
    def next_batch(self) -> list[Any]:
        return next(self._batches)


class _ListSink(DynamicSink[Any]):
    """Sink that appends its items to a list."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    @override
    def build(self, step_id: str, worker_index: int, worker_count: int) -> _ListPartition:
        return _ListPartition(self._items)


class _ListPartition(StatelessSinkPartition[Any]):
    def __init__(self, items: list[Any]) -> None:
        self._items = items

    @override
    def write_batch(self, items: list[Any]) -> None:
        self._items.extend(items)
