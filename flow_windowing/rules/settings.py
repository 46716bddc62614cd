"""Settings of a windowing step, as text that is stored with its state.

Clock and windower determine the system time at which a window closes, and `emit` the time at which
it emits. If a flow restarts with other settings than its state was written with, the due times in
the state are out of date. The engine compares the texts and, if they differ, runs all keys once.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

Emit: TypeAlias = Literal["close", "epoch", "update"]
"""The time at which a window emits: as it closes; also at the end of each epoch that changes it; or
only after every value."""

_PLAIN = (str, bool, int, float, timedelta, type(None))


def settings_of(emit: Emit, clock: object, windower: object) -> str:
    """Return the time of emission and the plain values of clock and windower as JSON.

    >>> from flow_windowing import SystemClock, SessionWindower
    >>> settings_of("close", SystemClock(), SessionWindower("5m"))
    '["close", {}, {"gap": "5m", "inclusive": "True", "grace": "None"}]'
    """
    return json.dumps([emit, _plain_values(clock), _plain_values(windower)])


def owes_updates(before: str | None, emit: Emit) -> bool:
    """Return True if restored windows owe an update: `emit` changed from "close" to "update".

    Such windows have emitted nothing yet, and with "update" emit nothing as they close.

    Args:
        before: the settings that the state was written with; empty or ``None`` if they are unknown
            or have not changed.
        emit: the current setting.
    """
    return bool(before) and emit == "update" and json.loads(before or "")[0] == "close"


def _plain_values(config: object) -> dict[str, str]:
    """Return the fields of a clock or windower as texts by name, without those of other types.

    Functions, for example, are left out, as they cannot be compared between runs.
    """
    if not is_dataclass(config):
        return {}
    values = ((one.name, getattr(config, one.name)) for one in fields(config))
    return {name: str(value) for name, value in values if isinstance(value, _PLAIN)}
