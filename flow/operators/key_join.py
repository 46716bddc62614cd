"""Joins of several keyed streams on their key, without windows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args, overload

from flow.checks import check_choice
from flow.dataflow import KeyedStream
from flow.durations import Duration
from flow.errors import FlowBuildError, shorten
from flow.instants import Moment
from flow.keyed.logic import DISCARD, KEEP, Keep
from flow.operators.stateful_steps import (
    Expirable,
    ExpiringOut,
    TtlFrom,
    add_stateful,
)

InsertMode: TypeAlias = Literal["first", "last", "product"]
"""The values of a side that a join holds: the first, the last, or all of them."""

EmitMode: TypeAlias = Literal["complete", "final", "running"]
"""The time at which a join emits: once every side has a value, after which the key starts over; at
the end of input; at each value."""

INSERT_MODES = get_args(InsertMode)
EMIT_MODES = get_args(EmitMode)


@dataclass
class JoinState:
    """State of a key in a join: a list of values for each side, empty before the first value."""

    sides: list[list[Any]] = field(default_factory=list)

    def insert(self, side: int, value: Any, mode: InsertMode) -> None:
        """Add a value to a side, or replace or skip it, as the insert mode requires."""
        values = self.sides[side]
        if mode == "product":
            values.append(value)
        elif mode == "last" or not values:
            values[:] = [value]

    @property
    def complete(self) -> bool:
        """True if every side has a value."""
        return all(self.sides)

    def rows(self) -> list[tuple[Any, ...]]:
        """Return all combinations of values, with ``None`` for a side without a value."""
        return list(itertools.product(*(values or [None] for values in self.sides)))

    def copied(self) -> JoinState:
        """Return a copy that shares no lists with this state."""
        return JoinState([list(values) for values in self.sides])


@overload
def join(
    step_id: str,
    *sides: KeyedStream[Any],
    insert_mode: InsertMode = "last",
    emit_mode: EmitMode = "complete",
) -> KeyedStream[tuple[Any, ...]]: ...
@overload
def join(
    step_id: str,
    *sides: KeyedStream[Any],
    insert_mode: InsertMode = "last",
    emit_mode: EmitMode = "complete",
    ttl: Duration,
    ttl_from: TtlFrom = "write",
) -> ExpiringOut[tuple[Any, ...], tuple[Any, ...]]: ...
def join(
    step_id: str,
    *sides: KeyedStream[Any],
    insert_mode: InsertMode = "last",
    emit_mode: EmitMode = "complete",
    ttl: Duration | None = None,
    ttl_from: TtlFrom | None = None,
) -> KeyedStream[tuple[Any, ...]] | ExpiringOut[tuple[Any, ...], tuple[Any, ...]]:
    """Join streams on their key into tuples, with one entry for each side.

    Args:
        step_id: the step's id, unique in the flow.
        sides: two or more keyed streams.
        insert_mode: the values of a side that take part: the ``"first"``, the ``"last"``, or, for
            ``"product"``, all, in every combination.
        emit_mode: when to emit: ``"complete"``, once every side has a value, after which the key
            starts over; ``"final"``, at the end of input; ``"running"``, after every value; the
            latter two with ``None`` for a side without a value.
        ttl: the values of a key expire after this system time; by default, never.
        ttl_from: ``"write"``: `ttl` counts from the last value of the key, which is the default;
            ``"first"``: from the first value.

    Returns:
        The stream of tuples; with `ttl`, an `ExpiringOut` of that stream and of the tuples of the
        keys that expire, with ``None`` for a side without a value.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> run_once([("a", 1)], lambda s: op.join("j", s, op.map_value("neg", s, lambda x: -x)))
        [('a', (1, -1))]
    """
    check_choice(f"step {shorten(step_id)}: insert_mode", insert_mode, INSERT_MODES)
    check_choice(f"step {shorten(step_id)}: emit_mode", emit_mode, EMIT_MODES)
    if len(sides) < 2:
        raise FlowBuildError(
            f"step {shorten(step_id)}: a join needs two or more streams, got {len(sides)}"
        )
    builder = _JoinBuilder(len(sides), insert_mode, emit_mode)
    return add_stateful(step_id, "join", builder, ttl, ttl_from, *sides, expiring=builder)


class _JoinLogic(Expirable):
    def __init__(self, config: _JoinBuilder, state: JoinState | None) -> None:
        self._config = config
        self._state = state or JoinState([[] for _ in range(config.sides)])

    def on_item(
        self,
        value: tuple[int, Any],
        moment: Moment,  # noqa: ARG002
    ) -> tuple[Iterable[tuple[Any, ...]], Keep]:
        side, plain = value
        self._state.insert(side, plain, self._config.insert_mode)
        if self._config.emit_mode == "running":
            return self._state.rows(), KEEP
        if self._config.emit_mode == "complete" and self._state.complete:
            return self._state.rows(), DISCARD
        return (), KEEP

    def on_end(self, moment: Moment) -> tuple[Iterable[tuple[Any, ...]], Keep]:  # noqa: ARG002
        return (self._state.rows(), DISCARD) if self._config.emit_mode == "final" else ((), KEEP)

    def on_expired(self) -> Iterable[tuple[Any, ...]]:
        return self._state.rows()

    def snapshot(self) -> JoinState:
        return self._state.copied()


@dataclass(frozen=True)
class _JoinBuilder:
    sides: int
    insert_mode: InsertMode
    emit_mode: EmitMode

    def keeps_back(self, port: int) -> bool:  # noqa: ARG002
        """See `flow.keyed.step.Stateful.keeps_back`."""
        return self.emit_mode == "final"

    def __call__(self, state: JoinState | None) -> _JoinLogic:
        return _JoinLogic(self, state)
