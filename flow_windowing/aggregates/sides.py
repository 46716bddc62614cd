"""The aggregate of most joins: one value of each side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from typing_extensions import override

from flow.operators.joins import InsertMode
from flow_windowing.aggregates.aggregator import Aggregator, Arrival

Turn: TypeAlias = tuple[int, int]
"""What decides which value is first: its time and its arrival, or its arrival alone."""
Entry: TypeAlias = tuple[Turn, Any]


@dataclass(frozen=True)
class OneOfEachSide(Aggregator[tuple[int, Any], "tuple[Entry | None, ...]", "tuple[Any, ...]"]):
    """The first, or the last, value of each side, in a tuple: what most joins make of a window.

    What it comes to does not depend on the order in which values enter the window.

    Attributes:
        sides: how many sides there are.
        insert_mode: which value of a side stays, ``"first"`` or ``"last"``.
        ordered: whether first and last go by timestamp, or else by arrival.
    """

    sides: int
    insert_mode: InsertMode
    ordered: bool

    @override
    def initialize(self) -> tuple[Entry | None, ...]:
        return (None,) * self.sides

    @override
    def add(
        self, state: tuple[Entry | None, ...], value: tuple[int, Any]
    ) -> tuple[Entry | None, ...]:
        raise NotImplementedError("values come with their arrival")

    @override
    def add_at(
        self, state: tuple[Entry | None, ...], value: tuple[int, Any], at: Arrival
    ) -> tuple[Entry | None, ...]:
        side, plain = value
        new: Entry = ((at.timestamp_us if self.ordered else 0, at.number), plain)
        return (*state[:side], self._chosen(state[side], new), *state[side + 1 :])

    @override
    def merge(
        self, state: tuple[Entry | None, ...], other: tuple[Entry | None, ...]
    ) -> tuple[Entry | None, ...]:
        return tuple(map(self._chosen, state, other))

    @override
    def result(self, state: tuple[Entry | None, ...]) -> tuple[Any, ...]:
        return tuple(None if entry is None else entry[1] for entry in state)

    def _chosen(self, one: Entry | None, other: Entry | None) -> Entry | None:
        if one is None or other is None:
            return one or other
        return other if (other[0] < one[0]) == (self.insert_mode == "first") else one
