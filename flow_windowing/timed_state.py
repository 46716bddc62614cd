"""Maps of the values of a key with a state that expires by a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from flow.checks import check_choice
from flow.dataflow import KeyedStream, add_step, check_callable
from flow.durations import Duration
from flow.errors import shorten
from flow.keyed.step import Stateful
from flow.operators.stateful_steps import (
    Expirable,
    FlatMapBuilder,
    TtlFrom,
    check_ttl,
    map_builder,
)
from flow_windowing.by_key.state_by_time import StateByTime
from flow_windowing.clocks.clock import Clock
from flow_windowing.operators import errors_of_step
from flow_windowing.rules.metadata import STATE_PORTS, LateValue

V = TypeVar("V")
W = TypeVar("W")
S = TypeVar("S")


class TimedStateOut(NamedTuple, Generic[V, W, S]):
    """The streams of a step whose state expires by a clock.

    Attributes:
        down: the values that the step makes.
        late: ``(key, LateValue)``: the values behind the watermark, or too far ahead, which did not
            enter the state; `LateValue.windows` is empty.
        expired: the state of each key that expires, as it is at that time.
    """

    down: KeyedStream[W]
    late: KeyedStream[LateValue[V]]
    expired: KeyedStream[S]


def stateful_map(
    step_id: str,
    up: KeyedStream[V],
    clock: Clock[Any, Any],
    mapper: Callable[[S | None, V], tuple[S | None, W]],
    *,
    ttl: Duration,
    ttl_from: TtlFrom = "write",
) -> TimedStateOut[V, W, S]:
    """Turn each value into another, with a state per key that expires by event time.

    Values meet the state in timestamp order, ties in order of arrival, each as the watermark passes
    it. A value at exactly the time to live after the value that it counts from meets no state. A
    value behind the watermark goes to ``late``. State also expires as the watermark reaches its
    time, and at the end of input. A key without state and waiting values leaves nothing behind, and
    its clock starts again with the next value.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        clock: the clock, such as an `EventClock`. With ``scope="stream"`` a value is late by the
            watermark of the step, also for a key without state.
        mapper: called with the key's state (``None`` at first) and the value; returns the new
            state (``None`` for no state) and the value to emit.
        ttl: the time for which state lives; positive.
        ttl_from: ``"write"``: `ttl` counts from the last value that entered; ``"first"``: from the
            value that made the state.

    Raises:
        FlowTypeError, FlowBuildError, DurationError: when an argument is invalid.

    Example:
        >>> from flow.testing import run_once
        >>> from flow_windowing import EventClock, stateful_map
        >>> visits = [("ann", {"at": 0}), ("ann", {"at": 599}), ("ann", {"at": 1199})]
        >>> count = lambda n, visit: ((n or 0) + 1, (n or 0) + 1)
        >>> clock = EventClock("at", "0s")
        >>> counts = lambda s: stateful_map("count", s, clock, count, ttl="10m").down
        >>> run_once(visits, counts)
        [('ann', 1), ('ann', 2), ('ann', 1)]
    """
    check_callable(step_id, "mapper", mapper)
    return _add(step_id, "stateful_map", up, clock, map_builder(mapper), ttl, ttl_from)


def stateful_flat_map(
    step_id: str,
    up: KeyedStream[V],
    clock: Clock[Any, Any],
    mapper: Callable[[S | None, V], tuple[S | None, Iterable[W]]],
    *,
    ttl: Duration,
    ttl_from: TtlFrom = "write",
) -> TimedStateOut[V, W, S]:
    """Turn each value into any number of values, with a state per key that expires by event time.

    The mapper returns the new state and the values to emit; for the rest see `stateful_map`.

    >>> from flow.testing import run_once
    >>> from flow_windowing import EventClock, stateful_flat_map
    >>> visits = [("ann", {"at": 0}), ("ann", {"at": 599}), ("ann", {"at": 1199})]
    >>> first = lambda seen, visit: (True, [] if seen else [visit["at"]])
    >>> clock = EventClock("at", "0s")
    >>> firsts = lambda s: stateful_flat_map("first", s, clock, first, ttl="10m").down
    >>> run_once(visits, firsts)
    [('ann', 0), ('ann', 1199)]
    """
    check_callable(step_id, "mapper", mapper)
    return _add(step_id, "stateful_flat_map", up, clock, FlatMapBuilder(mapper), ttl, ttl_from)


def _add(
    step_id: str,
    kind: str,
    up: KeyedStream[Any],
    clock: Clock[Any, Any],
    logic: Callable[[Any], Expirable],
    ttl: Duration,
    ttl_from: TtlFrom,
) -> TimedStateOut[Any, Any, Any]:
    """Add a step after a check of its arguments."""
    check_choice(f"step {shorten(step_id)}: ttl_from", ttl_from, ("write", "first"))
    ttl_us = check_ttl(step_id, ttl)
    with errors_of_step(step_id):
        builder = StateByTime(clock, logic, ttl_us, ttl_from)
    return TimedStateOut(*add_step(step_id, Stateful(builder, kind, emits=STATE_PORTS), up))
