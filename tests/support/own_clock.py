"""A clock of a user's own: an event clock that a step knows by its `ClockLogic` alone."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from flow_windowing import EventClock


class OwnClock(EventClock[Any]):
    """An event clock that is not of the type `EventClock`, so that a step calls it key by key."""


def own(clock: EventClock[Any]) -> OwnClock:
    """Return an event clock as a clock of a user's own."""
    return OwnClock(**{one.name: getattr(clock, one.name) for one in fields(clock)})
