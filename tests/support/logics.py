"""Stateful logics for tests, in a module that workers can import."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from flow.instants import Moment
from flow.operators import DISCARD, KEEP, Keep, StatefulBatchLogic, StatefulLogic


class Diary(StatefulLogic[Any, str, list[str]]):
    """Emits what it was called with; its state is all that it has emitted.

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
    """Emits how many values an epoch brought, and the total so far."""

    def __init__(self, state: int | None) -> None:
        self._total = state or 0

    def on_batch(self, values: list[int], moment: Moment) -> tuple[Iterable[tuple[int, int]], Keep]:
        self._total += sum(values)
        return [(len(values), self._total)], KEEP

    def snapshot(self) -> int:
        return self._total
