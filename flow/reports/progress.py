"""What a run shows of itself: progress, what was dropped or late, or what went wrong.

On a terminal progress is one line that is written over and over; elsewhere it is a line in the log
of the logger ``flow`` now and then.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TextIO, cast

from flow.dataflow import Dataflow
from flow.durations import duration_text
from flow.engine.epoch.context import LateSource, Stats
from flow.engine.epoch.lateness import ENOUGH, wait_needed_us
from flow.engine.feed.feed import Feed, SystemTime, wall_time
from flow.engine.plan.plan import Plan
from flow.errors import printable
from flow.instants import from_us
from flow.operators.edges import Input

logger = logging.getLogger("flow")

LOG_SECONDS = 10.0
"""How often the log is written to at most."""

LATE_SECONDS = 60.0
"""How often a step's late values are warned of at most."""

RATE_SECONDS = 10.0
"""How far back the items a second are measured."""

Seconds = Callable[[], float]
"""A clock that never goes back."""

_SHOWN = {"late": "late", "gap": "in gaps", "dropped": "dropped", "invalid": "invalid"}
"""What the line shows of what was counted, and in which words."""


class Progress:
    """Shows how a run gets on; given to ``run(flow, on_epoch=...)``.

    Args:
        flow: the flow that runs.
        line: the terminal's line to write to; the log when left out.
        clock: the clock that rates are measured with.
        wall: the time of day, to tell how far behind it system time is.
    """

    def __init__(
        self,
        flow: Dataflow,
        line: StatusLine | None = None,
        clock: Seconds = time.monotonic,
        wall: SystemTime = wall_time,
    ) -> None:
        self._inputs = [step.step_id for step in flow.steps if isinstance(step.operator, Input)]
        self._line = line
        self._clock = clock
        self._wall = wall
        self._counts: Counter[str] = Counter()
        self._samples: deque[tuple[float, int]] = deque()
        self._pause = _Pause(LOG_SECONDS, clock)

    def __call__(self, epoch: int, stats: Stats, feed: Feed | None) -> None:
        """Take in what an epoch counted, and show it."""
        self._counts["read"] += sum(stats.counts[step_id, "out"] for step_id in self._inputs)
        for (_, what), count in stats.counts.items():
            self._counts[what] += count
        text = " | ".join(self._parts(epoch, feed))
        if self._line is not None:
            self._line.show(text)
        elif self._pause.over():
            logger.info("%s", printable(text))

    def _parts(self, epoch: int, feed: Feed | None) -> Iterator[str]:
        yield f"epoch {epoch}"
        yield f"{self._counts['read']:,} items in"
        rate = self._rate()
        if rate is not None:
            yield f"{rate:,.0f} items/s"
        if feed is not None:
            yield from _times(feed, self._wall())
        for what, shown in _SHOWN.items():
            if self._counts[what]:
                yield f"{self._counts[what]:,} {shown}"

    def _rate(self) -> float | None:
        """Items a second since the last epoch that is at least `RATE_SECONDS` ago."""
        samples, now = self._samples, self._clock()
        samples.append((now, self._counts["read"]))
        while len(samples) > 2 and samples[1][0] <= now - RATE_SECONDS:
            samples.popleft()
        before, items = samples[0]
        return (self._counts["read"] - items) / (now - before) if now > before else None


def _times(feed: Feed, wall_us: int) -> Iterator[str]:
    """System time, which is not known of an epoch that is run again, and how far behind it is."""
    control = feed.last.control
    if control is not None:
        yield f"{from_us(control.moment.now_us):%H:%M:%S} UTC"
    known = {step_id: lag for step_id, lag in feed.lag.items() if lag}
    if known:
        named = len(feed.planners) > 1
        yield ", ".join(f"{name}: {lag}" if named else lag for name, lag in known.items())
    elif control is not None:
        yield f"{max(0, wall_us - control.moment.now_us) / 1e6:.1f} s behind"


class DropWarnings:
    """Logs examples of what a run drops, now and then, however much it is."""

    def __init__(self, clock: Seconds = time.monotonic) -> None:
        self._pause = _Pause(LOG_SECONDS, clock)
        self._held_back = 0

    def __call__(self, stats: Stats) -> None:
        """Log an epoch's examples, or keep count of them for when it is time to log again."""
        if not stats.notes:
            return
        if not self._pause.over():
            self._held_back += len(stats.notes)
            return
        for note in stats.notes:
            logger.warning("%s", printable(note))
        if self._held_back:
            logger.warning("%d more such messages were left out", self._held_back)
        self._held_back = 0


class LateWarnings:
    """Warns, now and then, of a step's late values while nothing reads its stream of them.

    Args:
        plan: the compiled flow, which says what is read.
        clock: the clock that pauses are measured with.
    """

    def __init__(self, plan: Plan, clock: Seconds = time.monotonic) -> None:
        self._pauses = {
            down.step_id: _Pause(LATE_SECONDS, clock)
            for step in plan.steps.values()
            for down in step.downs[1:]
            if down.port == "late" and not plan.hops_of(down)
        }
        self._unsaid: Counter[str] = Counter()
        self._lateness: dict[str, Counter[int]] = {step_id: Counter() for step_id in self._pauses}
        self._sources: dict[str, Counter[LateSource]] = {name: Counter() for name in self._pauses}

    def __call__(self, stats: Stats) -> None:
        """Take in what an epoch counted, and warn of what has not been said."""
        for (step_id, late_by_us), count in stats.lateness.items():
            if step_id in self._lateness:
                self._lateness[step_id][late_by_us] += count
        for one, count in stats.late_sources.items():
            if one.step_id in self._sources:
                self._sources[one.step_id][one] += count
        for step_id, pause in self._pauses.items():
            self._unsaid[step_id] += stats.counts[step_id, "late"]
            count = self._unsaid[step_id]
            if count and pause.over():
                were = "1 value was" if count == 1 else f"{count:,} values were"
                said = "step %r: %s late and nothing reads its `late` stream%s"
                lateness, sources = self._lateness[step_id], self._sources[step_id]
                logger.warning(said, step_id, were, wait_advice(lateness, sources))
                self._unsaid[step_id] = 0
                lateness.clear()
                sources.clear()


def wait_advice(
    late_by_us: Mapping[int, int], sources: Mapping[LateSource, int] | None = None
) -> str:
    """Say which longer wait late values needed, and where most came from; empty if not known.

    Args:
        late_by_us: how many values were late by each duration, in microseconds.
        sources: how many were late, by where they came from.

    >>> wait_advice({4_100_000: 99, 60_000_000: 1}, {LateSource("hourly", "b.csv", "a.csv"): 80})
    ': a wait_for_system_duration longer by 4s100ms would have been enough for 99 % of them; \
80 of them came from b.csv, while a.csv was furthest ahead'
    """
    needed_us = wait_needed_us(late_by_us)
    if not needed_us:
        return ""
    share = "all" if needed_us == max(late_by_us) else f"{ENOUGH * 100:.0f} %"
    longer = duration_text(needed_us)
    return (
        f": a wait_for_system_duration longer by {longer} would have been enough for {share} "
        f"of them{printable(_source_advice(sources or {}))}"
    )


def _source_advice(sources: Mapping[LateSource, int]) -> str:
    if not sources:
        return ""
    most = max(sources, key=sources.__getitem__)
    behind = (
        "out of order within it"
        if most.came_from == most.ahead
        else f"while {most.ahead} was furthest ahead"
    )
    return f"; {sources[most]:,} of them came from {most.came_from}, {behind}"


class _Pause:
    """Lets something happen at once, and then not again before some seconds have passed."""

    def __init__(self, seconds: float, clock: Seconds) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next = float("-inf")

    def over(self) -> bool:
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


class StatusLine:
    """The last line of a terminal, written over and over, below all that is printed otherwise.

    Args:
        terminal: the terminal's stream.
    """

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._lock = threading.RLock()
        self._shown = False
        self._half = False

    @classmethod
    def on(cls, stream: TextIO) -> StatusLine | None:
        """The line of a stream that is a terminal which can write over a line."""
        able = stream.isatty() and os.environ.get("TERM") != "dumb"
        return cls(stream) if able else None

    def show(self, text: str) -> None:
        """Put a text in the line; while somebody is in the middle of a line of theirs, nothing."""
        with self._lock:
            if not self._half:
                shown = printable(" ".join(text.split()))
                self._put(f"\r\x1b[K{shown[: self._width() - 1]}")
                self._shown = True

    def clear(self) -> None:
        """Take away what the line shows."""
        with self._lock:
            if self._shown:
                self._put("\r\x1b[K")
                self._shown = False

    @contextlib.contextmanager
    def below_output(self) -> Iterator[None]:
        """Let all that is printed meanwhile to this terminal take the line's place first."""
        out, err = sys.stdout, sys.stderr
        if out.isatty():
            sys.stdout = cast(TextIO, _Above(out, self))
        sys.stderr = cast(TextIO, _Above(err, self))
        try:
            yield
        finally:
            self.clear()
            sys.stdout, sys.stderr = out, err

    def write_above(self, stream: TextIO, text: str) -> int:
        """Write to a stream that shows on the same terminal."""
        with self._lock:
            self.clear()
            if text:
                self._half = not text.endswith("\n")
            return stream.write(text)

    def _put(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a terminal that is gone stops no flow
            self._terminal.write(text)
            self._terminal.flush()

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._terminal.fileno()).columns or 80
        except (OSError, ValueError):
            return 80


class _Above:
    """A stream whose writers have the status line out of their way."""

    def __init__(self, stream: TextIO, line: StatusLine) -> None:
        self._stream = stream
        self._line = line

    def write(self, text: str) -> int:
        return self._line.write_above(self._stream, text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
