"""The plan of a windowing step that runs over columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flow.columns.arrays import Ints
from flow.instants import NEVER
from flow_windowing.aggregates.aggregator import Aggregator, form_of
from flow_windowing.columnar.admission.shard_clocks import ShardClock
from flow_windowing.columnar.aggregates.forms import has_columns
from flow_windowing.columnar.state.shard_state import StateForm
from flow_windowing.columnar.windows.window_view import ResultColumn
from flow_windowing.columnar.windows.windowing import Windowing
from flow_windowing.rules.settings import Emit, Timestamp, timestamp_of


@dataclass(frozen=True)
class WindowPlan:
    """A windowing step that runs over columns.

    Attributes:
        clock: the clock.
        windowing: the windows.
        aggregators: the aggregates of each window.
        result_columns: the name and the empty value of each aggregate's results.
        named: True if a window's value is a dict of results by name, even of a single result.
        waits: True if values are buffered until the watermark passes them.
        timestamp: the timestamp that metadata carries.
        emit: the setting of when windows emit.
        sides: the number of streams of the step; with more than one, values are ``(side, value)``.
        emits_accumulators: True if windows emit their accumulators in the place of results.
        reach_us: the greatest time before a value at which the result of its window may lie.
    """

    clock: ShardClock[Any]
    windowing: Windowing
    aggregators: tuple[Aggregator[Any, Any, Any], ...]
    result_columns: tuple[ResultColumn, ...]
    named: bool
    waits: bool
    timestamp: Timestamp | None
    emit: Emit = "close"
    sides: int = 1
    emits_accumulators: bool = False
    reach_us: int = 0

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The fields that aggregates read, if columns can hold all aggregates; else empty.

        The tuple is also empty if an aggregate reads a nested field.
        """
        if not all(has_columns(one) for one in self.aggregators):
            return ()
        read = (one.field_read for one in self.aggregators)
        fields = {field for field in read if isinstance(field, str)}
        return () if any("." in field for field in fields) else tuple(sorted(fields))

    @property
    def keeps_latest(self) -> bool:
        """True if windows record their greatest timestamp."""
        return self.timestamp == "last"

    @property
    def counts_arrivals(self) -> bool:
        """True if the order of buffered values or an aggregate depends on arrivals."""
        return self.waits or not all(_ignores_arrivals(one) for one in self.aggregators)

    @cached_property
    def form(self) -> StateForm:
        """The form of the state in segments."""
        return StateForm(
            self.windowing.kind,
            self.clock,
            self.aggregators,
            self.named,
            self.counts_arrivals,
        )

    def holds_us(self, bounds_us: tuple[Ints, Ints], latest_us: Ints) -> Ints:
        """Return the least timestamp that the result of each open window may still have."""
        open_us, close_us = bounds_us
        if self.timestamp == "last":
            return np.where(latest_us > -NEVER, latest_us, open_us)
        return close_us if self.timestamp == "close" else open_us

    def timestamps_us(self, bounds_us: tuple[Ints, Ints], latest_us: Ints) -> Ints | None:
        """Return the timestamps that the metadata of windows carries, ``None`` for none.

        Args:
            bounds_us: the open and the close times of the windows.
            latest_us: the greatest timestamp in each window, `-NEVER` where it is not recorded.
        """
        open_us, close_us = bounds_us
        return timestamp_of(
            self.timestamp,
            open_us,
            close_us,
            # A window that was opened with another setting of `timestamp` has no record.
            lambda: np.where(latest_us > -NEVER, latest_us, close_us),
        )


def _ignores_arrivals(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Return True if an aggregate does not depend on the arrivals of its values."""
    is_added_alone = type(aggregator).add_at is Aggregator.add_at
    return is_added_alone or form_of(aggregator).ignores_arrival
