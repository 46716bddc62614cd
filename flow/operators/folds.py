"""Folds of the values of a key: lists of values, and results at the end of the input."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from typing_extensions import override

from flow.checks import check_whole
from flow.dataflow import KeyedStream, Stream, add_step, check_callable
from flow.durations import Duration, natural_us
from flow.errors import shorten
from flow.instants import NEVER, Moment, from_us
from flow.keyed.logic import DISCARD, KEEP, Keep, StatefulLogic
from flow.keyed.step import Stateful
from flow.operators.stateless import map as map_items

X = TypeVar("X")
V = TypeVar("V")
S = TypeVar("S")


def collect(
    step_id: str, up: KeyedStream[V], timeout: Duration, max_size: int
) -> KeyedStream[list[V]]:
    """Collect the values of each key into lists; a list is emitted once full, or after a time.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        timeout: how long a list waits for more after its first value, in system time.
        max_size: how many values make a list full.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> run_once([("a", 1), ("a", 2), ("a", 3)], lambda s: op.collect("two", s, "10s", 2))
        [('a', [1, 2]), ('a', [3])]
    """
    timeout_us = natural_us(timeout, f"step {shorten(step_id)}: timeout")
    check_whole(f"step {shorten(step_id)}: max_size", max_size, 1)
    return add_step(step_id, Stateful(_CollectBuilder(timeout_us, max_size), "collect"), up)[0]


def fold_final(
    step_id: str, up: KeyedStream[V], builder: Callable[[], S], folder: Callable[[S, V], S]
) -> KeyedStream[S]:
    """Fold a key's values into one, emitted when the input ends.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        builder: called without arguments; returns the value to start from.
        folder: called with the folded value so far and the next value; returns the new folded
            value.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> run_once([("a", 1), ("a", 2)], lambda s: op.fold_final("n", s, int, lambda n, v: n + v))
        [('a', 3)]
    """
    check_callable(step_id, "builder", builder)
    check_callable(step_id, "folder", folder)
    return add_step(step_id, Stateful(_FoldBuilder(builder, folder), "fold_final"), up)[0]


def reduce_final(step_id: str, up: KeyedStream[V], reducer: Callable[[V, V], V]) -> KeyedStream[V]:
    """Combine a key's values two by two into one, emitted when the input ends.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> run_once([("a", 1), ("a", 2)], lambda s: op.reduce_final("sum", s, lambda a, b: a + b))
    [('a', 3)]
    """
    check_callable(step_id, "reducer", reducer)
    return add_step(step_id, Stateful(_ReduceBuilder(reducer), "reduce_final"), up)[0]


def count_final(step_id: str, up: Stream[X], key: Callable[[X], str]) -> KeyedStream[int]:
    """Count the items of each key, emitted when the input ends.

    Args:
        step_id: the step's id, unique in the flow; the pairing before it is ``<step_id>.key``.
        up: the stream to read.
        key: the key of each item.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> sorted(run_once(["a", "b", "a"], lambda s: op.count_final("n", s, lambda x: x)))
        [('a', 2), ('b', 1)]
    """
    check_callable(step_id, "key", key)
    paired = map_items(f"{step_id}.key", up, _PairWithOne(key))
    return reduce_final(step_id, paired, operator.add)


def max_final(
    step_id: str, up: KeyedStream[V], by: Callable[[V], Any] | None = None
) -> KeyedStream[V]:
    """Emit the greatest value of each key, the first of equals, emitted when the input ends.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> run_once([("a", 1), ("a", 3), ("a", 2)], lambda s: op.max_final("max", s))
    [('a', 3)]
    """
    if by is not None:
        check_callable(step_id, "by", by)
    return reduce_final(step_id, up, Greater(by))


def min_final(
    step_id: str, up: KeyedStream[V], by: Callable[[V], Any] | None = None
) -> KeyedStream[V]:
    """Emit the least value of each key, the first of equals, emitted when the input ends.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> run_once([("a", 1), ("a", 3), ("a", 2)], lambda s: op.min_final("min", s))
    [('a', 1)]
    """
    if by is not None:
        check_callable(step_id, "by", by)
    return reduce_final(step_id, up, Lesser(by))


@dataclass(frozen=True)
class Greater:
    """A reducer that keeps the greater of two values, the first of equals.

    NaN is greater than any number.
    """

    by: Callable[[Any], Any] | None = None

    def __call__(self, kept: Any, value: Any) -> Any:
        """Return the greater of the reduced value and the next value."""
        return value if self._is_greater(value, kept) else kept

    def _is_greater(self, left: Any, right: Any) -> bool:
        """Return True if `left` is greater than `right`; NaN is greater than any number."""
        if self.by is not None:
            left, right = self.by(left), self.by(right)
        return bool(left > right) or bool(left != left and right == right)


@dataclass(frozen=True)
class Lesser(Greater):
    """A reducer that keeps the lesser of two values, the first of equals; see `Greater`."""

    @override
    def __call__(self, kept: Any, value: Any) -> Any:
        """Return the lesser of the reduced value and the next value."""
        return value if self._is_greater(kept, value) else kept


@dataclass(frozen=True)
class _PairWithOne:
    key: Callable[[Any], str]

    def __call__(self, item: Any) -> tuple[str, int]:
        return (self.key(item), 1)


class _CollectLogic(StatefulLogic[Any, list[Any], tuple[list[Any], int]]):
    """The batch of a key, emitted when it is full, at the timeout, or at the end of input."""

    detaches = True

    def __init__(self, config: _CollectBuilder, state: tuple[list[Any], int] | None) -> None:
        self._config = config
        self._values, self._due_us = state or ([], NEVER)

    def on_item(self, value: Any, moment: Moment) -> tuple[Iterable[list[Any]], Keep]:
        if not self._values:
            self._due_us = moment.now_us + self._config.timeout_us
        self._values.append(value)
        return self._emit() if len(self._values) >= self._config.max_size else ((), KEEP)

    def on_notify(self, moment: Moment) -> tuple[Iterable[list[Any]], Keep]:  # noqa: ARG002
        return self._emit()

    on_end = on_notify

    def _emit(self) -> tuple[Iterable[list[Any]], Keep]:
        return (self._values,), DISCARD

    def notify_at(self) -> datetime | None:
        return from_us(self._due_us)

    def snapshot(self) -> tuple[list[Any], int]:
        return list(self._values), self._due_us


@dataclass(frozen=True)
class _CollectBuilder:
    HARMLESS: ClassVar[frozenset[str]] = frozenset({"timeout_us", "max_size"})

    timeout_us: int
    max_size: int

    def __call__(self, state: Any) -> _CollectLogic:
        return _CollectLogic(self, state)


class _FoldLogic(StatefulLogic[Any, Any, Any]):
    """The folded value of a key, emitted at the end of input."""

    detaches = True

    def __init__(self, folder: Callable[[Any, Any], Any], state: Any) -> None:
        self._folder = folder
        self._state = state

    def on_item(self, value: Any, moment: Moment) -> tuple[Iterable[Any], Keep]:  # noqa: ARG002
        self._state = self._folder(self._state, value)
        return (), KEEP

    def on_end(self, moment: Moment) -> tuple[Iterable[Any], Keep]:  # noqa: ARG002
        return (self._state,), DISCARD

    def snapshot(self) -> tuple[Any]:
        return (self._state,)


@dataclass(frozen=True)
class _FoldBuilder:
    builder: Callable[[], Any]
    folder: Callable[[Any, Any], Any]

    def __call__(self, state: tuple[Any] | None) -> _FoldLogic:
        return _FoldLogic(self.folder, self.builder() if state is None else state[0])


class _ReduceLogic(_FoldLogic):
    """A fold that starts from the first value of the key."""

    def __init__(self, reducer: Callable[[Any, Any], Any], state: tuple[Any] | None) -> None:
        super().__init__(reducer, state[0] if state else None)
        self._empty = state is None

    def on_item(self, value: Any, moment: Moment) -> tuple[Iterable[Any], Keep]:
        if self._empty:
            self._state, self._empty = value, False
            return (), KEEP
        return super().on_item(value, moment)


@dataclass(frozen=True)
class _ReduceBuilder:
    reducer: Callable[[Any, Any], Any]

    def __call__(self, state: tuple[Any] | None) -> _ReduceLogic:
        return _ReduceLogic(self.reducer, state)
