"""A dataflow framework on Spark: a graph of operators over keyed streams, run three ways.

Start with `Dataflow`, the operators in `flow.operators`, and `run`.
"""

from flow.background import BackgroundRun, RunState
from flow.config.flow_config import FlowConfig
from flow.dataflow import Dataflow, KeyedStream, Step, Stream
from flow.durations import Duration
from flow.engine.epoch.statistics import LateItem, LateSource
from flow.engine.epoch.summary import EpochReport, Summary
from flow.engine.feed.feed import StopFlag
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
from flow.execution import attach, run
from flow.frames import to_dataframe
from flow.instants import Instant, Moment
from flow.reports import graph as _graph  # noqa: F401  (it registers a flow's display)

__version__ = "0.1.0.dev0"

__all__ = [
    "BackgroundRun",
    "CheckpointError",
    "Dataflow",
    "Duration",
    "EngineError",
    "EnvironmentProblem",
    "EpochReport",
    "FlowBuildError",
    "FlowConfig",
    "FlowError",
    "Instant",
    "KeyedStream",
    "LateItem",
    "LateSource",
    "Moment",
    "RunState",
    "SinkError",
    "SourceError",
    "Step",
    "StepError",
    "StopFlag",
    "Stream",
    "Summary",
    "TimestampError",
    "UnusedStepWarning",
    "__version__",
    "attach",
    "run",
    "to_dataframe",
]
