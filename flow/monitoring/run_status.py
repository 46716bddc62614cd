"""The status of a run at one moment: its steps, epochs and graph, its health, and all as JSON.

A status is immutable, so that other threads read it without a lock. The JSON is that of
``/api/flow`` and ``/api/epochs``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from flow.engine.epoch.statistics import STATISTICS, LateItem
from flow.engine.epoch.summary import WatermarkLag
from flow.engine.plan.plan import Plan
from flow.monitoring.backlog import Backlog, Point
from flow.reports.graph import Graph, GraphEdge, GraphStep, graph_of


class RunState(Enum):
    """The state of a run."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """True if no epoch follows in this run."""
        return self in (RunState.ENDED, RunState.STOPPED, RunState.FAILED)


@dataclass(frozen=True)
class StepStatus:
    """The status of a step.

    Attributes:
        counts: counters of the run so far, by name; see `Summary.counts`.
        gauges: sizes at the end of the last epoch, by name; see `Summary.gauges`.
        rates: the counters' rates over the last seconds, by name, in items a second.
        busy_seconds: the time that workers worked in the step so far, summed over workers.
        busy_share: the time that workers worked in the step in the last seconds, as a share of that
            time; above 1 if several workers did.
        active_at: the time of the last epoch with items for the step, in seconds since 1970;
            ``None`` before the first.
        lag: the lag of the watermarks of the keys that the last such epoch touched.
        held_by: what holds the step's watermarks, in words; empty if nothing does.
        held_at: the bound of its watermarks, in seconds since 1970; ``None`` for the beginning.
        held_since: the time at which this bound was first seen, in seconds since 1970.
        late_advice: the longer wait that the late values of the run needed, and their main source,
            as a sentence; empty without late values.
        late_items: the newest late values, in a run that shows values.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    busy_seconds: float = 0.0
    busy_share: float = 0.0
    active_at: float | None = None
    lag: WatermarkLag | None = None
    held_by: str = ""
    held_at: float | None = None
    held_since: float | None = None
    late_advice: str = ""
    late_items: tuple[LateItem, ...] = ()


@dataclass(frozen=True)
class EpochStatus:
    """An epoch that was committed.

    Attributes:
        index: the number of the epoch in this run, from 1.
        epoch: the epoch's number in the checkpoint.
        committed_at: the time of the commit, in seconds since 1970.
        items: the number of items that inputs have read.
        phases: the duration of each phase in seconds, in order, see `flow.engine.spark.epochs`.
        behind: the number of items not read yet, of all inputs that know it; ``None`` if none does.
    """

    index: int
    epoch: int
    committed_at: float
    items: int
    phases: Mapping[str, float]
    behind: int | None = None


@dataclass(frozen=True)
class ErrorStatus:
    """The error that ended a run.

    Attributes:
        at: the time of the error, in seconds since 1970.
        message: the message, without traces of Spark.
        step_id: the step that failed, if one did.
        key: the key of the failed call, as text.
        item: the item of the failed call, as shortened text.
        remedy: the way to continue, as a sentence.
    """

    at: float
    message: str
    step_id: str | None = None
    key: str | None = None
    item: str | None = None
    remedy: str = ""

    @property
    def headline(self) -> str:
        """The step, and the first line of the message."""
        step = "" if self.step_id is None else f"step {self.step_id!r}: "
        return step + self.message.splitlines()[0]


class Limit(NamedTuple):
    """Something that limits a run.

    Attributes:
        kind: ``bottleneck``, ``idle``, ``starved`` for an input without items, or ``held`` for
            watermarks that do not move.
        steps: the steps that it concerns.
        text: a sentence.
        since: the time at which it began, in seconds since 1970; ``None`` if it is not known.
    """

    kind: str
    steps: tuple[str, ...]
    text: str
    since: float | None = None


@dataclass(frozen=True)
class RunStatus:
    """The status of a run.

    Attributes:
        flow_id: the flow's name.
        run_id: a random identity of the run.
        engine: the name of the engine.
        graph: the compiled flow.
        started_at: the start of the run, in seconds since 1970.
        trigger_seconds: the trigger's interval; ``None`` without one.
        state: the state of the run.
        steps: the status of each step.
        epochs: the number of epochs.
        last_commit_at: the time of the last commit, in seconds since 1970.
        system_time: the last epoch's system time, in seconds since 1970.
        lag: the distance of each input from the newest data, in words.
        behind: the number of items not read yet, by input and source partition.
        backlogs: the unread data of each input that knows it, or is behind.
        limits: what limits the run, the bottleneck first.
        points: the course of the last 15 minutes, in order.
        workers: the memory of the Python workers of the last epoch, in bytes, by worker.
        history: the newest epochs, in order.
        phase_seconds: the duration of each phase, summed over the epochs of the run.
        ended_at: the end of the run, in seconds since 1970.
        error: the error that ended the run.
    """

    flow_id: str
    run_id: str
    engine: str
    graph: Graph
    started_at: float
    trigger_seconds: float | None = None
    state: RunState = RunState.STARTING
    steps: Mapping[str, StepStatus] = field(default_factory=dict)
    epochs: int = 0
    last_commit_at: float | None = None
    system_time: float | None = None
    lag: Mapping[str, str] = field(default_factory=dict)
    behind: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    backlogs: Mapping[str, Backlog] = field(default_factory=dict)
    limits: tuple[Limit, ...] = ()
    points: tuple[Point, ...] = ()
    workers: Mapping[str, int] = field(default_factory=dict)
    history: tuple[EpochStatus, ...] = ()
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    ended_at: float | None = None
    error: ErrorStatus | None = None

    @classmethod
    def starting(
        cls, plan: Plan, engine: str, started_at: float, trigger_seconds: float | None
    ) -> RunStatus:
        """Return the status of a new run before its first epoch."""
        steps = MappingProxyType({step_id: StepStatus() for step_id in plan.steps})
        run_id, graph = uuid.uuid4().hex, graph_of(plan)
        return cls(plan.flow_id, run_id, engine, graph, started_at, trigger_seconds, steps=steps)


DEFAULT_PATIENCE_SECONDS = 60.0
"""The longest age of the last commit of a healthy run, without a trigger. A run without new items
commits an epoch about every ten seconds."""

TRIGGERS = 3
"""The number of intervals of the trigger that a healthy run may need for an epoch."""


class Health(NamedTuple):
    """A verdict.

    Attributes:
        is_healthy: True if the run is healthy.
        reason: the reason, as a sentence.
    """

    is_healthy: bool
    reason: str


def health_of(status: RunStatus, now: float, patience: float | None = None) -> Health:
    """Return the health of a run.

    Args:
        status: the status of the run.
        now: the present time, in seconds since 1970.
        patience: the longest age of the last commit, in seconds; by default a minute, or longer
            with a long trigger. Before the first commit, the start of the run counts. A batch
            commits only at its end, so it is healthy until it fails.
    """
    limit = patience
    if limit is None:
        limit = max(DEFAULT_PATIENCE_SECONDS, TRIGGERS * (status.trigger_seconds or 0.0))
    if status.state is RunState.FAILED:
        return Health(False, f"the run has failed: {status.error and status.error.headline}")
    if status.state.is_over:
        return Health(True, f"the run has {status.state.value}")
    if status.engine == "batch":
        return Health(True, "the batch is running")
    since = status.started_at if status.last_commit_at is None else status.last_commit_at
    what = "the run has started" if status.last_commit_at is None else "the last commit was"
    age = max(0.0, now - since)
    if age > limit:
        return Health(False, f"{what} {age:.0f} s ago, more than {limit:.0f} s, and none followed")
    return Health(True, f"{what} {age:.0f} s ago")


MAX_PARTITIONS = 50
"""The number of source partitions of an input with samples of their own; the partitions that are
least behind share the label value ``other``."""

MAX_WORKERS = 64
"""The number of workers that are listed, those with the most memory."""


_PLAIN = (
    *("flow_id", "run_id", "engine", "started_at", "ended_at", "trigger_seconds"),
    *("epochs", "last_commit_at", "system_time"),
)
"""The fields of a run's status that JSON has as they are."""


def capped(counts: Mapping[str, int], most: int = MAX_PARTITIONS) -> dict[str, int]:
    """Return the largest counts by name, and the sum of all others as ``other``.

    >>> capped({"a": 1, "b": 5, "c": 2}, 1)
    {'b': 5, 'other': 3}
    """
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    named, others = dict(ordered[:most]), ordered[most:]
    if others:
        named["other"] = named.get("other", 0) + sum(count for _, count in others)
    return named


def flow_json(status: RunStatus) -> dict[str, Any]:
    """Return the status with its graph and the statistics that the page shows, without epochs."""
    shown = {
        "losses": [each.name for each in STATISTICS if each.is_loss],
        "sizes": {each.name: each.column for each in STATISTICS if each.is_shown_size},
        "units": {each.name: [each.label, each.unit, each.scale] for each in STATISTICS},
    }
    return {**status_json(status), "graph": graph_json(status.graph), "statistics": shown}


def status_json(status: RunStatus) -> dict[str, Any]:
    """Return the status without its graph and its epochs."""
    error = status.error
    return {
        **{name: getattr(status, name) for name in _PLAIN},
        "state": status.state.value,
        "steps": {step_id: _step(step) for step_id, step in status.steps.items()},
        "edges": [_edge(status, edge.counter) for edge in status.graph.edges],
        "lag": dict(status.lag),
        "behind": {step_id: capped(counts) for step_id, counts in status.behind.items()},
        "backlogs": {
            name: {**vars(one), "caught_up_in": one.caught_up_in}
            for name, one in status.backlogs.items()
        },
        "limits": [one._asdict() for one in status.limits],
        "phase_seconds": _rounded(status.phase_seconds),
        "workers": capped(status.workers, MAX_WORKERS),
        "error": None if error is None else dict(vars(error)),
    }


def epochs_json(history: Iterable[EpochStatus]) -> list[dict[str, Any]]:
    """Return epochs, oldest first."""
    return [{**vars(epoch), "phases": _rounded(epoch.phases)} for epoch in history]


def points_json(points: Iterable[Point]) -> list[dict[str, Any]]:
    """Return the course of a run, oldest first."""
    return [{**one._asdict(), "rate": round(one.rate, 3)} for one in points]


def late_json(items: Iterable[LateItem]) -> list[dict[str, Any]]:
    """Return late values, with times in seconds since 1970."""
    return [
        {
            "key": item.key,
            "value": item.value,
            "reason": item.reason,
            "timestamp": item.timestamp_us / 1e6,
            "watermark": None if item.watermark_us is None else item.watermark_us / 1e6,
            "windows": [
                {"id": window_id, "open": open_us / 1e6, "close": close_us / 1e6}
                for window_id, open_us, close_us in item.windows
            ],
            "missed": item.missed,
        }
        for item in items
    ]


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return the graph of a compiled flow, as `graph_json` does."""
    return graph_json(graph_of(plan))


def graph_json(graph: Graph) -> dict[str, Any]:
    """Return a graph: the fields of its steps, and the ends of its streams."""
    edges = [{"up": edge.up, "port": edge.port, "down": edge.down} for edge in graph.edges]
    return {"steps": [dict(vars(step)) for step in graph.steps], "edges": edges}


def graph_from_json(content: Any) -> Graph:
    """Return a graph from the JSON of `graph_json`, which has no counters."""
    steps = tuple(GraphStep(**step) for step in content["steps"])
    return Graph(steps, tuple(GraphEdge(**edge, counter=None) for edge in content["edges"]))


def _step(step: StepStatus) -> dict[str, Any]:
    rounded = {
        "rates": _rounded(step.rates),
        "busy_seconds": round(step.busy_seconds, 6),
        "busy_share": round(step.busy_share, 6),
        "lag": None if step.lag is None else step.lag._asdict(),
    }
    shown = {**vars(step), **rounded}
    del shown["late_items"]
    return shown


def _edge(status: RunStatus, counter: tuple[str, str] | None) -> dict[str, Any]:
    """Return the items of a stream and their rate; ``None`` for both without a counter."""
    if counter is None:
        return {"items": None, "rate": None}
    step = status.steps[counter[0]]
    return {
        "items": step.counts.get(counter[1], 0),
        "rate": round(step.rates.get(counter[1], 0.0), 6),
    }


def _rounded(values: Any) -> dict[str, float]:
    return {name: round(value, 6) for name, value in values.items()}
