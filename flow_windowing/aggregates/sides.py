"""The aggregate of joins with one value of each side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from typing_extensions import override

from flow.operators.joins import InsertMode
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.aggregates.form import Form
from flow_windowing.contract.arrival import Arrival

OrderKey: TypeAlias = tuple[int, int]
"""The key of the order of values: (timestamp, arrival number), or (0, arrival number)."""
Entry: TypeAlias = tuple[OrderKey, Any]


@dataclass(frozen=True)
class OneOfEachSide(Aggregator[tuple[int, Any], "tuple[Entry | None, ...]", "tuple[Any, ...]"]):
    """The first, or the last, value of each side, in a tuple.

    Attributes:
        sides: the number of sides.
        insert_mode: the value of a side that is held, ``"first"`` or ``"last"``.
        ordered: True if the order is by timestamp, then by arrival; False if by arrival only.
    """

    form = Form(ignores_order=True)

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
        raise NotImplementedError("values need their arrival: call add_at")

    @override
    def add_at(
        self, state: tuple[Entry | None, ...], value: tuple[int, Any], at: Arrival
    ) -> tuple[Entry | None, ...]:
        side, of_side = value
        new: Entry = ((at.timestamp_us if self.ordered else 0, at.number), of_side)
        return (*state[:side], self._choose(state[side], new), *state[side + 1 :])

    @override
    def merge(
        self, state: tuple[Entry | None, ...], other: tuple[Entry | None, ...]
    ) -> tuple[Entry | None, ...]:
        return tuple(map(self._choose, state, other))

    @override
    def result(self, state: tuple[Entry | None, ...]) -> tuple[Any, ...]:
        return tuple(None if entry is None else entry[1] for entry in state)

    def _choose(self, one: Entry | None, other: Entry | None) -> Entry | None:
        if one is None or other is None:
            return one or other
        return other if (other[0] < one[0]) == (self.insert_mode == "first") else one
