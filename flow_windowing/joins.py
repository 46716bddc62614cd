"""Joining several keyed streams on their key, window by window."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from typing_extensions import override

from flow.dataflow import KeyedStream
from flow.errors import FlowBuildError, shorten
from flow.operators.building import check_choice
from flow.operators.joins import EMIT_MODES, INSERT_MODES, EmitMode, InsertMode
from flow_windowing.aggregates.aggregator import Aggregator, Arrival
from flow_windowing.clocks.clock import Clock
from flow_windowing.folding import FoldingBuilder
from flow_windowing.logic import WindowLogic
from flow_windowing.object.driver import Timestamp
from flow_windowing.operators import WindowOut, add_window
from flow_windowing.windowers.windower import Windower

Turn: TypeAlias = tuple[int, int]
"""What decides which value is first: its time and its arrival, or its arrival alone."""
Entry: TypeAlias = tuple[Turn, Any]
Sides: TypeAlias = list[list[Entry]]
"""Of each side, its values in order of turn; empty where nothing came."""


def join_window(
    step_id: str,
    clock: Clock[Any, Any],
    windower: Windower[Any],
    *sides: KeyedStream[Any],
    insert_mode: InsertMode = "last",
    emit_mode: EmitMode = "final",
    ordered: bool = True,
    timestamp: Timestamp | None = None,
) -> WindowOut[Any, tuple[Any, ...]]:
    """Join streams on their key into tuples, one place a side, within each window.

    Clock and windower see the plain values of all sides; a late value says which side it came from.

    Args:
        step_id: the step's id, unique in the flow.
        clock: the sense of time.
        windower: how values are cut into windows.
        sides: two or more keyed streams.
        insert_mode: what a side keeps when it has several values: the ``"first"``, the ``"last"``,
            or, for ``"product"``, all of them, to make every combination.
        emit_mode: when to emit: ``"final"``, as the window closes, with ``None`` for a side without
            a value; ``"complete"``, once every side has one, and the window starts over;
            ``"running"``, at every value, all that there is then.
        ordered: whether values enter windows in timestamp order, as the watermark passes them, and
            first and last go by timestamp; ``False``: in arrival order, at once.
        timestamp: which time ``WindowMetadata.timestamp`` says; see `fold_window`.

    Raises:
        FlowBuildError, FlowTypeError: when an argument is not fit; it says which.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> from flow_windowing import SystemClock, TumblingWindower
        >>> def joined(views):
        ...     clicks = op.filter_value("clicks", views, lambda n: n > 1)
        ...     return join_window("j", SystemClock(), TumblingWindower("1h"), views, clicks).down
        >>> out = run_once([("a", 1), ("b", 2)], joined)
        >>> sorted((key, pair) for key, (_, pair) in out)
        [('a', (1, None)), ('b', (2, 2))]
    """
    check_choice(step_id, "insert_mode", insert_mode, INSERT_MODES)
    check_choice(step_id, "emit_mode", emit_mode, EMIT_MODES)
    if len(sides) < 2:
        raise FlowBuildError(
            f"step {shorten(step_id)}: a join needs two or more streams, got {len(sides)}"
        )
    builder: Callable[[Any], WindowLogic[Any, Any, Any]]
    if emit_mode == "final" and insert_mode != "product":
        one_each = OneOfEachSide(len(sides), insert_mode, ordered)
        builder = FoldingBuilder(one_each, "close")
    else:
        builder = _JoinBuilder(len(sides), insert_mode, emit_mode, ordered)
    return add_window(step_id, sides, clock, windower, builder, ordered, timestamp=timestamp)


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


@dataclass(frozen=True)
class _JoinBuilder:
    sides: int
    insert_mode: InsertMode
    emit_mode: EmitMode
    ordered: bool

    def __call__(self, state: Sides | None) -> _JoinLogic:
        return _JoinLogic(self, [[] for _ in range(self.sides)] if state is None else state)


class _JoinLogic(WindowLogic[tuple[int, Any], tuple[Any, ...], Sides]):
    detaches = True

    """The values of one window. Invariant: each side has at most one, but for ``"product"``."""

    __slots__ = ("_config", "sides")

    def __init__(self, config: _JoinBuilder, sides: Sides) -> None:
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
    def on_merge(self, original: _JoinLogic) -> Iterable[tuple[Any, ...]]:
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


def _turn_of(entry: Entry) -> Turn:
    return entry[0]
