"""The window logic of a join that emits before its windows close, which runs key by key."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from typing_extensions import override

from flow.operators.key_join import EmitMode, InsertMode
from flow_windowing.aggregates.folding import Entry, OrderKey
from flow_windowing.rules.window_logic import Arrival, WindowLogic

Sides: TypeAlias = list[list[Entry]]
"""The entries of each side, sorted by their order key; empty for a side without a value."""


@dataclass(frozen=True)
class JoinBuilder:
    """Builder of window logics for joins that emit before the close."""

    sides: int
    insert_mode: InsertMode
    emit_mode: EmitMode
    ordered: bool

    def __call__(self, state: Sides | None) -> JoinLogic:
        """Return the logic of a window, from a snapshot or, for a new window, from ``None``."""
        return JoinLogic(self, [[] for _ in range(self.sides)] if state is None else state)


class JoinLogic(WindowLogic[tuple[int, Any], tuple[Any, ...], Sides]):
    """The values of each side in one window; at most one for each side unless a join holds all."""

    detaches = True

    __slots__ = ("_config", "sides")

    def __init__(self, config: JoinBuilder, sides: Sides) -> None:
        self._config = config
        self.sides = [list(values) for values in sides]

    @override
    def on_value(self, value: tuple[int, Any]) -> Iterable[tuple[Any, ...]]:
        raise NotImplementedError("call on_value_at: a join needs the arrival of each value")

    @override
    def on_value_at(self, value: tuple[int, Any], at: Arrival) -> Iterable[tuple[Any, ...]]:
        side, plain = value
        order = (at.timestamp_us if self._config.ordered else 0, at.number)
        self._insert(self.sides[side], (order, plain))
        if self._config.emit_mode == "running":
            return self._rows()
        if self._config.emit_mode == "complete" and all(self.sides):
            rows = self._rows()
            self.sides = [[] for _ in self.sides]
            return rows
        return ()

    @override
    def on_merge(self, original: JoinLogic) -> Iterable[tuple[Any, ...]]:
        """Merge without output: the value that merges the two windows is added next."""
        for values, others in zip(self.sides, original.sides, strict=True):
            for entry in others:
                self._insert(values, entry)
        return ()

    @override
    def on_close(self) -> Iterable[tuple[Any, ...]]:
        return ()

    @override
    def snapshot(self) -> Sides:
        return [list(values) for values in self.sides]

    def _insert(self, values: list[Entry], entry: Entry) -> None:
        match self._config.insert_mode:
            case "first":
                values[:] = [min(*values, entry, key=_order_of)] if values else [entry]
            case "last":
                values[:] = [max(*values, entry, key=_order_of)] if values else [entry]
            case "product":
                bisect.insort(values, entry, key=_order_of)

    def _rows(self) -> list[tuple[Any, ...]]:
        """Return all combinations of values, with ``None`` for a side without a value."""
        choices = [[plain for _, plain in values] or [None] for values in self.sides]
        return list(itertools.product(*choices))


def _order_of(entry: Entry) -> OrderKey:
    return entry[0]
