"""The work of tasks in the phases of a job: reading, levels, and writing to sinks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class WorkPhase(Enum):
    """A phase of a job in which tasks work.

    Attributes:
        READING: sources read; for a data frame, tasks wait for Spark's rows.
        LEVELS: steps run, keyed steps with their state, and items are packed for shuffles.
        SINKS: sinks write.
    """

    READING = "reading"
    LEVELS = "levels"
    SINKS = "sinks"


class Work(NamedTuple):
    """Identity of a part of a job's work, which one process does without a second one beside it.

    Attributes:
        stage: the number of the stage; stages of a job follow each other.
        worker: the name of the Python worker.
        phase: the phase.
    """

    stage: int
    worker: str
    phase: WorkPhase


class TaskWork:
    """The time that a task has worked in each phase, measured for each chunk of items.

    Args:
        stage: the number of the task's stage: 0 for tasks that read, then that of the level.
    """

    def __init__(self, stage: int = 0) -> None:
        self._stage = stage
        self._ns: Counter[WorkPhase] = Counter()

    @contextmanager
    def timed(self, phase: WorkPhase) -> Iterator[None]:
        """Add the duration of the block to a phase; blocks must not contain each other."""
        start_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self._ns[phase] += time.perf_counter_ns() - start_ns

    def iterated(self, phase: WorkPhase, elements: Iterable[T]) -> Iterator[T]:
        """Yield elements, and add the time that they take to make to a phase."""
        remaining = iter(elements)
        while True:
            start_ns = time.perf_counter_ns()
            try:
                element = next(remaining)
            except StopIteration:
                return
            finally:
                self._ns[phase] += time.perf_counter_ns() - start_ns
            yield element

    def of_worker(self, worker: str) -> Counter[Work]:
        """Return the time in ns, as the work of a Python worker."""
        return Counter({Work(self._stage, worker, phase): ns for phase, ns in self._ns.items()})
