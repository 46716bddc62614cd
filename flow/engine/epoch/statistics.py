"""The statistics of an epoch: counters and sizes of steps, late values, the work of tasks.

Tasks make statistics, which the driver merges. `STATISTICS` declares the counters and sizes of
steps that the reports, the metrics and the live page know by name.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

from flow.columns.chunks import Chunk, Pairs
from flow.dataflow import Step
from flow.errors import cut_text, shorten
from flow.instants import NEVER, datetime_us
from flow.keyed.logic import LATE_PORT, Late

K = TypeVar("K")
T = TypeVar("T")

SeenFields: TypeAlias = dict[tuple[str, str], "tuple[str, ...] | None"]
"""By step and path: ``None`` if a record had the field, else the fields that records had."""

SourcePartition: TypeAlias = tuple[str, int]
"""A partition of a source: the input's step, and the partition's number."""


@dataclass(frozen=True)
class Statistic:
    """A counter of steps, or a size of their state; the sum over tasks.

    Attributes:
        name: the name in `Stats.counts`, or of a size in `Stats.gauges`.
        meaning: the meaning, as a row of the documentation and as the help of the metric. A counter
            without one is a label of ``flow_step_other_items_total``.
        unit: the unit of the metric; ``items`` for all counters.
        own_metric: the name of the metric, if not the one that follows from that of the statistic.
        scale: the factor from the statistic to the metric.
        column: the heading in the table at the end of a run; empty without a column.
        is_always_shown: True for a column that is shown even if it is empty.
        in_progress: the label in the line of progress; empty for a counter that it does not show.
        is_loss: True for a counter of values that are lost, which the page shows in red.
    """

    name: str
    meaning: str = ""
    unit: str = "items"
    own_metric: str = ""
    scale: float = 1
    column: str = ""
    is_always_shown: bool = False
    in_progress: str = ""
    is_loss: bool = False

    @property
    def is_counter(self) -> bool:
        """True for a counter of items, False for a size."""
        return self.unit == "items"

    @property
    def metric(self) -> str:
        """The name of the metric."""
        suffix = "_items_total" if self.is_counter else ""
        return self.own_metric or f"flow_step_{self.name}{suffix}"

    @property
    def label(self) -> str:
        """The name in words, without a unit."""
        name = self.name if self.is_counter else self.metric.removeprefix("flow_step_")
        return name.removesuffix("_bytes").removesuffix("_seconds").replace("_", " ")

    @property
    def is_shown_size(self) -> bool:
        """True for a size that the page and the table show of the steps that have it."""
        return not self.is_counter and bool(self.column) and not self.is_always_shown


OPEN_WINDOWS, BUFFERED_VALUES = "open_windows", "buffered_values"
"""The sizes of a step whose windows and buffered values are counted."""

STATISTICS = (
    Statistic("in", "items that a step has read", column="in", is_always_shown=True),
    Statistic(
        "out",
        "items that a step has emitted on its first stream; all streams of a stateless step",
        column="out",
        is_always_shown=True,
    ),
    Statistic("filtered", "items that a filter has removed", column="filtered"),
    Statistic(
        "late",
        "late values of a step, those too far ahead and in gaps included",
        column="late",
        in_progress="late",
        is_loss=True,
    ),
    Statistic("gap", column="gap", in_progress="in gaps", is_loss=True),
    Statistic("dropped", column="dropped", in_progress="dropped", is_loss=True),
    Statistic("invalid", column="invalid", in_progress="invalid", is_loss=True),
    Statistic("errors", column="errors", is_loss=True),
    Statistic("too_far_ahead", is_loss=True),
    Statistic(
        "keys",
        "keys with state, after the last epoch",
        "keys",
        column="keys",
        is_always_shown=True,
    ),
    Statistic("state_bytes", "size of the state, after the last epoch", "bytes"),
    Statistic(
        OPEN_WINDOWS,
        "open windows of a step with windows, after the last epoch; 0 for a join by time",
        "windows",
        column="windows",
    ),
    Statistic(
        BUFFERED_VALUES,
        "values that wait for the watermark, or that a join by time retains, after the last epoch",
        "values",
        column="buffered",
    ),
    Statistic(
        "apart_us",
        "distance in event time of the source partitions that feed a step, where some hold its "
        "watermarks",
        "seconds",
        "flow_step_partitions_apart_seconds",
        scale=1e-6,
    ),
)
"""The statistics in the order of columns, labels and metrics."""


class StepBound(NamedTuple):
    """The bound of a step's watermarks at the end of an epoch, and what sets it.

    Attributes:
        bound_us: the bound, in µs.
        set_by: the step that holds it, or the input whose source partition is behind.
        partition: the number of the source partition; -1 for a step.
    """

    bound_us: int
    set_by: str
    partition: int = -1

    @property
    def setter(self) -> str:
        """The step or the source partition that sets the bound, in words."""
        of_input = f"source partition {self.partition} of input {self.set_by!r}"
        return f"step {self.set_by!r}" if self.partition < 0 else of_input


class LateSource(NamedTuple):
    """Origin of late values of a step.

    Attributes:
        step_id: the step.
        came_from: the name of the source partition of the values, for messages.
        ahead: the name of the partition that was furthest ahead in event time.
    """

    step_id: str
    came_from: str
    ahead: str


MAX_ITEMS = 20
"""The most late values of a step in a sample."""

MAX_WINDOWS = 5
"""The most windows that are listed of one late value."""

MAX_KEY_LENGTH = 400
"""The most characters of a key."""


class LateItem(NamedTuple):
    """A late value as text and numbers.

    Attributes:
        step_id: the step.
        key: the key, cut to `MAX_KEY_LENGTH`.
        value: the value, shortened.
        reason: ``late``, ``gap`` or ``too_far_ahead``.
        timestamp_us: the timestamp, in µs.
        watermark_us: the watermark as the value arrived, in µs; ``None`` before the first.
        windows: the id and the bounds in µs of the first `MAX_WINDOWS` windows that the value
            missed.
        missed: the number of windows that the value missed.
    """

    step_id: str
    key: str
    value: str
    reason: str
    timestamp_us: int
    watermark_us: int | None
    windows: tuple[tuple[int, int, int], ...] = ()
    missed: int = 0


def late_sample(step: Step, chunks: Sequence[Sequence[Chunk]]) -> list[LateItem]:
    """Return the last late values among a step's output, at most `MAX_ITEMS`.

    Args:
        step: the step.
        chunks: the chunks of each of the step's streams.
    """
    pairs = [
        pair
        for down, of_stream in zip(step.downs, chunks, strict=False)
        for chunk in of_stream
        if down.port == LATE_PORT and isinstance(chunk, Pairs)
        for pair in zip(chunk.keys[-MAX_ITEMS:], chunk.values[-MAX_ITEMS:], strict=True)
        if isinstance(pair[1], Late)
    ]
    return [_item(step.step_id, key, late) for key, late in pairs[-MAX_ITEMS:]]


def _item(step_id: str, key: str, late: Late) -> LateItem:
    windows = tuple(
        (int(one.window_id), datetime_us(one.open_time), datetime_us(one.close_time))
        for one in late.windows[:MAX_WINDOWS]
    )
    watermark_us = None if late.watermark is None else datetime_us(late.watermark)
    return LateItem(
        step_id,
        cut_text(key, MAX_KEY_LENGTH),
        shorten(late.value),
        str(late.reason.value),
        datetime_us(late.timestamp),
        watermark_us,
        windows,
        len(late.windows),
    )


class WorkPhase(Enum):
    """A phase of a job in which tasks work.

    Attributes:
        READING: sources read; for a data frame, tasks wait for Spark's rows.
        STEPS: steps run, keyed steps with their state, and items are packed for shuffles.
        SINKS: sinks write.
    """

    READING = "reading"
    STEPS = "steps"
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


@contextmanager
def _timed(total_ns: Counter[K], key: K) -> Iterator[None]:
    """Add the duration of the block to the total of a key."""
    start_ns = time.perf_counter_ns()
    try:
        yield
    finally:
        total_ns[key] += time.perf_counter_ns() - start_ns


class TaskWork:
    """The time that a task has worked in each phase, measured for each chunk of items.

    Args:
        stage: the number of the task's stage: 0 for tasks that read, then that of the level.
    """

    def __init__(self, stage: int = 0) -> None:
        self._stage = stage
        self._ns: Counter[WorkPhase] = Counter()

    def timed(self, phase: WorkPhase) -> AbstractContextManager[None]:
        """Add the duration of the block to a phase; blocks must not contain each other."""
        return _timed(self._ns, phase)

    def iterated(self, phase: WorkPhase, elements: Iterable[T]) -> Iterator[T]:
        """Yield elements, and add the time that they take to make to a phase."""
        remaining, end = iter(elements), object()
        while True:
            with self.timed(phase):
                element = next(remaining, end)
            if element is end:
                return
            yield element  # type: ignore[misc]

    def of_worker(self, worker: str) -> Counter[Work]:
        """Return the time in ns, as the work of a Python worker."""
        return Counter({Work(self._stage, worker, phase): ns for phase, ns in self._ns.items()})


_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return the memory of this process in bytes; 0 where the system does not say it.

    Linux counts pages that processes share, such as those of a forked daemon, for each of them.
    """
    try:
        pages = int(_STATM.read_bytes().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def worker_name() -> str:
    """Return the name of this process: its machine and its process id."""
    return f"{_host()}:{os.getpid()}"


@cache
def _host() -> str:
    return socket.gethostname()


MAX_NOTES = 5
"""The most descriptions of dropped values that an epoch has."""


def _keep(choose: Callable[..., int], total: dict[K, int], other: Mapping[K, int]) -> None:
    """Keep the least or the greatest number of each name, as the function chooses."""
    for name, number in other.items():
        total[name] = choose(number, total.get(name, number))


def _keep_first(total: list[str], other: Iterable[str]) -> None:
    total[:] = [*total, *other][:MAX_NOTES]


def _keep_newest(total: list[LateItem], other: Iterable[LateItem]) -> None:
    """Keep the last `MAX_ITEMS` late values of each step, in their order."""
    by_step: dict[str, list[LateItem]] = {}
    for item in [*total, *other]:
        by_step.setdefault(item.step_id, []).append(item)
    total[:] = [item for of_step in by_step.values() for item in of_step[-MAX_ITEMS:]]


def merge_seen(total: SeenFields, other: Mapping[tuple[str, str], tuple[str, ...] | None]) -> None:
    """Add what another task, or an earlier epoch, has seen."""
    for name, names in other.items():
        before = total.get(name, ())
        is_seen = names is None or before is None
        total[name] = None if is_seen else tuple(dict.fromkeys((*(before or ()), *(names or ()))))


_SUM = {"merge": Counter.update}
_LEAST = {"merge": partial(_keep, min)}
_GREATEST = {"merge": partial(_keep, max)}
_FIRST = {"merge": _keep_first}
_NEWEST = {"merge": _keep_newest}
_SAME = {"merge": dict.update}
_SEEN = {"merge": merge_seen}
"""The function that adds a field of another task to a field of `Stats`."""


@dataclass
class Stats:
    """Statistics of an epoch, summed over tasks.

    Attributes:
        counts: counters, by (step, name).
        gauges: sizes at the end of the epoch, by (step, name).
        dues: the due time of each step that has a timer, in µs; for a step that follows its inputs'
            clock, as a time of that clock.
        bounds: the bound of the watermarks of each step that has one at the end of the epoch.
        reached: the progress of each source partition that may hold watermarks: its event time less
            the wait, in µs, the least over the steps that the partition feeds.
        lateness: the number of late values, by (step, lateness in µs).
        late_from: the number of late values, by (step, source partition), of steps that several
            partitions feed.
        late_sources: the number of late values by names of partitions; set in the driver only.
        notes: a few descriptions of dropped values, for messages.
        busy_ns: the time that tasks worked in each step, in ns.
        work_ns: the time that tasks worked in each phase of the job, in ns.
        workers: the memory of each Python worker, in bytes, by the worker's name.
        lags: the number of keys that the epoch touched, by (step, lag of the key's watermark behind
            system time in µs, rounded up).
        late_items: a sample of the late values of each step, of a plan that samples them.
        seen: the fields that steps name, see `flow.engine.epoch.seen_fields`.
        phases: the duration of each phase of the epoch, in seconds; set in the driver only, see
            `flow.engine.spark.epochs`.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter, metadata=_SUM)
    gauges: Counter[tuple[str, str]] = field(default_factory=Counter, metadata=_SUM)
    notes: list[str] = field(default_factory=list, metadata=_FIRST)
    dues: dict[str, int] = field(default_factory=dict, metadata=_LEAST)
    bounds: dict[str, StepBound] = field(default_factory=dict, metadata=_SAME)
    reached: dict[SourcePartition, int] = field(default_factory=dict, metadata=_LEAST)
    lateness: Counter[tuple[str, int]] = field(default_factory=Counter, metadata=_SUM)
    late_from: Counter[tuple[str, SourcePartition]] = field(default_factory=Counter, metadata=_SUM)
    late_sources: Counter[LateSource] = field(default_factory=Counter, metadata=_SUM)
    busy_ns: Counter[str] = field(default_factory=Counter, metadata=_SUM)
    work_ns: Counter[Work] = field(default_factory=Counter, metadata=_SUM)
    workers: dict[str, int] = field(default_factory=dict, metadata=_GREATEST)
    lags: Counter[tuple[str, int]] = field(default_factory=Counter, metadata=_SUM)
    late_items: list[LateItem] = field(default_factory=list, metadata=_NEWEST)
    seen: SeenFields = field(default_factory=dict, metadata=_SEEN)
    phases: dict[str, float] = field(default_factory=dict, metadata=_SAME)

    @property
    def due_us(self) -> int:
        """The least due time of a step, in µs."""
        return min(self.dues.values(), default=NEVER)

    def timed(self, step_id: str) -> AbstractContextManager[None]:
        """Add the duration of the block to the time that the task worked in a step."""
        return _timed(self.busy_ns, step_id)

    def due(self, step_id: str, due_us: int) -> None:
        """Record the due time of a step."""
        if due_us < NEVER:
            _keep(min, self.dues, {step_id: due_us})

    def reach(self, partition: SourcePartition, reached_us: int) -> None:
        """Record the progress of a source partition for a step that it feeds."""
        _keep(min, self.reached, {partition: reached_us})

    def note(self, text: str) -> None:
        """Record the description of a dropped value, up to `MAX_NOTES`."""
        _keep_first(self.notes, [text])

    def add(self, other: Stats) -> None:
        """Add the statistics of another task."""
        for each in fields(self):
            each.metadata["merge"](getattr(self, each.name), getattr(other, each.name))

    def encode(self) -> bytes:
        """Return the statistics as bytes."""
        return pickle.dumps(self, 5)

    @classmethod
    def decode(cls, payload: bytes) -> Stats:
        """Return the statistics in bytes made by `encode`."""
        stats: Stats = pickle.loads(payload)
        return stats
