"""Progress of a run, as a terminal's status line, or as lines in the log of the logger ``flow``."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterator

from flow.dataflow import Dataflow
from flow.engine.epoch.summary import EpochReport
from flow.engine.feed.system_time import SystemTime, wall_time
from flow.errors import printable
from flow.instants import datetime_us
from flow.operators.edges import Input
from flow.reports.rate_limit import RateLimit, Seconds
from flow.reports.status_line import Line

logger = logging.getLogger("flow")

LOG_INTERVAL_SECONDS = 10.0
"""The least time between two lines in the log."""

RATE_SECONDS = 10.0
"""The period over which items a second are measured."""

_LABELS = {"late": "late", "gap": "in gaps", "dropped": "dropped", "invalid": "invalid"}
"""The counts of lost items that the line shows, with their labels."""


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
        self._counts: Counter[str] = Counter()
        self._samples: deque[tuple[float, int]] = deque()
        self._log_limit = RateLimit(LOG_INTERVAL_SECONDS, clock)

    def __call__(self, report: EpochReport) -> None:
        """Add an epoch's counts, and show the progress."""
        self._counts["read"] += sum(report.count(step_id, "out") for step_id in self._inputs)
        for (_, name), count in report.counts.items():
            self._counts[name] += count
        text = " | ".join(self._parts(report))
        if self._line is not None:
            self._line.show(text)
        elif self._log_limit.allows():
            logger.info("%s", printable(text))

    def _parts(self, report: EpochReport) -> Iterator[str]:
        """Yield the parts of the progress line: epoch, items, rate, times, and lost items."""
        yield f"epoch {report.epoch}"
        yield f"{self._counts['read']:,} items in"
        rate = self._rate()
        if rate is not None:
            yield f"{rate:,.0f} items/s"
        yield from self._times(report)
        for name, label in _LABELS.items():
            if self._counts[name]:
                yield f"{self._counts[name]:,} {label}"

    def _rate(self) -> float | None:
        """Return items a second since the last epoch that ended at least `RATE_SECONDS` ago."""
        samples, now = self._samples, self._clock()
        samples.append((now, self._counts["read"]))
        while len(samples) > 2 and samples[1][0] <= now - RATE_SECONDS:
            samples.popleft()
        before, items = samples[0]
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
