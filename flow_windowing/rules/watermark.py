"""Watermarks of an event clock and late values, for one key and for keys in columns.

The values of a key set the *base* of its watermark; the watermark advances from the base with the
inputs' clock. Source partitions that are behind *hold* the watermark: they bound the watermark that
is used, not the base in the key's state. The watermark that is used never decreases.

Each function takes integers with `ONE_KEY`, or int64 arrays of shape (keys,) with `COLUMNS`. All
are µs; a key without a base, or that was never held, has `NO_WATERMARK` in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar, overload

import numpy as np

from flow.columns.arrays import Ints, Mask, round_up
from flow.instants import NEVER, Moment
from flow.keyed.logic import Counted
from flow.keyed.state import held_due_us
from flow_windowing.rules.metadata import LateReason

NO_WATERMARK = -NEVER
"""The watermark before the first value."""
LEAST_TAKEN = NO_WATERMARK + 1
"""Watermark of a key that partitions hold at the beginning of time. The key is held, which
`NO_WATERMARK` would not express."""

N = TypeVar("N", int, Ints)


class Arithmetic(NamedTuple, Generic[N]):
    """The operations that differ between numbers and arrays.

    Attributes:
        greater: the greater of two.
        lesser: the lesser of two.
        choose: the first of two where a condition holds, else the second.
    """

    greater: Callable[[Any, Any], N]
    lesser: Callable[[Any, Any], N]
    choose: Callable[[Any, Any, Any], N]


ONE_KEY: Arithmetic[int] = Arithmetic(max, min, lambda condition, a, b: a if condition else b)
COLUMNS: Arithmetic[Ints] = Arithmetic(np.maximum, np.minimum, np.where)


def advanced(of: Arithmetic[N], base_us: N, set_at_us: N, clock_us: int) -> N:
    """Return each base plus the time of the inputs' clock since it was set.

    Args:
        of: the kind of numbers.
        base_us: the bases.
        set_at_us: the inputs' clock as each base was set.
        clock_us: the inputs' clock now.

    >>> advanced(ONE_KEY, 100, 10, 25), advanced(ONE_KEY, 100, 10, 5)
    (115, 100)
    """
    passed_us = base_us + of.greater(clock_us - set_at_us, 0)
    return of.choose(base_us == NO_WATERMARK, base_us, passed_us)


def floor(of: Arithmetic[N], taken_us: N, set_at_us: N, free_us: N, held_since_us: int) -> N:
    """Return the watermark used so far, below which a hold does not lower it.

    Args:
        of: the kind of numbers.
        taken_us: the watermark of each key that was used when it was last held.
        set_at_us: the inputs' clock as each base was set.
        free_us: each watermark just before the hold began.
        held_since_us: the inputs' clock as the hold began.
    """
    is_set_during_hold = (taken_us != NO_WATERMARK) & (set_at_us >= held_since_us)
    return of.choose(is_set_during_hold, taken_us, of.greater(taken_us, free_us))


def held(of: Arithmetic[N], own_us: N, bound_us: Any, floor_us: N) -> N:
    """Return the watermarks used for held keys.

    Args:
        of: the kind of numbers.
        own_us: the watermarks without the bound of other source partitions.
        bound_us: the greatest watermark that other source partitions allow.
        floor_us: the result of `floor`.
    """
    return of.greater(floor_us, of.lesser(own_us, bound_us))


def due_at(
    of: Arithmetic[N],
    target_us: N,
    base_us: N,
    set_at_us: N,
    watermark_us: N,
    moment: Moment,
    advances: bool,
) -> N:
    """Return the due times at which watermarks reach their targets if no value arrives.

    In the encoding of `flow.keyed.state`: a system time, or a watermark for a key that is held.

    Args:
        of: the kind of numbers.
        target_us: the watermarks to reach, `NEVER` for none.
        base_us: the bases.
        set_at_us: the inputs' clock as each base was set.
        watermark_us: the watermarks that are used at the moment.
        moment: the moment.
        advances: True if watermarks advance with the inputs' clock.
    """
    due_us: Any = NEVER
    if advances:
        due_us = of.lesser(target_us - base_us + (set_at_us + moment.downtime_us), NEVER)
    # The inputs' clock may be behind the time at which the base was set.
    now_us = moment.inputs_now_us
    due_us = of.choose(target_us <= base_us, of.lesser(due_us, now_us), due_us)
    due_us = of.choose((target_us < NEVER) & (base_us != NO_WATERMARK), due_us, NEVER)
    is_held = (due_us <= moment.inputs_now_us) & (target_us > watermark_us)
    return of.choose(is_held, target_us + held_due_us(0), due_us)


def expires_at(of: Arithmetic[N], last_value_us: N, after_us: int, downtime_us: int) -> N:
    """Return the system time at which the clock of a silent key expires.

    Args:
        of: the kind of numbers.
        last_value_us: the running time of each key's last value.
        after_us: the time from a key's last value to its expiry, the clock's wait included.
        downtime_us: the total time that the flow was not running.
    """
    return of.lesser(last_value_us + (after_us + downtime_us), NEVER)


REASONS: tuple[LateReason | None, ...] = (None, *LateReason)
"""The reasons for which a value is rejected, by number; 0 stands for a value that is not."""


@overload
def is_behind(timestamp_us: int, watermark_us: int) -> bool: ...
@overload
def is_behind(timestamp_us: Ints, watermark_us: Ints) -> Mask: ...
def is_behind(timestamp_us: int | Ints, watermark_us: int | Ints) -> bool | Mask:
    """Return True if a value is behind the watermark; without grace, such a value is late.

    A value with a timestamp equal to the watermark is on time.
    """
    return timestamp_us < watermark_us


@overload
def has_closed(closed_at_us: int, watermark_us: int) -> bool: ...
@overload
def has_closed(closed_at_us: Ints, watermark_us: Ints) -> Mask: ...
def has_closed(closed_at_us: int | Ints, watermark_us: int | Ints) -> bool | Mask:
    """Return True if a window has closed; a value for such a window is late even with grace.

    Args:
        closed_at_us: the least watermark at which the window is closed, grace included.
        watermark_us: the watermark.
    """
    return closed_at_us <= watermark_us


def counted_late(late_by_us: Ints, sources: Ints | None = None) -> list[Counted]:
    """Return the counts of late values by lateness, rounded up, and source partition.

    Args:
        late_by_us: the watermark less the timestamp of each value, int64 µs, positive.
        sources: the number of the source partition of each value, -1 where it is not known.
    """
    known = np.full(len(late_by_us), -1) if sources is None else sources
    pairs = np.stack([round_up(late_by_us), known])
    (late, numbers), counts = np.unique(pairs, axis=1, return_counts=True)
    return [
        Counted("late_by", count, late_by_us=lateness_us, source=number)
        for lateness_us, number, count in zip(
            late.tolist(), numbers.tolist(), counts.tolist(), strict=True
        )
    ]
