"""The form of a step's state in segments: the properties of a plan that its columns depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.columnar.admission.shard_clocks import ShardClock

WindowKind: TypeAlias = Literal["index", "sessions", "counts", "interval"]
"""Windows whose bounds follow from their ids; sessions; windows of a number of values; no windows,
but the retained values of an interval join."""


@dataclass(frozen=True)
class StateForm:
    """The form of a step's state in segments.

    Attributes:
        kind: the kind of the windows.
        clock: the clock of the step.
        aggregators: the aggregates of each window.
        named: True if the snapshot of a window is a list of states, one for each aggregate.
        counts_arrivals: True if keys have arrival and entry numbers.
    """

    kind: WindowKind
    clock: ShardClock[Any]
    aggregators: tuple[Aggregator[Any, Any, Any], ...] = ()
    named: bool = False
    counts_arrivals: bool = True
