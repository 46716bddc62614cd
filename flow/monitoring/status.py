"""The status of a run at one moment: immutable, so that other threads read it without a lock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from flow.engine.epoch.late_items import LateItem
from flow.engine.epoch.watermark_lag import WatermarkLag
from flow.monitoring.graph import Graph


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
        phases: the duration of each phase in seconds, in order, see `flow.engine.epoch.phases`.
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
    """

    at: float
    message: str
    step_id: str | None = None
    key: str | None = None
    item: str | None = None


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
    workers: Mapping[str, int] = field(default_factory=dict)
    history: tuple[EpochStatus, ...] = ()
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    ended_at: float | None = None
    error: ErrorStatus | None = None
