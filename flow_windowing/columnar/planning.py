"""Which windowing steps can run on columns, and what there is to know of them there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flow.columns.arrays import Ints
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.aggregates.numbers import Sum
from flow_windowing.clocks.event_clock import EventClock
from flow_windowing.columnar.aggregates.forms import (
    comes_out_the_same,
    goes_by_arrival,
    has_columns,
    reads_a_field,
    tells_equals_apart,
)
from flow_windowing.columnar.state.watermarks import WatermarkRule, rule_of
from flow_windowing.columnar.window_view import Figure
from flow_windowing.columnar.windows.calendar_windows import CalendarWindows
from flow_windowing.columnar.windows.count_windows import CountWindows
from flow_windowing.columnar.windows.sessions import Sessions
from flow_windowing.columnar.windows.windows import AlignedWindows, Windowing
from flow_windowing.folding import Fold, FoldingBuilder, Named, Reduce
from flow_windowing.joins import OneOfEachSide
from flow_windowing.object.driver import DriverBuilder, Timestamp
from flow_windowing.rules.settings import Emit
from flow_windowing.windowers.aligned import SlidingWindower, TumblingWindower
from flow_windowing.windowers.calendar import CalendarWindower
from flow_windowing.windowers.counts import CountWindower
from flow_windowing.windowers.sessions import SessionWindower
from flow_windowing.windowers.windower import Windower


@dataclass(frozen=True)
class WindowPlan:
    """A windowing step, as it runs on columns.

    Attributes:
        rule: how watermarks come about.
        windowing: which windows there are.
        aggregators: what is worked out of each window.
        figures: what the results of these are called.
        named: whether they go by name, in a dict, even if it is one only.
        waits: whether values wait until the watermark passes them.
        timestamp: which timestamp metadata carries.
        emit: when windows emit.
        sides: how many streams values come from; with more than one, they are ``(side, value)``.
    """

    rule: WatermarkRule
    windowing: Windowing
    aggregators: tuple[Aggregator[Any, Any, Any], ...]
    figures: tuple[Figure, ...]
    named: bool
    waits: bool
    timestamp: Timestamp | None
    emit: Emit = "close"
    sides: int = 1

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The fields that aggregates read, where all of them can be worked out in columns.

        None when one reads a field within a field.
        """
        if not all(has_columns(one) for one in self.aggregators):
            return ()
        read = (getattr(one, "field", None) for one in self.aggregators)
        fields = {field for field in read if isinstance(field, str)}
        return () if any("." in field for field in fields) else tuple(sorted(fields))

    @property
    def keeps_latest(self) -> bool:
        """Whether the greatest timestamp in each window is asked for."""
        return self.timestamp == "last"

    @property
    def counts_arrivals(self) -> bool:
        """Whether anything depends on which value came first."""
        return self.waits or not all(_is_timeless(one) for one in self.aggregators)

    def timestamps_us(self, bounds_us: tuple[Ints, Ints], latest_us: Ints) -> Ints | None:
        """The timestamps that the metadata of windows carries."""
        match self.timestamp:
            case None:
                return None
            case "open":
                return bounds_us[0]
            case "close":
                return bounds_us[1]
            case "last":
                # A window that was open before timestamps were asked for does not know.
                known = latest_us > _UNKNOWN_US
                return np.where(known, latest_us, bounds_us[1])


_UNKNOWN_US = -(1 << 62)


def plan_of(config: DriverBuilder) -> WindowPlan | None:
    """The plan of a windowing step; ``None`` for one that has to run key by key."""
    rule, windowing = rule_of(config.clock), windowing_of(config.windower)
    folding = config.builder
    if rule is None or windowing is None or not isinstance(folding, FoldingBuilder):
        return None
    if folding.emit != config.emit:
        return None
    aggregator = folding.aggregator
    named = isinstance(aggregator, Named)
    aggregators = aggregator.aggregators if isinstance(aggregator, Named) else (aggregator,)
    names = aggregator.names if isinstance(aggregator, Named) else (None,)
    # Numbers come to the same in whatever order they are added, once all of them are.
    in_any_order = not windowing.in_turn and all(map(_is_the_same_in_any_order, aggregators))
    in_any_order &= config.emit == "close"
    waits = config.ordered and not in_any_order
    has_grace = windowing.closes_by_time and not windowing.late_at_once
    if (waits and has_grace) or (config.ordered and windowing.has_gaps):
        return None
    figures = tuple(
        Figure(name, 0 if type(one) is Sum else None)
        for name, one in zip(names, aggregators, strict=True)
    )
    return WindowPlan(
        rule,
        windowing,
        aggregators,
        figures,
        named,
        waits,
        config.timestamp,
        config.emit,
        config.sides,
    )


def windowing_of(windower: Windower[Any]) -> Windowing | None:
    """The windows of a windower, ``None`` for one that has to be asked key by key."""
    if type(windower) in (TumblingWindower, SlidingWindower):
        return AlignedWindows(windower)  # type: ignore[arg-type]
    if type(windower) is CalendarWindower:
        return CalendarWindows(windower)
    if type(windower) is CountWindower and windower.count <= _MOST_AT_ONCE * windower.step_count:
        return CountWindows(windower)
    return Sessions(windower) if type(windower) is SessionWindower else None


_MOST_AT_ONCE = 64
"""A value that enters more windows of a number of values than this takes too much room."""


def fields_of(config: DriverBuilder, plan: WindowPlan) -> frozenset[str] | None:
    """Which fields of records a step reads; ``None`` where it may be any of them."""
    paths: set[str] = set()
    if isinstance(config.clock, EventClock):
        if not isinstance(config.clock.ts_getter, str):
            return None
        paths.add(config.clock.ts_getter)
    for one in plan.aggregators:
        if not reads_a_field(one):
            return None
        field = getattr(one, "field", None)
        paths |= {field} if isinstance(field, str) else set()
    # A path may be a field's very name, or begin with one.
    return frozenset(paths | {path.split(".")[0] for path in paths})


def _is_the_same_in_any_order(aggregator: Aggregator[Any, Any, Any]) -> bool:
    return comes_out_the_same(aggregator) or isinstance(aggregator, OneOfEachSide)


def _is_timeless(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Whether an aggregator does the same whenever its values came."""
    if tells_equals_apart(aggregator) or goes_by_arrival(aggregator):
        return False
    if isinstance(aggregator, (Fold, Reduce)) or has_columns(aggregator):
        return True
    return type(aggregator).add_at is Aggregator.add_at
