"""State of one key of a windowing step between epochs, as snapshots hold it on both paths."""

from __future__ import annotations

from typing import Any, NamedTuple

from flow_windowing.contract.arrival import Arrival
from flow_windowing.contract.metadata import WindowMetadata
from flow_windowing.rules.waiting import WaitState


class Kept(NamedTuple):
    """A value kept for windows that open over it later."""

    timestamp_us: int
    at: Arrival
    value: Any


class DriverState(NamedTuple):
    """A key's state between epochs.

    Attributes:
        clock: what the clock remembers.
        windower: what the windower remembers.
        waiting: the values that wait.
        arrived: how many values have come since the key last had nothing to remember them by.
        entered: how many of them have entered windows.
        windows: a snapshot of each open window's logic, by id.
        kept: the values kept for windows that open over them later, in order of time.
        shown: what each open window has emitted last, where it may have to be taken back; ``None``
            for what it has come to.
        latest: the greatest timestamp in each open window, where it is asked for.
    """

    clock: Any
    windower: Any
    waiting: WaitState | None
    arrived: int
    entered: int
    windows: dict[int, Any]
    kept: tuple[Kept, ...]
    shown: dict[int, tuple[WindowMetadata, Any] | None]
    latest: dict[int, int]
