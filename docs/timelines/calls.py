"""The timeline of async calls: when each attempt runs, and when the results leave."""

from __future__ import annotations

import asyncio
import selectors
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

import flow.operators as op
from flow.columns.chunks import Items
from flow.engine.calls.chunk_calls import ChunkCalls, call_ids
from flow.engine.epoch.context import TaskContext
from flow.instants import Moment
from flow.operators.async_calls import MapAsync
from timelines.chart import ROW, TOP, WIDTH, Axis
from timelines.svg import Drawing


class Call(NamedTuple):
    """A call.

    Attributes:
        label: the name of its item in the picture.
        key: the key of its item.
        seconds: the time that each attempt takes.
        failures: the number of attempts that fail.
    """

    label: str
    key: str
    seconds: float
    failures: int = 0


class Attempt(NamedTuple):
    """An attempt of a call, in seconds since the start of the epoch."""

    call: Call
    begin: float
    end: float
    failed: bool


@dataclass(frozen=True)
class CallsRun:
    """A run of the calls of an epoch.

    Attributes:
        calls: the calls, in the order of their items.
        attempts: the attempts, in the order in which they ended.
        end: the time at which the results leave.
    """

    calls: tuple[Call, ...]
    attempts: tuple[Attempt, ...]
    end: float


class _Jump(selectors.SelectSelector):
    """A selector whose waits take no time, and move the time of its loop."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which only waits take time."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


def run_calls(
    calls: Sequence[Call], capacity: int, order: Literal["input", "key"], retry: op.Retry
) -> CallsRun:
    """Run the calls of one batch in virtual time."""
    tried: Counter[Call] = Counter()
    attempts: list[Attempt] = []
    loop = _VirtualLoop()

    async def call(pair: tuple[str, Call]) -> None:
        of, begin = pair[1], loop.time()
        tried[of] += 1
        await asyncio.sleep(of.seconds)
        failed = tried[of] <= of.failures
        attempts.append(Attempt(of, begin, loop.time(), failed))
        if failed:
            raise ConnectionError

    kind = MapAsync(call, None, capacity, 60_000_000, retry, order, errors=False)
    items = Items([(one.key, one) for one in calls], np.arange(len(calls)))
    ids = call_ids("call", items, TaskContext(Moment(0)))
    try:
        loop.run_until_complete(ChunkCalls(kind, "call", items.items, ids).run("docs"))
        return CallsRun(tuple(calls), tuple(attempts), loop.time())
    finally:
        loop.close()


def draw_calls(
    title: str, description: str, axis: Axis, panels: Sequence[tuple[str, CallsRun]]
) -> str:
    """Draw the attempts of each call, a row for each call, and below them the next run."""
    drawing = Drawing(title, description)
    rows = sum(len(run.calls) + 1 for _, run in panels)
    bottom = TOP + ROW * rows + 4
    for mark in axis.marks():
        drawing.line(axis.x(mark), TOP, axis.x(mark), bottom, "grid")
        drawing.text(axis.x(mark), bottom + 14, axis.label(mark), "dim", "middle")
    drawing.text(WIDTH - 14, bottom + 14, axis.unit, "dim", "end")
    y = TOP + ROW / 2
    for name, run in panels:
        drawing.text(14, y, name, "code")
        y += ROW
        top = y - ROW / 2
        for call in run.calls:
            drawing.text(14, y, f"{call.label}, key {call.key}", "dim")
            for attempt in run.attempts:
                if attempt.call == call:
                    _draw_attempt(drawing, axis, attempt, y)
            y += ROW
        drawing.line(axis.x(run.end), top, axis.x(run.end), y - ROW / 2, "end")
        drawing.text(axis.x(run.end) + 8, top + ROW / 2, "results leave", "dim")
    return drawing.svg(WIDTH, bottom + 34)


def _draw_attempt(drawing: Drawing, axis: Axis, attempt: Attempt, y: float) -> None:
    left, right = axis.x(attempt.begin), axis.x(attempt.end)
    drawing.rect(left, y - 8, right - left, 16, "down" if attempt.failed else "window")
    label = "fails" if attempt.failed else attempt.call.label
    drawing.text((left + right) / 2, y, label, "dim" if attempt.failed else "", "middle")
