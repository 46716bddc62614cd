"""The phases of an epoch, measured on the driver.

The phases follow each other without a gap, but for those of the job:

- ``waiting``: from the commit of the last epoch to the planning: Spark's commit of the state, the
  trigger's interval, and the time without new items.
- ``planning``: the sources plan the epoch.
- ``starting``: Spark logs the offsets, and plans the job.
- ``reading``, ``levels``, ``sinks``: the tasks of the job read, run the steps, and write to sinks.
- ``spark``: the rest of the job's duration: scheduling, shuffles, the JVM, the start of Python, and
  the way of items between the JVM and Python.
- ``commit``: the sinks commit, after the functions of sinks that take data frames.

A phase that an epoch does not have is missing: a replayed epoch is not planned again, and the first
epoch of a run follows no other.

The tasks of a job run side by side, and each alternates between phases, so `split_job` estimates
the duration of ``reading``, ``levels`` and ``sinks`` from the time that tasks worked in them. A job
is a sequence of stages: one that reads, and one for each level. A stage lasts at least as long as
its busiest worker works, and at least as long as all of its work takes on all slots of the session,
which is the number of tasks that run at a time::

    max(greatest work of a worker, work of all workers / slots)

The longer of the two is taken: each phase gets what the busiest worker worked in it, or the work of
all workers in it by the slots. The duration of a phase is the sum over stages, and ``spark`` is
what remains of the job. If the sum is longer than the job, as where one task writes while another
one still reads, the three phases are scaled down to the job, and nothing remains. So no phase is
negative, and the four have the job's duration as their sum.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from flow.engine.epoch.statistics import Work, WorkPhase

PHASES = ("waiting", "planning", "starting", "reading", "levels", "sinks", "spark", "commit")
"""The phases in order."""


class EpochTimer:
    """The start and the end of each phase; one epoch at a time.

    Args:
        clock: returns the time in seconds.
        slots: the number of tasks that run at a time.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, slots: int = 1) -> None:
        self._clock = clock
        self._slots = slots
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

    def end_job(self, work_ns: Mapping[Work, int]) -> None:
        """End the job of an epoch.

        Args:
            work_ns: the time that tasks worked, in ns.
        """
        self._job_ended = self._clock()
        self._phases |= split_job(self._job_ended - self._job_started, work_ns, self._slots)

    def end_commit(self) -> dict[str, float]:
        """End the epoch, and return the duration of each phase in seconds, in order."""
        self._committed = self._clock()
        self._phases["commit"] = self._committed - self._job_ended
        ended, self._phases, self._planned = self._phases, {}, None
        return {name: ended[name] for name in PHASES if name in ended}


def split_job(seconds: float, work_ns: Mapping[Work, int], slots: int) -> dict[str, float]:
    """Return the duration of each phase of a job in seconds; their sum is that of the job.

    Args:
        seconds: the duration of the job.
        work_ns: the time that tasks worked, in ns.
        slots: the number of tasks that run at a time.
    """
    found = dict.fromkeys(WorkPhase, 0.0)
    for of_workers in _by_stage(work_ns).values():
        for phase, ns in _longest(list(of_workers.values()), slots).items():
            found[phase] += ns / 1e9
    bound = sum(found.values())
    scale = seconds / bound if bound > seconds else 1.0
    split = {phase.value: duration * scale for phase, duration in found.items()}
    return {**split, "spark": max(0.0, seconds - sum(split.values()))}


def _by_stage(work_ns: Mapping[Work, int]) -> dict[int, dict[str, Counter[WorkPhase]]]:
    """Return the work in each phase by stage, and then by worker."""
    by_stage: dict[int, dict[str, Counter[WorkPhase]]] = {}
    for (stage, worker, phase), ns in work_ns.items():
        by_stage.setdefault(stage, {}).setdefault(worker, Counter())[phase] += ns
    return by_stage


def _longest(workers: Sequence[Counter[WorkPhase]], slots: int) -> dict[WorkPhase, float]:
    """Return the work of the busiest worker or a slot's share of all work, whichever is longer."""
    busiest = max(workers, key=Counter.total)
    total = sum(workers, Counter[WorkPhase]())
    if busiest.total() * slots >= total.total():
        return {phase: float(ns) for phase, ns in busiest.items()}
    return {phase: ns / slots for phase, ns in total.items()}
