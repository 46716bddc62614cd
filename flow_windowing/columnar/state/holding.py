"""All that is remembered of some keys of a windowing step, in columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, Mask
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.state.watermarks import KeyClocks
from flow_windowing.columnar.values.waiting_values import WaitingValues
from flow_windowing.rules.watermark import NO_WATERMARK


@dataclass
class Holding:
    """Keys by place, with what is remembered of each.

    Attributes:
        keys: their texts, as Arrow large text.
        clocks: what their clocks remember.
        arrived: how many values of each have come, since it last had nothing to remember them by.
        entered: how many of these have entered windows.
        seen: how many values of each a windower has counted that counts them.
        windows: their open windows.
        waiting: their values that wait.
    """

    keys: pa.Array
    clocks: KeyClocks
    arrived: Ints
    entered: Ints
    seen: Ints
    windows: OpenWindows
    waiting: WaitingValues

    @classmethod
    def fresh(cls, keys: pa.Array, aggregators: tuple[Aggregator[Any, Any, Any], ...]) -> Holding:
        """New keys."""
        count = len(keys)
        return cls(
            keys,
            KeyClocks.fresh(count),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            OpenWindows.none(aggregators),
            WaitingValues.none(),
        )

    @classmethod
    def nothing(cls, aggregators: tuple[Aggregator[Any, Any, Any], ...]) -> Holding:
        """No keys."""
        return cls.fresh(pa.array([], pa.large_string()), aggregators)

    @property
    def count(self) -> int:
        """How many keys there are."""
        return len(self.keys)

    def followed_by(self, other: Holding) -> Holding:
        """These keys, and others after them."""
        if not self.count:
            return other
        windows, waiting = other.windows, other.waiting
        if len(windows):
            windows.places = windows.places + self.count
        if len(waiting):
            waiting.places = waiting.places + self.count
        return Holding(
            pa.concat_arrays([self.keys, other.keys]),
            self.clocks.followed_by(other.clocks),
            np.concatenate([self.arrived, other.arrived]),
            np.concatenate([self.entered, other.entered]),
            np.concatenate([self.seen, other.seen]),
            self.windows.followed_by(windows) if len(windows) else self.windows,
            self.waiting.joined(waiting),
        )

    def take(self, places: Ints) -> Holding:
        """Some of the keys, in the order given."""
        new_place = np.full(self.count, -1)
        new_place[places] = np.arange(len(places))
        windows, waiting = self.windows, self.waiting
        if len(windows):
            moved = new_place[windows.places]
            windows = windows.take(_sorted(moved))
            windows.places = new_place[windows.places]
        if len(waiting):
            moved = new_place[waiting.places]
            waiting = waiting.take(_sorted(moved))
            waiting.places = new_place[waiting.places]
        return Holding(
            self.keys.take(pa.array(places)),
            self.clocks.take(places),
            self.arrived[places],
            self.entered[places],
            self.seen[places],
            windows,
            waiting,
        )

    def holds_values(self) -> Mask:
        """By place, whether a window is open or a value waits."""
        holds = np.zeros(self.count, np.bool_)
        holds[self.windows.places] = True
        holds[self.waiting.places] = True
        return holds

    def remembered(self) -> Mask:
        """By place, whether there is anything to remember."""
        known: Mask = self.clocks.base_us != NO_WATERMARK
        return self.holds_values() | known | (self.seen > 0)

    def settle(self) -> None:
        """Start counting values afresh where none of them is held."""
        none = ~self.holds_values()
        self.arrived[none] = 0
        self.entered[none] = 0

    def forget(self, places: Ints) -> None:
        """Let keys, which hold no values, be as new ones."""
        self.clocks.base_us[places] = NO_WATERMARK
        self.clocks.set_at_us[places] = 0
        self.clocks.heard_us[places] = 0
        if self.clocks.taken_us is not None:
            self.clocks.taken_us[places] = NO_WATERMARK
        self.arrived[places] = 0
        self.entered[places] = 0
        self.seen[places] = 0


def _sorted(moved: Ints) -> Ints:
    """The rows that stay, in order of their new places."""
    rows = np.flatnonzero(moved >= 0)
    return rows[np.argsort(moved[rows], kind="stable")]
