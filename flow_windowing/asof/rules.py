"""Rules of an as-of join: partners, the time at which they are final, and expiry.

Timestamps are integers with `ONE_KEY`, or int64 arrays with `COLUMNS`, in µs since the Unix epoch.

Of right values with one timestamp only the last to arrive counts. A right value of ``None`` is
found like any other; a left value that finds it has no partner. A left value's *earlier* right
value is the last at or before it, and its *later* one the first at or after it; one of them is its
partner. A right value that is on time is not behind the watermark. So the partner is final once the
watermark is past all times at which a right value would be found in the partner's place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar

from flow.columns.arrays import Ints
from flow.instants import NEVER
from flow_windowing.interval.rules import Interval
from flow_windowing.rules.watermark import Arithmetic

Direction: TypeAlias = Literal["backward", "forward", "nearest"]
"""The direction in which a left value looks for its partner."""
DIRECTIONS = ("backward", "forward", "nearest")

How: TypeAlias = Literal["left", "inner"]
"""The left values that leave: all, or those with a partner."""
HOWS = ("left", "inner")

AsofEmit: TypeAlias = Literal["complete", "now"]
"""The time at which a left value leaves: once its partner is final, or on arrival."""
EMITS = ("complete", "now")

NO_RIGHT = -NEVER, NEVER
"""The timestamps of the earlier and the later right value of a left value without them."""

N = TypeVar("N", int, Ints)


@dataclass(frozen=True)
class AsOf:
    """The rule by which left values find their partners.

    Attributes:
        direction: the direction.
        tolerance_us: the greatest distance of a partner, inclusive.

    >>> from flow_windowing.rules.watermark import ONE_KEY
    >>> nearest = AsOf("nearest", tolerance_us=10)
    >>> nearest.partner_us(ONE_KEY, 100, 95, 104), nearest.partner_us(ONE_KEY, 100, 95, 105)
    (104, 95)
    >>> nearest.final_us(ONE_KEY, 100, 95, NEVER), nearest.final_us(ONE_KEY, 100, 95, 102)
    (105, 103)
    """

    direction: Direction
    tolerance_us: int

    @property
    def looks_back(self) -> bool:
        """True if right values before a left value may be its partners."""
        return self.direction != "forward"

    @property
    def looks_ahead(self) -> bool:
        """True if right values after a left value may be its partners."""
        return self.direction != "backward"

    @cached_property
    def interval(self) -> Interval:
        """The interval in which a left value has partners."""
        before_us = self.tolerance_us if self.looks_back else 0
        return Interval(before_us, self.tolerance_us if self.looks_ahead else 0, 0)

    def partner_us(self, of: Arithmetic[N], timestamp_us: N, earlier_us: N, later_us: N) -> N:
        """Return the timestamps of partners, `NEVER` for none; of two as near, the earlier one.

        Args:
            of: the kind of numbers.
            timestamp_us: the timestamps of left values.
            earlier_us: the timestamps of their earlier right values, ``-NEVER`` for none.
            later_us: the timestamps of their later right values, `NEVER` for none.
        """
        if not self.looks_ahead:
            found_us, distance_us = earlier_us, timestamp_us - earlier_us
        elif not self.looks_back:
            found_us, distance_us = later_us, later_us - timestamp_us
        else:
            back_us, ahead_us = timestamp_us - earlier_us, later_us - timestamp_us
            found_us = of.choose(ahead_us < back_us, later_us, earlier_us)
            distance_us = of.lesser(ahead_us, back_us)
        return of.choose(distance_us <= self.tolerance_us, found_us, NEVER)

    def final_us(self, of: Arithmetic[N], timestamp_us: N, earlier_us: N, later_us: N) -> N:
        """Return the least watermarks at which partners are final; see `partner_us`."""
        if not self.looks_ahead:
            return timestamp_us + 1
        ahead_us = of.lesser(later_us - timestamp_us, self.tolerance_us)
        if self.looks_back:
            # A later right value is found only if it is nearer than the earlier one.
            ahead_us = of.lesser(ahead_us, of.greater(timestamp_us - earlier_us - 1, 0))
        return timestamp_us + ahead_us + 1

    def expires_us(self, of: Arithmetic[N], timestamp_us: N, deletes: N) -> N:
        """Return the least watermarks at which right values find no left value on time any more.

        Args:
            of: the kind of numbers.
            timestamp_us: the timestamps of right values.
            deletes: 1 for a right value that is ``None``, else 0.
        """
        if self.direction == "backward":
            # To find nothing is the same as to find a right value that deletes.
            return timestamp_us + of.choose(deletes == 1, 0, self.tolerance_us + 1)
        return timestamp_us + (self.tolerance_us + 1 if self.looks_back else 1)
