"""Which windowing steps can run on columns, and what there is to know of them there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flow.columns.arrays import Ints
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.columnar.aggregates.forms import (
    has_columns,
    keeps_first_of_equals,
    needs_arrival_numbers,
)
from flow_windowing.columnar.state.watermarks import WatermarkRule
from flow_windowing.columnar.windows.window_view import Figure
from flow_windowing.columnar.windows.windowing import Windowing
from flow_windowing.folding import Fold, Reduce
from flow_windowing.rules.settings import Emit
from flow_windowing.rules.timestamps import Timestamp


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


def _is_timeless(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Whether an aggregator does the same whenever its values came."""
    if keeps_first_of_equals(aggregator) or needs_arrival_numbers(aggregator):
        return False
    if isinstance(aggregator, (Fold, Reduce)) or has_columns(aggregator):
        return True
    return type(aggregator).add_at is Aggregator.add_at
