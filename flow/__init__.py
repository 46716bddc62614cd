"""A dataflow framework on Spark: a graph of operators over keyed streams, run three ways.

Start with `Dataflow`, the operators in `flow.operators`, and `run`.
"""

from flow.dataflow import Dataflow, KeyedStream, Step, Stream
from flow.durations import Duration
from flow.engine.feed.stop import StopFlag
from flow.errors import (
    CheckpointError,
    EngineError,
    EnvironmentProblem,
    FlowBuildError,
    FlowError,
    SinkError,
    SourceError,
    StepError,
    TimestampError,
    UnusedStepWarning,
)
from flow.instants import Instant, Moment
from flow.running import run

__all__ = [
    "CheckpointError",
    "Dataflow",
    "Duration",
    "EngineError",
    "EnvironmentProblem",
    "FlowBuildError",
    "FlowError",
    "Instant",
    "KeyedStream",
    "Moment",
    "SinkError",
    "SourceError",
    "Step",
    "StepError",
    "StopFlag",
    "Stream",
    "TimestampError",
    "UnusedStepWarning",
    "run",
]
