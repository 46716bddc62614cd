"""Progress of a run: in a terminal's status line, below a notebook's cell, or in the log ``flow``.

IPython is not imported: a program that runs in a notebook has loaded it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from html import escape
from importlib.metadata import version
from typing import Any, Generic, Protocol, TextIO, TypeAlias, TypeVar, cast

from flow.dataflow import Dataflow
from flow.engine.epoch.statistics import STATISTICS
from flow.engine.epoch.summary import EpochReport
from flow.engine.feed.clocks import SystemTime, wall_time
from flow.errors import printable
from flow.instants import datetime_us
from flow.operators.edges import Input, Output

logger = logging.getLogger("flow")

LOG_INTERVAL_SECONDS = 10.0
"""The least time between two lines in the log."""

RATE_SECONDS = 10.0
"""The period over which items a second are measured."""


class Progress:
    """A report of the progress of a run after each epoch; for ``run(flow, on_epoch=...)``.

    Args:
        flow: the flow that runs.
        line: the status line to write to; by default, the log.
        clock: the clock that measures rates.
        wall: the machine's clock, against which the delay of system time is measured.
    """

    def __init__(
        self,
        flow: Dataflow,
        line: Line | None = None,
        clock: Seconds = time.monotonic,
        wall: SystemTime = wall_time,
    ) -> None:
        self._inputs = [step.step_id for step in flow.steps if isinstance(step.operator, Input)]
        self._line = line
        self._clock = clock
        self._wall = wall
        self._outputs = [step.step_id for step in flow.steps if isinstance(step.operator, Output)]
        self._began: float | None = clock()
        self._moves = True
        self._counts: Counter[str] = Counter()
        self._samples = RateWindow[int]()
        self._log_limit = RateLimit(LOG_INTERVAL_SECONDS, clock)

    def begin_spark(self) -> None:
        """Show that Spark starts, in the version of the installed PySpark."""
        self._begin(f"starting Spark {version('pyspark')}")

    def begin_reading(self) -> None:
        """Show the inputs that are read; called as Spark has started."""
        self._begin(f"reading {', '.join(self._inputs)}")

    def _begin(self, what: str) -> None:
        if self._line is not None:
            self._line.show(what)
        else:
            logger.info("%s", printable(what))

    def __call__(self, report: EpochReport) -> None:
        """Add an epoch's counts, and show the progress.

        The log has a line in ten seconds at most, while items move; one as they stop, and one as
        they move again.
        """
        self._note_first_result(report)
        moved, self._moves = self._moves, any(report.counts.values())
        self._counts["read"] += sum(report.count(step_id, "out") for step_id in self._inputs)
        for (_, name), count in report.counts.items():
            self._counts[name] += count
        text = " | ".join(self._parts(report))
        if self._line is not None:
            self._line.show(text)
        elif self._moves is not moved or (self._moves and self._log_limit.allows()):
            logger.info("%s", printable(text))

    def _note_first_result(self, report: EpochReport) -> None:
        """Log the time from the start of the run to the first item in an output."""
        if self._began is not None and any(report.count(name, "in") for name in self._outputs):
            logger.info("first result after %.1f s", self._clock() - self._began)
            self._began = None

    def _parts(self, report: EpochReport) -> Iterator[str]:
        """Yield the parts of the progress line: epoch, items, rate, times, and lost items."""
        yield f"epoch {report.epoch}"
        if not self._moves:
            yield "idle"
        yield f"{self._counts['read']:,} items in"
        rate = self._rate()
        if rate is not None:
            yield f"{rate:,.0f} items/s"
        yield from self._times(report)
        for each in STATISTICS:
            if each.in_progress and self._counts[each.name]:
                yield f"{self._counts[each.name]:,} {each.in_progress}"

    def _rate(self) -> float | None:
        """Return items a second since the last epoch that ended at least `RATE_SECONDS` ago."""
        now = self._clock()
        before, items = self._samples.add(now, self._counts["read"])
        return (self._counts["read"] - items) / (now - before) if now > before else None

    def _times(self, report: EpochReport) -> Iterator[str]:
        """Yield system time and its delay. A batch has neither."""
        time = report.system_time
        if time is not None:
            yield f"{time:%H:%M:%S} UTC"
        if report.lag:
            has_names = len(self._inputs) > 1
            yield ", ".join(
                f"{name}: {lag}" if has_names else lag for name, lag in report.lag.items()
            )
        elif time is not None:
            yield f"{max(0, self._wall() - datetime_us(time)) / 1e6:.1f} s behind"


class Line(Protocol):
    """A line that shows the latest of several texts."""

    def show(self, text: str) -> None:
        """Show a text in the place of the text before."""


class StatusLine:
    """The last line of a terminal, overwritten in place below all other output.

    Args:
        terminal: the terminal's stream.
    """

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._lock = threading.RLock()
        self._is_shown = False
        self._is_mid_line = False

    @classmethod
    def on(cls, stream: TextIO) -> StatusLine | None:
        """Return the status line of a terminal; ``None`` for a stream that cannot overwrite."""
        can_overwrite = stream.isatty() and os.environ.get("TERM") != "dumb"
        return cls(stream) if can_overwrite else None

    def show(self, text: str) -> None:
        """Show a text, unless other output is in the middle of a line."""
        with self._lock:
            if not self._is_mid_line:
                line = printable(" ".join(text.split()))
                self._write_to_terminal(f"\r\x1b[K{line[: self._width() - 1]}")
                self._is_shown = True

    def clear(self) -> None:
        """Remove the line's text."""
        with self._lock:
            if self._is_shown:
                self._write_to_terminal("\r\x1b[K")
                self._is_shown = False

    @contextlib.contextmanager
    def below_output(self) -> Iterator[None]:
        """Redirect the output of the block to lines above the status line."""
        out, err = sys.stdout, sys.stderr
        if out.isatty():
            sys.stdout = cast(TextIO, _StreamAbove(out, self))
        sys.stderr = cast(TextIO, _StreamAbove(err, self))
        try:
            yield
        finally:
            self.clear()
            sys.stdout, sys.stderr = out, err

    def write_above(self, stream: TextIO, text: str) -> int:
        """Remove the status line, and write to another stream of the same terminal."""
        with self._lock:
            self.clear()
            if text:
                self._is_mid_line = not text.endswith("\n")
            return stream.write(text)

    def _write_to_terminal(self, text: str) -> None:
        """Write text to the terminal as it is, and flush; errors of the terminal are ignored."""
        with contextlib.suppress(OSError, ValueError):  # A closed terminal must not stop a flow.
            self._terminal.write(text)
            self._terminal.flush()

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._terminal.fileno()).columns or 80
        except (OSError, ValueError):
            return 80


class _StreamAbove:
    """A stream that removes the status line before each write."""

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


_INTERVAL_SECONDS = 0.25
"""The least time between two changes of a line: a notebook stores each on its way."""


class CellLine:
    """A line below the cell that runs now, overwritten in place; any thread may show a text.

    Args:
        display: IPython's function to show an object.
        clock: the clock that limits the rate of changes.
    """

    def __init__(self, display: Any, clock: Seconds = time.monotonic) -> None:
        self._display = display
        self._id = uuid.uuid4().hex
        self._limit = RateLimit(_INTERVAL_SECONDS, clock)
        self._lock = threading.Lock()
        self._shown: str | None = None
        self._latest = ""

    @classmethod
    def here(cls) -> CellLine | None:
        """Return a line below the cell that runs now; ``None`` outside a notebook."""
        return cls(sys.modules["IPython.display"].display) if in_notebook() else None

    def show(self, text: str) -> None:
        """Show a text now, or soon after the text before."""
        with self._lock:
            self._latest = text
            if self._limit.allows():
                self._push()

    def end(self) -> None:
        """Show the last text."""
        with self._lock:
            if self._latest != self._shown:
                self._push()

    def _push(self) -> None:
        text = printable(" ".join(self._latest.split()))
        html = f'<span style="font-variant-numeric: tabular-nums">{escape(text)}</span>'
        bundle = {"text/plain": text, "text/html": html}
        is_update = self._shown is not None
        self._shown = self._latest
        with contextlib.suppress(Exception):  # A closed notebook must not stop a flow.
            self._display(bundle, raw=True, display_id=self._id, update=is_update)


class CellInterrupted(KeyboardInterrupt):
    """The interrupt of a cell, which a notebook shows as one line."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in the place of a trace."""
        return [str(self)]


def in_notebook() -> bool:
    """Return True in the kernel of a notebook."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return getattr(shell, "kernel", None) is not None and "IPython.display" in sys.modules


Seconds: TypeAlias = Callable[[], float]
"""A monotonic clock, in seconds."""


SampleT = TypeVar("SampleT")


class RateWindow(Generic[SampleT]):
    """The samples of totals of the last seconds, from which rates are measured.

    Args:
        seconds: the period.
    """

    def __init__(self, seconds: float = RATE_SECONDS) -> None:
        self._seconds = seconds
        self._samples: deque[tuple[float, SampleT]] = deque()

    def add(self, now: float, sample: SampleT) -> tuple[float, SampleT]:
        """Add a sample; return the newest that is at least the period old, or the first."""
        samples = self._samples
        samples.append((now, sample))
        while len(samples) > 2 and samples[1][0] <= now - self._seconds:
            samples.popleft()
        return samples[0]


class RateLimit:
    """A limit of one event per interval; the first event is always allowed."""

    def __init__(self, seconds: float, clock: Seconds) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next = float("-inf")

    def allows(self) -> bool:
        """Return True if an event may happen now, and start the next interval then."""
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True
