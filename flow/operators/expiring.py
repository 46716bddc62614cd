"""State that expires: a time to live for the state of a key, in system time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from typing_extensions import override

from flow.checks import check_choice
from flow.dataflow import KeyedStream
from flow.durations import Duration, positive_us
from flow.errors import FlowBuildError, shorten
from flow.instants import Moment
from flow.keyed.logic import DISCARD, KEEP, Keep, KeyLogic, StatefulLogic
from flow.keyed.step import LogicBuilder, Stateful
from flow.operators.building import add_step

W = TypeVar("W")
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
    def settings(self) -> str:
        return f"ttl {self.ttl_us}"

    @override
    def view(self, snapshot: tuple[Any, int], moment: Moment) -> Any:
        return snapshot[0]


def add_expiring(
    step_id: str,
    builder: Callable[[Any], Expirable],
    kind: str,
    ttl: Duration,
    ttl_from: str | None,
    *ups: KeyedStream[Any],
) -> ExpiringOut[Any, Any]:
    """Add a step whose state expires, after a check of its time to live."""
    chosen: TtlFrom = "first" if ttl_from == "first" else "write"
    if ttl_from is not None:
        check_choice(f"step {shorten(step_id)}: ttl_from", ttl_from, ("write", "first"))
    expiring = ExpiringBuilder(builder, check_ttl(step_id, ttl), chosen)
    return ExpiringOut(
        *add_step(step_id, Stateful(expiring, kind, sides=len(ups), emits=PORTS), *ups)
    )


def check_no_ttl_from(step_id: str, ttl_from: str | None) -> None:
    """Raise a `FlowBuildError` if `ttl_from` was given to a step without `ttl`."""
    if ttl_from is not None:
        raise FlowBuildError(
            f"step {shorten(step_id)}: ttl_from={ttl_from!r} needs a ttl=, such as ttl='1h'"
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
