"""What a windowing step is set to, as text that is kept with its state.

Clock and windower decide at which system time a window closes, and a flow may go on with other
settings than it has kept windows with. The text tells one setting from another: where it has
changed, keys are looked at once, whenever they were due.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

Emit: TypeAlias = Literal["close", "epoch", "update"]
"""When a window emits: as it closes; also once an epoch if it changed; or after every value."""


def settings_of(emit: Emit, clock: object, windower: object) -> str:
    """When windows emit, and the plain values of a clock and a windower, as text.

    >>> from flow_windowing import SystemClock, SessionWindower
    >>> settings_of("close", SystemClock(), SessionWindower("5m"))
    '["close", {}, {"gap": "5m", "inclusive": "True", "grace": "None"}]'
    """
    return json.dumps([emit, _plain_values(clock), _plain_values(windower)])


def held_back(before: str | None, emit: Emit) -> bool:
    """Whether open windows have not emitted yet what they would not emit as they close any more.

    Args:
        before: the settings that they were kept with, if these have changed and are known.
        emit: when windows emit now.
    """
    return bool(before) and emit == "update" and json.loads(before or "")[0] == "close"


def _plain_values(config: object) -> dict[str, str]:
    """The values in a clock or a windower that can be told apart; functions cannot."""
    if not is_dataclass(config):
        return {}
    values = ((one.name, getattr(config, one.name)) for one in fields(config))
    return {name: str(value) for name, value in values if isinstance(value, _PLAIN)}


_PLAIN = (str, bool, int, float, timedelta, type(None))
