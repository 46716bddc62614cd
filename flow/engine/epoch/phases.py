"""The phases of an epoch, measured on the driver.

The phases follow each other without a gap:

- ``waiting``: from the commit of the last epoch to the planning: Spark's commit of the state, the
  trigger's interval, and the time without new items.
- ``planning``: the sources plan the epoch.
- ``starting``: Spark logs the offsets, and plans the job.
- ``steps``: the job, which reads the input, runs the steps, and writes the outputs.
- ``commit``: the sinks commit, after the functions of sinks that take data frames.

A phase that an epoch does not have is missing: a replayed epoch is not planned again, and the first
epoch of a run follows no other.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PHASES = ("waiting", "planning", "starting", "steps", "commit")
"""The phases in order."""

BUSY_PHASES = PHASES[1:]
"""The phases in which an epoch is under way: their sum is the epoch's duration."""


class EpochTimer:
    """The start and the end of each phase; one epoch at a time.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._committed: float | None = None
        self._asked = 0.0
        self._phases: dict[str, float] = {}
        self._planned: float | None = None
        self._job_started = self._job_ended = 0.0

    def start_planning(self) -> None:
        """Begin the planning; a planning that finds no work is begun again."""
        self._asked = self._clock()

    def end_planning(self) -> None:
        """End the planning of an epoch."""
        self._planned = self._clock()
        self._phases["planning"] = self._planned - self._asked
        if self._committed is not None:
            self._phases["waiting"] = self._asked - self._committed

    def start_job(self) -> None:
        """Begin the job of an epoch."""
        self._job_started = self._clock()
        if self._planned is not None:
            self._phases["starting"] = self._job_started - self._planned

    def end_job(self) -> None:
        """End the job of an epoch."""
        self._job_ended = self._clock()
        self._phases["steps"] = self._job_ended - self._job_started

    def end_commit(self) -> dict[str, float]:
        """End the epoch, and return the duration of each phase in seconds, in order."""
        self._committed = self._clock()
        self._phases["commit"] = self._committed - self._job_ended
        ended, self._phases, self._planned = self._phases, {}, None
        return {name: ended[name] for name in PHASES if name in ended}
