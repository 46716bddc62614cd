"""Windowing operators: what to do with the values of a window. Use as ``import flow_windowing``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from flow.dataflow import KeyedStream
from flow.errors import FlowBuildError, FlowTypeError, shorten
from flow.operators.building import add_step, check_callable
from flow.operators.stateful import Stateful
from flow_windowing.clocks import Clock
from flow_windowing.driver import PORTS, DriverBuilder, WindowLogic
from flow_windowing.metadata import LateValue, WindowMetadata
from flow_windowing.windowers import Windower

V = TypeVar("V")
W = TypeVar("W")
S = TypeVar("S")


class WindowOut(NamedTuple, Generic[V, W]):
    """The streams of a windowing operator.

    Attributes:
        down: ``(key, (WindowMetadata, value))``: what the windows emit.
        late: ``(key, LateValue)``: values that missed a window.
        closed: ``(key, WindowMetadata)``: once for each window, as it closes.
    """

    down: KeyedStream[tuple[WindowMetadata, W]]
    late: KeyedStream[LateValue[V]]
    closed: KeyedStream[WindowMetadata]


def window(
    step_id: str,
    up: KeyedStream[V],
    clock: Clock[V, Any],
    windower: Windower[Any],
    builder: Callable[[S | None], WindowLogic[V, W, S]],
    ordered: bool = True,
) -> WindowOut[V, W]:
    """Run a logic of one's own for each window of each key.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        clock: the sense of time.
        windower: how time is cut into windows.
        builder: called with a window's snapshot, or ``None`` for a new window; returns its logic.
        ordered: whether values enter windows in timestamp order, as the watermark passes them;
            ``False``: in arrival order, at once.
    """
    _check(step_id, clock, windower)
    check_callable(step_id, "builder", builder)
    driver = DriverBuilder(clock, windower, builder, bool(ordered))
    return WindowOut(*add_step(step_id, Stateful(driver, "window", emits=PORTS), up))


def fold_window(
    step_id: str,
    up: KeyedStream[V],
    clock: Clock[V, Any],
    windower: Windower[Any],
    builder: Callable[[], S],
    folder: Callable[[S, V], S],
    merger: Callable[[S, S], S],
    ordered: bool = True,
) -> WindowOut[V, S]:
    """Fold the values of each window into one, emitted when the window closes.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        clock: the sense of time.
        windower: how time is cut into windows.
        builder: makes the value to start from.
        folder: called with what there is and the next value; returns what there is then.
        merger: called with what two windows have when they become one; returns what it has then.
        ordered: whether values enter windows in timestamp order.

    Example:
        >>> from flow.testing import run_once
        >>> from flow_windowing import EventClock, TumblingWindower
        >>> clock, hours = EventClock(lambda seconds: seconds, "0s"), TumblingWindower("1h")
        >>> out = run_once(
        ...     [("a", 10), ("a", 20), ("a", 4000)],
        ...     lambda s: fold_window(
        ...         "n", s, clock, hours, int, lambda n, _: n + 1, lambda a, b: a + b
        ...     ).down,
        ... )
        >>> [(key, meta.open_time.hour, count) for key, (meta, count) in out]
        [('a', 0, 2), ('a', 1, 1)]
    """
    check_callable(step_id, "builder", builder)
    check_callable(step_id, "folder", folder)
    check_callable(step_id, "merger", merger)
    logic = _FoldBuilder(builder, folder, merger)
    return window(step_id, up, clock, windower, logic, ordered)


def collect_window(
    step_id: str,
    up: KeyedStream[Any],
    clock: Clock[Any, Any],
    windower: Windower[Any],
    into: type[list[Any]] | type[set[Any]] | type[dict[Any, Any]] = list,
    ordered: bool = True,
) -> WindowOut[Any, Any]:
    """Gather the values of each window, emitted when the window closes.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        clock: the sense of time.
        windower: how time is cut into windows.
        into: `list`, `set`, or `dict`, for which values are ``(key, value)`` pairs and the last
            value of a key stays.
        ordered: whether values enter windows in timestamp order.

    Example:
        >>> from flow.testing import run_once
        >>> from flow_windowing import EventClock, TumblingWindower
        >>> clock, hours = EventClock(lambda seconds: seconds, "1m"), TumblingWindower("1h")
        >>> out = run_once(
        ...     [("a", 20), ("a", 10)], lambda s: collect_window("all", s, clock, hours).down
        ... )
        >>> [(key, values) for key, (_, values) in out]
        [('a', [10, 20])]
    """
    if into not in _COLLECTORS:
        raise FlowBuildError(
            f"step {shorten(step_id)}: into must be list, set or dict, got {shorten(into)}"
        )
    folder, merger = _COLLECTORS[into]
    return fold_window(step_id, up, clock, windower, into, folder, merger, ordered)


def _check(step_id: str, clock: object, windower: object) -> None:
    if not isinstance(clock, Clock):
        raise FlowTypeError(
            f"step {shorten(step_id)}: clock must be a Clock such as EventClock(...), "
            f"got {type(clock).__name__} {shorten(clock)}"
        )
    if not isinstance(windower, Windower):
        raise FlowTypeError(
            f"step {shorten(step_id)}: windower must be a Windower such as "
            f"TumblingWindower(length='1h'), got {type(windower).__name__} {shorten(windower)}"
        )


class _FoldLogic(WindowLogic[Any, Any, Any]):
    __slots__ = ("_config", "state")

    def __init__(self, config: _FoldBuilder, state: tuple[Any] | None) -> None:
        self._config = config
        self.state = config.builder() if state is None else state[0]

    def on_value(self, value: Any) -> Iterable[Any]:
        self.state = self._config.folder(self.state, value)
        return ()

    def on_merge(self, original: _FoldLogic) -> Iterable[Any]:
        self.state = self._config.merger(self.state, original.state)
        return ()

    def on_close(self) -> Iterable[Any]:
        return (self.state,)

    def snapshot(self) -> tuple[Any]:
        return (copy.copy(self.state),)


@dataclass(frozen=True)
class _FoldBuilder:
    builder: Callable[[], Any]
    folder: Callable[[Any, Any], Any]
    merger: Callable[[Any, Any], Any]

    def __call__(self, state: tuple[Any] | None) -> _FoldLogic:
        return _FoldLogic(self, state)


def _append(values: list[Any], value: Any) -> list[Any]:
    values.append(value)
    return values


def _add(values: set[Any], value: Any) -> set[Any]:
    values.add(value)
    return values


def _set(values: dict[Any, Any], pair: Any) -> dict[Any, Any]:
    key, value = pair
    values[key] = value
    return values


def _extend(values: list[Any], others: list[Any]) -> list[Any]:
    return [*values, *others]


def _union(values: Any, others: Any) -> Any:
    return values | others


_COLLECTORS: dict[Any, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    list: (_append, _extend),
    set: (_add, _union),
    dict: (_set, _union),
}
