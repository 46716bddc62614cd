"""Settings of a windowing step, and its streams.

The settings are stored as text with the state. Clock and windower determine the system time at
which a window closes, and `emit` the time at which it emits. If a flow restarts with other settings
than its state was written with, the due times in the state are out of date. The engine compares the
texts and, if they differ, runs all keys once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Literal, TypeAlias, TypeVar

from flow_windowing.contract.panes import AfterWatermark

Emit: TypeAlias = Literal["close", "epoch", "update"]
"""The time at which a window emits: as it closes; also at the end of each epoch that changes it; or
only after every value."""

Emission: TypeAlias = Emit | AfterWatermark
"""The time at which a window emits, also by a trigger."""

_PLAIN = (str, bool, int, float, timedelta, type(None))


def settings_of(emit: Emission, clock: object, windower: object) -> str:
    """Return the time of emission and the plain values of clock and windower as JSON.

    >>> from flow_windowing import SystemClock, SessionWindower
    >>> settings_of("close", SystemClock(), SessionWindower("5m"))
    '["close", {}, {"gap": "5m", "inclusive": "True", "grace": "None"}]'
    """
    return json.dumps([str(emit), _plain_values(clock), _plain_values(windower)])


def owes_updates(before: str | None, emit: Emission) -> bool:
    """Return True if restored windows owe an update, as `emit` changed to "update".

    With "close" or a trigger before, windows have values that they have not emitted, and with
    "update" they emit nothing as they close.

    Args:
        before: the settings that the state was written with; empty or ``None`` if they are unknown
            or have not changed.
        emit: the current setting.
    """
    if not before or emit != "update":
        return False
    return json.loads(before)[0] not in {"update", "epoch"}


def _plain_values(config: object) -> dict[str, str]:
    """Return the fields of a clock or windower as texts by name, without those of other types.

    Functions, for example, are left out, as they cannot be compared between runs.
    """
    if not is_dataclass(config):
        return {}
    values = ((one.name, getattr(config, one.name)) for one in fields(config))
    return {name: str(value) for name, value in values if isinstance(value, _PLAIN)}


PORTS = ("down", "late", "closed")
DOWN, LATE, CLOSED = range(len(PORTS))

DEDUP_PORTS = ("down", "late", "duplicates")
"""The streams of a deduplicating step; the first two have the numbers of a windowing step."""
DUPLICATES = 2

STATE_PORTS = ("down", "late", "expired")
"""The streams of a map with a state that expires by event time."""
EXPIRED = 2


Timestamp: TypeAlias = Literal["open", "close", "last"]
"""The time of a window in its metadata: open time, close time, or greatest timestamp."""

T = TypeVar("T")


def timestamp_of(
    choice: Timestamp | None, open_time: T, close_time: T, last_time: Callable[[], T]
) -> T | None:
    """Return the timestamp of a window, or of many in columns.

    Args:
        choice: the time to return; ``None`` for no timestamp.
        open_time: the open time.
        close_time: the close time.
        last_time: returns the greatest timestamp in the window, or the close time of a window that
            opened before the step recorded timestamps.
    """
    match choice:
        case "open":
            return open_time
        case "close":
            return close_time
        case "last":
            return last_time()
        case None:
            return None
