"""The logic of windows of a join, key by key."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from typing_extensions import override

from flow.operators.joins import EmitMode, InsertMode
from flow_windowing.aggregates.sides import Entry, OrderKey
from flow_windowing.contract.arrival import Arrival
from flow_windowing.contract.logic import WindowLogic

Sides: TypeAlias = list[list[Entry]]
"""Of each side, its values in order of turn; empty where nothing came."""


@dataclass(frozen=True)
class JoinBuilder:
    """Makes the logic of a window of a join that keeps all values, or emits before the close."""

    KEPT_AS: ClassVar[str] = "_JoinBuilder"

    sides: int
    insert_mode: InsertMode
    emit_mode: EmitMode
    ordered: bool

    def __call__(self, state: Sides | None) -> JoinLogic:
        """Make the logic of a window, from a snapshot if there is one."""
        return JoinLogic(self, [[] for _ in range(self.sides)] if state is None else state)


class JoinLogic(WindowLogic[tuple[int, Any], tuple[Any, ...], Sides]):
    """Values of each side in one window; one at most, but for ``"product"``."""

    detaches = True

    __slots__ = ("_config", "sides")

    def __init__(self, config: JoinBuilder, sides: Sides) -> None:
        self._config = config
        self.sides = [list(values) for values in sides]

    @override
    def on_value(self, value: tuple[int, Any]) -> Iterable[tuple[Any, ...]]:
        raise NotImplementedError("values come with their arrival")

    @override
    def on_value_at(self, value: tuple[int, Any], at: Arrival) -> Iterable[tuple[Any, ...]]:
        side, plain = value
        turn = (at.timestamp_us if self._config.ordered else 0, at.number)
        self._insert(self.sides[side], (turn, plain))
        if self._config.emit_mode == "running":
            return self._rows()
        if self._config.emit_mode == "complete" and all(self.sides):
            rows = self._rows()
            self.sides = [[] for _ in self.sides]
            return rows
        return ()

    @override
    def on_merge(self, original: JoinLogic) -> Iterable[tuple[Any, ...]]:
        """Nothing is emitted: the value that made the two windows one comes next."""
        for values, others in zip(self.sides, original.sides, strict=True):
            for entry in others:
                self._insert(values, entry)
        return ()

    @override
    def on_close(self) -> Iterable[tuple[Any, ...]]:
        return self._rows() if self._config.emit_mode == "final" else ()

    @override
    def snapshot(self) -> Sides:
        return [list(values) for values in self.sides]

    def _insert(self, values: list[Entry], entry: Entry) -> None:
        match self._config.insert_mode:
            case "first":
                values[:] = [min(*values, entry, key=_turn_of)] if values else [entry]
            case "last":
                values[:] = [max(*values, entry, key=_turn_of)] if values else [entry]
            case "product":
                bisect.insort(values, entry, key=_turn_of)

    def _rows(self) -> list[tuple[Any, ...]]:
        choices = [[plain for _, plain in values] or [None] for values in self.sides]
        return list(itertools.product(*choices))


def _turn_of(entry: Entry) -> OrderKey:
    return entry[0]
