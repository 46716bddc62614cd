"""Maps of the values of a key with a state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from flow.dataflow import KeyedStream
from flow.durations import Duration
from flow.errors import RAISED, brief, shorten
from flow.instants import Moment
from flow.keyed.logic import CONSTANTS, DISCARD, KEEP, Keep, OneToOneLogic, RejectedValue, detach
from flow.keyed.step import Stateful
from flow.operators.building import add_step, check_callable
from flow.operators.expiring import Expirable, ExpiringOut, TtlFrom, add_expiring, check_no_ttl_from

V = TypeVar("V")
W = TypeVar("W")
S = TypeVar("S")


@overload
def stateful_flat_map(
    step_id: str,
    up: KeyedStream[V],
    mapper: Callable[[S | None, V], tuple[S | None, Iterable[W]]],
) -> KeyedStream[W]: ...
@overload
def stateful_flat_map(
    step_id: str,
    up: KeyedStream[V],
    mapper: Callable[[S | None, V], tuple[S | None, Iterable[W]]],
    *,
    ttl: Duration,
    ttl_from: TtlFrom = "write",
) -> ExpiringOut[W, S]: ...
def stateful_flat_map(
    step_id: str,
    up: KeyedStream[V],
    mapper: Callable[[S | None, V], tuple[S | None, Iterable[W]]],
    *,
    ttl: Duration | None = None,
    ttl_from: TtlFrom | None = None,
) -> KeyedStream[W] | ExpiringOut[W, S]:
    """Turn each value into any number of values, with a state per key.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        mapper: called with the key's state (``None`` at first) and the value; returns the new
            state (``None`` forgets the key) and the values to emit.
        ttl: the state of a key expires after this system time; the next value of the key meets no
            state. By default, state never expires.
        ttl_from: ``"write"``: `ttl` counts from the last value of the key, which is the default;
            ``"first"``: from the value that made the state.

    Returns:
        The stream of values; with `ttl`, an `ExpiringOut` of that stream and of each state that
        expires.

    Raises:
        FlowTypeError, FlowBuildError, DurationError: when an argument is invalid.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> twice = lambda n, v: ((n or 0) + 1, [v] if n else [])
        >>> run_once([("a", 1), ("a", 2)], lambda s: op.stateful_flat_map("seen", s, twice))
        [('a', 2)]
    """
    check_callable(step_id, "mapper", mapper)
    if ttl is None:
        check_no_ttl_from(step_id, ttl_from)
        return add_step(step_id, Stateful(_FlatMapBuilder(mapper), "stateful_flat_map"), up)[0]
    return add_expiring(step_id, flat_map_builder(mapper), "stateful_flat_map", ttl, ttl_from, up)


@overload
def stateful_map(
    step_id: str,
    up: KeyedStream[V],
    mapper: Callable[[S | None, V], tuple[S | None, W]],
) -> KeyedStream[W]: ...
@overload
def stateful_map(
    step_id: str,
    up: KeyedStream[V],
    mapper: Callable[[S | None, V], tuple[S | None, W]],
    *,
    ttl: Duration,
    ttl_from: TtlFrom = "write",
) -> ExpiringOut[W, S]: ...
def stateful_map(
    step_id: str,
    up: KeyedStream[V],
    mapper: Callable[[S | None, V], tuple[S | None, W]],
    *,
    ttl: Duration | None = None,
    ttl_from: TtlFrom | None = None,
) -> KeyedStream[W] | ExpiringOut[W, S]:
    """Turn each value into another, with a state per key.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        mapper: called with the key's state (``None`` at first) and the value; returns the new
            state (``None`` forgets the key) and the value to emit.
        ttl: the state of a key expires after this system time; the next value of the key meets no
            state. By default, state never expires.
        ttl_from: ``"write"``: `ttl` counts from the last value of the key, which is the default;
            ``"first"``: from the value that made the state.

    Returns:
        The stream of values; with `ttl`, an `ExpiringOut` of that stream and of each state that
        expires.

    Raises:
        FlowTypeError, FlowBuildError, DurationError: when an argument is invalid.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> total = lambda n, v: ((n or 0) + v, (n or 0) + v)
        >>> run_once([("a", 1), ("b", 5), ("a", 2)], lambda s: op.stateful_map("sum", s, total))
        [('a', 1), ('b', 5), ('a', 3)]
    """
    check_callable(step_id, "mapper", mapper)
    if ttl is None:
        check_no_ttl_from(step_id, ttl_from)
        return add_step(step_id, Stateful(_MapBuilder(mapper), "stateful_map"), up)[0]
    return add_expiring(step_id, map_builder(mapper), "stateful_map", ttl, ttl_from, up)


class _FlatMapLogic(Expirable):
    def __init__(self, mapper: Callable[[Any, Any], Any], state: Any) -> None:
        self._mapper = mapper
        self._state = state

    def on_item(self, value: Any, moment: Moment) -> tuple[Iterable[Any], Keep]:  # noqa: ARG002
        self._state, made = _checked_pair(self._mapper(self._state, value), "values")
        if type(self._state) not in CONSTANTS:
            made = [detach(one, self._state) for one in made]
        return made, DISCARD if self._state is None else KEEP

    def on_expired(self) -> Iterable[Any]:
        return (self._state,)

    def snapshot(self) -> Any:
        return self._state


class _MapLogic(OneToOneLogic):
    """The logic of `stateful_map`; a state of ``None`` discards the key."""

    def __init__(self, mapper: Callable[[Any, Any], Any], state: Any) -> None:
        self._mapper = mapper
        self._state = state

    def on_run(self, values: list[Any], moment: Moment) -> tuple[list[Any], Keep]:  # noqa: ARG002
        mapper, state, value = self._mapper, self._state, None
        made: list[Any] = []
        try:
            for value in values:
                returned = mapper(state, value)
                if type(returned) is not tuple or len(returned) != 2:
                    _checked_pair(returned, "value")
                state, one = returned
                if type(state) not in CONSTANTS:
                    one = detach(one, state)
                made.append(one)
        except RAISED as error:
            raise RejectedValue(value, f"the mapper raised {brief(error)}") from error
        self._state = state
        return made, DISCARD if state is None else KEEP

    def snapshot(self) -> Any:
        return self._state


def flat_map_builder(mapper: Callable[[Any, Any], Any]) -> Callable[[Any], Expirable]:
    """Return the builder of logics that call a mapper of `stateful_flat_map`."""
    return _FlatMapBuilder(mapper)


def map_builder(mapper: Callable[[Any, Any], Any]) -> Callable[[Any], Expirable]:
    """Return the builder of logics that call a mapper of `stateful_map` value by value."""
    return _ExpiringMapBuilder(mapper)


def _checked_pair(returned: Any, what: str) -> tuple[Any, Any]:
    """Return the result of a mapper after a check that it is a pair."""
    if type(returned) is tuple and len(returned) == 2:
        return returned
    raise TypeError(f"the mapper must return (state, {what}), got {shorten(returned)}")


@dataclass(frozen=True)
class _FlatMapBuilder:
    mapper: Callable[[Any, Any], Any]

    def keeps_back(self, port: int) -> bool:  # noqa: ARG002
        """See `flow.keyed.step.Stateful.keeps_back`."""
        return False

    def __call__(self, state: Any) -> _FlatMapLogic:
        return _FlatMapLogic(self.mapper, state)


@dataclass(frozen=True)
class _ExpiringMapBuilder:
    """A builder of logics that call the mapper of `stateful_map` value by value."""

    mapper: Callable[[Any, Any], Any]

    def __call__(self, state: Any) -> _FlatMapLogic:
        return _FlatMapLogic(_OneOf(self.mapper), state)


@dataclass(frozen=True)
class _OneOf:
    """A mapper of `stateful_flat_map` that calls a mapper of `stateful_map`."""

    mapper: Callable[[Any, Any], Any]

    def __call__(self, state: Any, value: Any) -> tuple[Any, list[Any]]:
        state, made = _checked_pair(self.mapper(state, value), "value")
        return state, [made]


@dataclass(frozen=True)
class _MapBuilder:
    mapper: Callable[[Any, Any], Any]

    def keeps_back(self, port: int) -> bool:  # noqa: ARG002
        """See `flow.keyed.step.Stateful.keeps_back`."""
        return False

    def __call__(self, state: Any) -> _MapLogic:
        return _MapLogic(self.mapper, state)
