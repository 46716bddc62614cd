"""Stateful logics for tests, in a module that workers can import."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from flow.instants import NEVER, Moment
from flow.keyed.logic import Progress, StampedValue
from flow.keyed.step import Capabilities, LogicBuilder
from flow.operators import DISCARD, KEEP, Keep, StatefulBatchLogic, StatefulLogic


class Diary(StatefulLogic[Any, str, list[str]]):
    """Logic that emits its calls; its state is the list of all emitted values.

    It asks to be called at the time that a `datetime` value says, and goes when told ``"go"``.
    """

    def __init__(self, state: tuple[list[str], datetime | None] | None) -> None:
        self._lines, self._at = state or ([], None)

    def _note(self, text: str) -> list[str]:
        self._lines.append(text)
        return [text]

    def on_item(self, value: Any, moment: Moment) -> tuple[Iterable[str], Keep]:
        if isinstance(value, datetime):
            self._at = value
            return self._note("set"), KEEP
        return self._note(f"item {value}"), DISCARD if value == "go" else KEEP

    def on_notify(self, moment: Moment) -> tuple[Iterable[str], Keep]:
        self._at = None
        return self._note(f"notify {moment.now:%H:%M}"), KEEP

    def on_end(self, moment: Moment) -> tuple[Iterable[str], Keep]:
        return self._note(f"end after {len(self._lines)}"), KEEP

    def notify_at(self) -> datetime | None:
        return self._at

    def snapshot(self) -> Any:
        return list(self._lines), self._at


class BatchTotal(StatefulBatchLogic[int, tuple[int, int], int]):
    """Logic that emits the number of values of an epoch, and the total so far."""

    def __init__(self, state: int | None) -> None:
        self._total = state or 0

    def on_batch(self, values: list[int], moment: Moment) -> tuple[Iterable[tuple[int, int]], Keep]:
        self._total += sum(values)
        return [(len(values), self._total)], KEEP

    def snapshot(self) -> int:
        return self._total


@dataclass(frozen=True)
class Mileage(Progress):
    """Measure of progress: whole numbers are the progress, other values have none."""

    by_time: bool = False

    @property
    def advances(self) -> bool:
        return self.by_time

    def measure(self, value: Any, moment: Moment) -> int | None:
        return value if isinstance(value, int) else None


class Waypoint(NamedTuple):
    """A value that asks for a notification at a progress of the stream."""

    at: int


class Traveller(StatefulLogic[StampedValue, tuple[Any, int], int]):
    """Logic that emits its calls with the stream progress at the call."""

    def __init__(self, due: int) -> None:
        self._due = due

    def on_item(
        self, value: StampedValue, moment: Moment
    ) -> tuple[Iterable[tuple[Any, int]], Keep]:
        plain = value.value
        if isinstance(plain, Waypoint):
            self._due = plain.at
        return [(plain, value.progress_us)], KEEP

    def on_notify(self, moment: Moment) -> tuple[Iterable[tuple[Any, int]], Keep]:
        self._due = NEVER
        return [("notify", moment.progress_us)], KEEP

    def on_end(self, moment: Moment) -> tuple[Iterable[tuple[Any, int]], Keep]:
        return [("end", moment.progress_us)], DISCARD

    def notify_at_us(self) -> int:
        return self._due

    def snapshot(self) -> int:
        return self._due


@dataclass(frozen=True)
class Journey(LogicBuilder):
    """Builder of travellers in a step with measured progress."""

    mileage: Mileage = Mileage()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(progress=self.mileage)

    def __call__(self, state: int | None) -> Traveller:
        return Traveller(NEVER if state is None else state)
