"""Operators with a state per key: custom logic, maps, and a time to live.

`flow.keyed.logic` has the contract of custom logic. A time to live is in system time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeAlias, TypeVar, overload

from typing_extensions import override

from flow.checks import check_choice
from flow.dataflow import KeyedStream, add_step, check_callable
from flow.durations import Duration, positive_us
from flow.errors import RAISED, FlowBuildError, brief, shorten
from flow.instants import Moment
from flow.keyed.logic import (
    CONSTANTS,
    DISCARD,
    KEEP,
    Keep,
    KeyLogic,
    OneToOneLogic,
    RejectedValue,
    StatefulBatchLogic,
    StatefulLogic,
    detach,
)
from flow.keyed.step import Capabilities, LogicBuilder, Stateful

V = TypeVar("V")
W = TypeVar("W")
S = TypeVar("S")
E = TypeVar("E")

TtlFrom: TypeAlias = Literal["write", "first"]
"""The time that a time to live counts from: the last value of the key, or the value that made the
key's state."""

DOWN, EXPIRED = 0, 1
PORTS = ("down", "expired")

_FOREVER_US = 1 << 61
"""The greatest time to live, longer than any calendar."""


class ExpiringOut(NamedTuple, Generic[W, E]):
    """The streams of a step whose state expires.

    Attributes:
        down: the values that the step makes.
        expired: the state of each key that expires, as it is at that time.
    """

    down: KeyedStream[W]
    expired: KeyedStream[E]


def check_ttl(step_id: str, ttl: Duration) -> int:
    """Return a time to live in µs.

    Raises:
        DurationError: when it is no duration.
        FlowBuildError: when it is not positive.
    """
    return min(positive_us(ttl, f"step {shorten(step_id)}: ttl"), _FOREVER_US)


class Expirable(StatefulLogic[Any, Any, Any]):
    """A logic whose state may expire."""

    detaches = True

    @abstractmethod
    def on_expired(self) -> Iterable[Any]:
        """Return the items of the stream ``expired`` as the state expires."""


@dataclass(frozen=True)
class ExpiringBuilder(LogicBuilder):
    """A builder of logics with a time to live.

    Attributes:
        builder: the builder of the logics without it.
        ttl_us: the time to live in µs.
        ttl_from: the time that it counts from.
    """

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"ttl_us", "ttl_from"})

    builder: Callable[[Any], Expirable]
    ttl_us: int
    ttl_from: TtlFrom

    @override
    def __call__(self, snapshot: tuple[Any, int] | None) -> KeyLogic[Any, Any]:
        return _ExpiringLogic(self, snapshot)

    @override
    def keeps_back(self, port: int) -> bool:
        return port == EXPIRED

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(settings=f"ttl {self.ttl_us}")

    @override
    def view(self, snapshot: tuple[Any, int], moment: Moment) -> Any:
        return snapshot[0]


def add_stateful(
    step_id: str,
    kind: str,
    builder: Callable[[Any], Any],
    ttl: Duration | None,
    ttl_from: str | None,
    *ups: KeyedStream[Any],
    expiring: Callable[[Any], Expirable],
) -> KeyedStream[Any] | ExpiringOut[Any, Any]:
    """Add a step whose state expires if it has a time to live.

    Args:
        step_id: the step's id.
        kind: the name of the operator.
        builder: the builder of the logics without a time to live.
        ttl: the time to live; ``None`` for a state that never expires.
        ttl_from: the time that it counts from; ``None`` for the default.
        ups: the streams that the step reads.
        expiring: the builder of the logics with a time to live.

    Returns:
        The stream of values; with `ttl`, an `ExpiringOut`.
    """
    where = f"step {shorten(step_id)}: ttl_from"
    if ttl is None:
        if ttl_from is not None:
            raise FlowBuildError(f"{where}={ttl_from!r} needs a ttl=, such as ttl='1h'")
        return add_step(step_id, Stateful(builder, kind, sides=len(ups)), *ups)[0]
    chosen: TtlFrom = "first" if ttl_from == "first" else "write"
    check_choice(where, chosen if ttl_from is None else ttl_from, ("write", "first"))
    limited = ExpiringBuilder(expiring, check_ttl(step_id, ttl), chosen)
    return ExpiringOut(
        *add_step(step_id, Stateful(limited, kind, sides=len(ups), emits=PORTS), *ups)
    )


class _ExpiringLogic(StatefulLogic[Any, tuple[int, Any], tuple[Any, int]]):
    """A logic with a time to live, which emits ``(port, value)``.

    Invariant: `_since_us` is the system time that the time to live counts from. The engine calls a
    due timer before the values of an epoch, so no value meets expired state.
    """

    detaches = True

    def __init__(self, config: ExpiringBuilder, snapshot: tuple[Any, int] | None) -> None:
        self._config = config
        self._since_us: int | None = None
        state = None
        if snapshot is not None:
            state, self._since_us = snapshot
        self._logic = config.builder(state)

    @override
    def on_item(self, value: Any, moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        if self._since_us is None or self._config.ttl_from == "write":
            self._since_us = moment.now_us
        made, keep = self._logic.on_item(value, moment)
        return [(DOWN, one) for one in made], keep

    @override
    def on_notify(self, moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        if self.notify_at_us() > moment.now_us:
            return (), KEEP
        return [(EXPIRED, one) for one in self._logic.on_expired()], DISCARD

    @override
    def on_end(self, moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        made, keep = self._logic.on_end(moment)
        return [(DOWN, one) for one in made], keep

    @override
    def notify_at_us(self) -> int:
        return (self._since_us or 0) + self._config.ttl_us

    @override
    def snapshot(self) -> tuple[Any, int]:
        return self._logic.snapshot(), self._since_us or 0


def stateful_batch(
    step_id: str,
    up: KeyedStream[V],
    builder: Callable[[S | None], StatefulBatchLogic[V, W, S]],
) -> KeyedStream[W]:
    """Run custom logic for each key, with all values of an epoch at once.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        builder: called with a key's snapshot, or ``None`` for a new key; returns its logic.
    """
    check_callable(step_id, "builder", builder)
    return add_step(step_id, Stateful(builder, "stateful_batch"), up)[0]


def stateful(
    step_id: str,
    up: KeyedStream[V],
    builder: Callable[[S | None], StatefulLogic[V, W, S]],
) -> KeyedStream[W]:
    """Run custom logic for each key, value by value.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        builder: called with a key's snapshot, or ``None`` for a new key; returns its logic.
    """
    check_callable(step_id, "builder", builder)
    return add_step(step_id, Stateful(builder, "stateful"), up)[0]


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
    builder = FlatMapBuilder(mapper)
    return add_stateful(step_id, "stateful_flat_map", builder, ttl, ttl_from, up, expiring=builder)


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
    builder, expiring = _MapBuilder(mapper), map_builder(mapper)
    return add_stateful(step_id, "stateful_map", builder, ttl, ttl_from, up, expiring=expiring)


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


def _checked_pair(returned: Any, what: str) -> tuple[Any, Any]:
    """Return the result of a mapper after a check that it is a pair."""
    if type(returned) is tuple and len(returned) == 2:
        return returned
    raise TypeError(f"the mapper must return (state, {what}), got {shorten(returned)}")


@dataclass(frozen=True)
class _MapperBuilder:
    """A builder of logics that call a mapper for each value."""

    mapper: Callable[[Any, Any], Any]

    def keeps_back(self, port: int) -> bool:  # noqa: ARG002
        """See `flow.keyed.step.Stateful.keeps_back`."""
        return False


class FlatMapBuilder(_MapperBuilder):
    """A builder of the logics of `stateful_flat_map`."""

    def __call__(self, state: Any) -> Expirable:
        """Return the logic of a key, from its state; ``None`` for a new key."""
        return _FlatMapLogic(self.mapper, state)


class _MapBuilder(_MapperBuilder):
    def __call__(self, state: Any) -> _MapLogic:
        return _MapLogic(self.mapper, state)


def map_builder(mapper: Callable[[Any, Any], Any]) -> FlatMapBuilder:
    """Return the builder of logics that call a mapper of `stateful_map` value by value."""
    return FlatMapBuilder(_OneOf(mapper))


@dataclass(frozen=True)
class _OneOf:
    """A mapper of `stateful_flat_map` that calls a mapper of `stateful_map`."""

    mapper: Callable[[Any, Any], Any]

    def __call__(self, state: Any, value: Any) -> tuple[Any, list[Any]]:
        state, made = _checked_pair(self.mapper(state, value), "value")
        return state, [made]
