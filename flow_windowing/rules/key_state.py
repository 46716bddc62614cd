"""State of one key of a step with a clock between epochs: the snapshots of both paths.

The values that a join by time retains have tags: arrival number, side and mark in one number.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from flow.columns.arrays import Ints
from flow_windowing.contract.arrival import Arrival
from flow_windowing.contract.metadata import WindowMetadata
from flow_windowing.rules.waiting import WaitState, count_waiting

N = TypeVar("N", int, Ints)


def tag_of(number: N, side: N, mark: N) -> N:
    """Return arrival number, side and mark of a retained value as one number.

    The mark is 0 or 1; see `JoinValue.is_marked`. Tags sort by arrival number. Segments and
    snapshots hold them.

    >>> tag_of(5, 1, 1), number_of(23), side_of(23), mark_of(23)
    (23, 5, 1, 1)
    """
    return number * 4 + side * 2 + mark


def number_of(tag: N) -> N:
    """Return the arrival number in a tag."""
    return tag >> 2


def side_of(tag: N) -> N:
    """Return the side in a tag."""
    return tag >> 1 & 1


def mark_of(tag: N) -> N:
    """Return the mark in a tag."""
    return tag & 1


class RetainedValue(NamedTuple):
    """A retained value, for windows that open over it later.

    Attributes:
        timestamp_us: the timestamp.
        at: the arrival.
        value: the value.
    """

    timestamp_us: int
    at: Arrival
    value: Any


class DriverState(NamedTuple):
    """The state of a key between epochs.

    Attributes:
        clock: the snapshot of the clock.
        windower: the snapshot of the windower.
        waiting: the buffered values.
        arrived: the number of values that arrived since the key last had no value in state: the
            arrival number of the next value.
        entered: the number of these values that entered windows.
        windows: the snapshot of each open window's logic, by window id.
        retained: the retained values, sorted by timestamp, then entry number.
        emissions: the last emission of each open window that may have to be retracted, by window
            id; ``None`` for the window's current result.
        latest: the greatest timestamp in each open window, by window id, if metadata carries it.
    """

    clock: Any
    windower: Any
    waiting: WaitState | None
    arrived: int
    entered: int
    windows: dict[int, Any]
    retained: tuple[RetainedValue, ...]
    emissions: dict[int, tuple[WindowMetadata, Any] | None]
    latest: dict[int, int]


class IntervalState(NamedTuple):
    """The state of a key of a join by time, interval or as-of, between epochs.

    Attributes:
        clock: the snapshot of the clock.
        arrived: the number of values that arrived since the key last had no value in state: the
            arrival number of the next value.
        retained: the retained values, each as timestamp in µs, tag and value; a tag has arrival
            number, side and mark, see `tag_of`.
    """

    clock: Any
    arrived: int
    retained: list[tuple[int, int, Any]]


def counts_of(state: DriverState | IntervalState) -> tuple[int, int]:
    """Return the number of open windows and of buffered values of a key.

    >>> counts_of(IntervalState(None, 2, [(0, 0, "left"), (5, 3, "right")]))
    (0, 2)
    """
    # The function is called for each touched key, and a `StateCounts` would double its time.
    values = len(state.retained)
    if isinstance(state, IntervalState):
        return 0, values
    if state.waiting is not None:
        values += count_waiting(state.waiting)
    return len(state.windows), values
