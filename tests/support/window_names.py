"""The names that Python in window transcripts can use: those of `flow_windowing`, and these.

Workers of Spark import this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import flow_windowing as win
from flow.instants import NEVER, Moment, datetime_us

Value = dict[str, Any]


class Echo(win.WindowLogic[Value, str, list[str]]):
    """A logic that emits a text for each call; its state is the names of its values."""

    def __init__(self, names: list[str] | None) -> None:
        self.names = list(names or ())

    def on_value(self, value: Value) -> Iterable[str]:
        self.names.append(value["value"])
        return [f"{value['value']} is number {len(self.names)}"]

    def on_merge(self, original: Echo) -> Iterable[str]:
        self.names += original.names
        return [f"with {' '.join(original.names)}"]

    def on_close(self) -> Iterable[str]:
        return ["over", f"held {' '.join(self.names)}"]

    def snapshot(self) -> list[str]:
        return list(self.names)


class Tally(win.EpochWindowLogic[Value, str, int]):
    """A logic that emits at the end of each epoch that changed its window, and at the close."""

    def __init__(self, count: int | None) -> None:
        self.count = count or 0

    def on_value(self, value: Value) -> Iterable[str]:
        self.count += 1
        return ()

    def on_merge(self, original: Tally) -> Iterable[str]:
        self.count += original.count
        return ()

    def on_epoch_end(self) -> Iterable[str]:
        return [f"{self.count} so far"]

    def on_close(self) -> Iterable[str]:
        return [f"{self.count} in all"]

    def snapshot(self) -> int:
        return self.count


@dataclass(frozen=True)
class MarkerClock(win.Clock[Value, tuple[int, ...]]):
    """A custom clock, whose watermark is the greatest timestamp of a value called ``mark``."""

    def build(self, state: tuple[int, ...] | None) -> win.ClockLogic[Value, tuple[int, ...]]:
        return _MarkerClockLogic(state)


class _MarkerClockLogic(win.ClockLogic[Value, tuple[int, ...]]):
    def __init__(self, state: tuple[int, ...] | None) -> None:
        (self._watermark_us,) = state or (-NEVER,)

    def on_item(self, value: Value, moment: Moment) -> win.Reading:
        timestamp_us = datetime_us(value["at"])
        if value["value"] == "mark":
            self._watermark_us = max(self._watermark_us, timestamp_us)
        return win.Reading(timestamp_us, self._watermark_us)

    def watermark(self, moment: Moment) -> int:
        return self._watermark_us

    def due_us(self, watermark_us: int, moment: Moment) -> int:
        return NEVER

    def snapshot(self) -> tuple[int, ...] | None:
        return None if self._watermark_us == -NEVER else (self._watermark_us,)


@dataclass(frozen=True)
class Joined(win.Aggregator[Value, str, str]):
    """A custom aggregate: the names of the values, one after the other."""

    def initialize(self) -> str:
        return ""

    def add(self, state: str, value: Value) -> str:
        return state + str(value["value"])

    def merge(self, state: str, other: str) -> str:
        return state + other

    def result(self, state: str) -> str:
        return state


def amount(value: Value) -> Any:
    """Return the amount of a value, for `by`."""
    return value["amount"]


def add_name(names: str, value: Value) -> str:
    """Add the name of a value to names; a folder."""
    return names + str(value["value"])


def merge_names(names: str, others: str) -> str:
    """Join the names of two sessions; a merger."""
    return f"{names}+{others}"


def longer(left: Value, right: Value) -> Value:
    """Return the later value, with both names; a reducer."""
    return {"at": max(left["at"], right["at"]), "value": f"{left['value']}{right['value']}"}


NAMES: dict[str, Any] = {
    **{name: getattr(win, name) for name in win.__all__},
    **{one.__name__: one for one in (Echo, Tally, MarkerClock, Joined)},
    **{one.__name__: one for one in (amount, add_name, merge_names, longer)},
    **{one.__name__: one for one in (datetime, timedelta)},
    "UTC": UTC,
}
