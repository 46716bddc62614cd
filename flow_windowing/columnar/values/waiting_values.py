"""Values that wait, of many keys, until the watermark passes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flow.columns.arrays import Ints, Mask
from flow.instants import NEVER
from flow_windowing.columnar.values.written import known


@dataclass
class WaitingValues:
    """Values in columns, in order of place; those of a place in any order.

    Attributes:
        places: the place of each value's key.
        times_us: its timestamp.
        numbers: its number in order of arrival.
        values: the value, which may be as it was written down: see `written`.
        enters_us: the watermark at which it enters windows: its timestamp, or, of a value that came
            behind the watermark and enters at once, the watermark then.
    """

    places: Ints
    times_us: Ints
    numbers: Ints
    values: list[Any]
    enters_us: Ints

    @classmethod
    def none(cls) -> WaitingValues:
        """No values."""
        empty = np.empty(0, np.int64)
        return cls(empty, empty, empty, [], empty)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Ints | Mask) -> WaitingValues:
        """Some of them, in the order given."""
        chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        values = [self.values[row] for row in chosen.tolist()]
        return WaitingValues(
            self.places[chosen],
            self.times_us[chosen],
            self.numbers[chosen],
            values,
            self.enters_us[chosen],
        )

    def joined(self, other: WaitingValues) -> WaitingValues:
        """These and others, in order of place."""
        if not len(self) or not len(other):
            return other if not len(self) else self
        both = WaitingValues(
            np.concatenate([self.places, other.places]),
            np.concatenate([self.times_us, other.times_us]),
            np.concatenate([self.numbers, other.numbers]),
            [*self.values, *other.values],
            np.concatenate([self.enters_us, other.enters_us]),
        )
        order = np.argsort(both.places, kind="stable")
        return both.take(order)

    def released(self, passed: Mask) -> tuple[WaitingValues, WaitingValues]:
        """Return the values passed, in order of place, entering and arrival; and the rest."""
        out = self.take(passed)
        order = np.lexsort((out.numbers, out.enters_us, out.places))
        out = out.take(order)
        out.values = known(out.values)
        return out, self.take(~passed)

    def passed_before(self, places: Ints, enters_us: Ints, watermark_us: Ints) -> Mask:
        """Which new values the watermark has passed, and all that waits for it enters before.

        Args:
            places: the place of each value.
            enters_us: the watermark at which it enters windows.
            watermark_us: each place's watermark.
        """
        passed: Mask = enters_us <= watermark_us[places]
        mine = self.times_us <= watermark_us[self.places]
        if not mine.any():
            return passed
        newest_us = np.full(len(watermark_us), -NEVER)
        np.maximum.at(newest_us, self.places[mine], self.times_us[mine])
        oldest_us = np.full(len(watermark_us), NEVER)
        np.minimum.at(oldest_us, places, enters_us)
        passed &= (newest_us <= oldest_us)[places]
        return passed

    def next_us(self, places: int) -> Ints:
        """The least timestamp that waits, by place; `NEVER` where nothing does."""
        least = np.full(places, NEVER)
        np.minimum.at(least, self.places, self.times_us)
        return least
