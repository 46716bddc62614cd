"""Operators that keep state per key, and the contract for one's own.

A *logic* is an object that lives for one key of one step. The engine builds it when the key's first
value arrives, or from a snapshot when the flow goes on after a stop, hands it the key's values in
order, and asks it for a snapshot when an epoch ends. Laws that hold in every engine:

- For one key, calls come one at a time, values in source order.
- In an epoch the calls are: `on_notify` if it was due, the values, `on_notify` if it has become
  due meanwhile, `on_epoch_end` if one of these was called and the logic is kept, and `on_end` if
  the input has ended. `notify_at` and `snapshot` are called whenever the engine puts the logic
  aside. In a batch run each slice of the input is an epoch.
- A logic built from the last snapshot behaves as the one that made it would have.
- Time is what the `Moment` says: a logic never asks the machine's clock.

Where a key's own values do not say how far its stream has come, a step can have a `Progress`, which
is measured over all keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from typing_extensions import override

from flow.dataflow import KeyedStream, Operator, Stream
from flow.durations import Duration, duration_us
from flow.errors import FlowBuildError, FlowError, brief, shorten
from flow.instants import NEVER, Moment, datetime_us, from_us
from flow.operators.building import add_step, check_callable, check_whole
from flow.operators.stateless import map as map_items

X = TypeVar("X")
V = TypeVar("V")
W = TypeVar("W")
S = TypeVar("S")


class Keep(Enum):
    """Whether a key's logic is kept after a call, or discarded with its state."""

    KEEP = "keep"
    DISCARD = "discard"


KEEP, DISCARD = Keep.KEEP, Keep.DISCARD


COUNTED = -1
"""The port on which a logic of a step with several ports emits a `Counted`."""


class Counted(NamedTuple):
    """Something to count, which goes to no stream; emitted as ``(COUNTED, Counted("gap"))``.

    Attributes:
        what: what it is counted as, beside ``in``, ``out`` and the like.
        amount: how much is counted.
        note: an example in words, logged after the step's name; few of them are shown.
    """

    what: str
    amount: int = 1
    note: str = ""


class RejectedValue(FlowError, ValueError):
    """Raised by a logic to say which value is at fault; the engine adds the step and the key.

    Attributes:
        value: the value.
        problem: what is wrong with it.
    """

    def __init__(self, value: object, problem: str) -> None:
        self.value = value
        self.problem = problem
        super().__init__(problem)


class _Logic(ABC, Generic[W, S]):
    """What the two kinds of logic have in common."""

    def on_notify(self, moment: Moment) -> tuple[Iterable[W], Keep]:  # noqa: ARG002
        """Called when the time asked for by `notify_at` has come."""
        return (), KEEP

    def on_epoch_end(self, moment: Moment) -> Iterable[W]:  # noqa: ARG002
        """Called last in each epoch in which the logic was called, and was kept.

        It comes after a notification that became due meanwhile, and before the snapshot.

        Returns:
            The values to emit.
        """
        return ()

    def on_end(self, moment: Moment) -> tuple[Iterable[W], Keep]:  # noqa: ARG002
        """Called when the input has ended and the flow is drained."""
        return (), KEEP

    def notify_at(self) -> datetime | None:
        """The system time at which to call `on_notify`; ``None`` for never."""
        return None

    def notify_at_us(self) -> int:
        """`notify_at` as microseconds, `NEVER` for never; override one of the two."""
        at = self.notify_at()
        return NEVER if at is None else datetime_us(at)

    @abstractmethod
    def snapshot(self) -> S:
        """Return a copy of the state, which must not change when the logic goes on.

        What is returned is pickled, and given to the step's builder when the logic is needed again.
        """


class StatefulBatchLogic(_Logic[W, S], Generic[V, W, S]):
    """A logic that takes a key's values of one epoch together."""

    @abstractmethod
    def on_batch(self, values: list[V], moment: Moment) -> tuple[Iterable[W], Keep]:
        """Called with all of the key's values in the epoch, in order, at least one.

        Returns:
            The values to emit, and whether to keep this logic.
        """


class StatefulLogic(_Logic[W, S], Generic[V, W, S]):
    """A logic that takes a key's values one by one."""

    @abstractmethod
    def on_item(self, value: V, moment: Moment) -> tuple[Iterable[W], Keep]:
        """Called with each value in order.

        Returns:
            The values to emit, and whether to keep this logic.
        """


Builder = Callable[[Any], _Logic[Any, Any]]


class Progress(ABC):
    """How to measure how far a stream has come, for all keys of a step together.

    It is configuration: frozen, and pickled with the flow. A step has one if its builder has an
    attribute `progress` that holds one. Each *source partition* of the step's input comes as far as
    the greatest of its values says, and the stream as far as the least of the partitions that have
    spoken; it never goes back. Then

    - each value reaches its logic as a `Stamped` one;
    - `Moment.progress_us` says in `on_notify` how far the stream had come: before the epoch's
      values where it was due before them, after all of them otherwise, as in all other calls;
    - what `notify_at_us` answers is in the units of `measure`: the logic is called once the
      stream has come so far, whichever key's value, or the time that passed, has moved it.
    """

    @property
    @abstractmethod
    def advances(self) -> bool:
        """Whether the stream also comes further by the system time that passes.

        The time in which the flow does not run does not count.
        """

    @abstractmethod
    def measure(self, value: Any, moment: Moment) -> int | None:
        """Say how far the stream has come with this value.

        Called once for each value, away from its key's logic, so it must depend on nothing else.
        It must not raise: what cannot be measured is the logic's to judge.

        Args:
            value: the value, without the side that it comes from.
            moment: the epoch's system time; where Spark reads a data frame itself, Spark's.

        Returns:
            Microseconds, such as a timestamp less how long to wait for those before it; ``None``
            when the value says nothing.
        """


class Stamped(NamedTuple):
    """A value as it reaches the logic of a step that measures progress.

    Attributes:
        value: the value; ``(side, value)`` where the step reads several streams.
        progress_us: how far the stream had come once this value was counted.
    """

    value: Any
    progress_us: int


@dataclass(frozen=True)
class Stateful(Operator):
    """A keyed step: a builder makes the logic of each key.

    With `sides` greater than one the step reads that many streams and each value reaches the logic
    as ``(side, value)``. `emits` names the streams it makes; with more than one, what the logic
    emits is ``(port index, value)``, or ``(COUNTED, Counted(...))``.
    """

    builder: Builder
    kind: str = "stateful"
    sides: int = 1
    emits: tuple[str, ...] = ("down",)

    @property
    def progress(self) -> Progress | None:
        """How to measure how far the step's input has come, if that is to be known."""
        found = getattr(self.builder, "progress", None)
        return found if isinstance(found, Progress) else None

    @property
    @override
    def ports(self) -> tuple[str, ...]:
        return self.emits


def stateful_batch(
    step_id: str,
    up: KeyedStream[V],
    builder: Callable[[S | None], StatefulBatchLogic[V, W, S]],
) -> KeyedStream[W]:
    """Run a logic of one's own per key, an epoch's values at a time.

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
    """Run a logic of one's own per key, a value at a time.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        builder: called with a key's snapshot, or ``None`` for a new key; returns its logic.
    """
    check_callable(step_id, "builder", builder)
    return add_step(step_id, Stateful(builder, "stateful"), up)[0]


def stateful_flat_map(
    step_id: str,
    up: KeyedStream[V],
    mapper: Callable[[S | None, V], tuple[S | None, Iterable[W]]],
) -> KeyedStream[W]:
    """Turn each value into any number of values, with a state per key.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        mapper: called with the key's state (``None`` at first) and the value; returns the new
            state (``None`` forgets the key) and the values to emit.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> twice = lambda n, v: ((n or 0) + 1, [v] if n else [])
        >>> run_once([("a", 1), ("a", 2)], lambda s: op.stateful_flat_map("seen", s, twice))
        [('a', 2)]
    """
    check_callable(step_id, "mapper", mapper)
    return add_step(step_id, Stateful(_FlatMapBuilder(mapper), "stateful_flat_map"), up)[0]


def stateful_map(
    step_id: str,
    up: KeyedStream[V],
    mapper: Callable[[S | None, V], tuple[S | None, W]],
) -> KeyedStream[W]:
    """Turn each value into another, with a state per key.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        mapper: called with the key's state (``None`` at first) and the value; returns the new
            state (``None`` forgets the key) and the value to emit.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> total = lambda n, v: ((n or 0) + v, (n or 0) + v)
        >>> run_once([("a", 1), ("b", 5), ("a", 2)], lambda s: op.stateful_map("sum", s, total))
        [('a', 1), ('b', 5), ('a', 3)]
    """
    check_callable(step_id, "mapper", mapper)
    return add_step(step_id, Stateful(_MapBuilder(mapper), "stateful_map"), up)[0]


def collect(
    step_id: str, up: KeyedStream[V], timeout: Duration, max_size: int
) -> KeyedStream[list[V]]:
    """Gather a key's values into lists, each emitted when it is full or has waited long enough.

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
    timeout_us = duration_us(timeout, f"step {shorten(step_id)}: timeout")
    if timeout_us < 0:
        raise FlowBuildError(
            f"step {shorten(step_id)}: timeout must not be negative, got {timeout!r}"
        )
    check_whole(f"step {shorten(step_id)}: max_size", max_size, 1)
    return add_step(step_id, Stateful(_CollectBuilder(timeout_us, max_size), "collect"), up)[0]


def fold_final(
    step_id: str, up: KeyedStream[V], builder: Callable[[], S], folder: Callable[[S, V], S]
) -> KeyedStream[S]:
    """Fold a key's values into one, emitted when the input ends.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        builder: makes the value to start from.
        folder: called with what there is and the next value; returns what there is then.

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
        >>> run_once(["a", "b", "a"], lambda s: op.count_final("n", s, lambda x: x))
        [('a', 2), ('b', 1)]
    """
    check_callable(step_id, "key", key)
    paired = map_items(f"{step_id}.key", up, _PairWithOne(key))
    return reduce_final(step_id, paired, _add)


def max_final(
    step_id: str, up: KeyedStream[V], by: Callable[[V], Any] | None = None
) -> KeyedStream[V]:
    """The greatest value of each key, the first of equals, emitted when the input ends.

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
    """The least value of each key, the first of equals, emitted when the input ends.

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
    """A reducer that keeps the greater of two values, the first of equals."""

    by: Callable[[Any], Any] | None = None

    def __call__(self, kept: Any, value: Any) -> Any:
        """Choose between what is kept and the next value."""
        if self.by is None:
            return value if value > kept else kept
        return value if self.by(value) > self.by(kept) else kept


@dataclass(frozen=True)
class Lesser:
    """A reducer that keeps the lesser of two values, the first of equals."""

    by: Callable[[Any], Any] | None = None

    def __call__(self, kept: Any, value: Any) -> Any:
        """Choose between what is kept and the next value."""
        if self.by is None:
            return value if value < kept else kept
        return value if self.by(value) < self.by(kept) else kept


@dataclass(frozen=True)
class _PairWithOne:
    key: Callable[[Any], str]

    def __call__(self, item: Any) -> tuple[str, int]:
        return (self.key(item), 1)


def _add(left: int, right: int) -> int:
    return left + right


class _FlatMapLogic(StatefulLogic[Any, Any, Any]):
    def __init__(self, mapper: Callable[[Any, Any], Any], state: Any) -> None:
        self._mapper = mapper
        self._state = state

    def on_item(self, value: Any, moment: Moment) -> tuple[Iterable[Any], Keep]:  # noqa: ARG002
        self._state, made = _two(self._mapper(self._state, value), "values")
        return made, DISCARD if self._state is None else KEEP

    def snapshot(self) -> Any:
        return self._state


class OneToOneLogic(_Logic[Any, Any]):
    """A logic that emits exactly one value for each, and takes a run of them in one call."""

    @abstractmethod
    def on_run(self, values: list[Any], moment: Moment) -> tuple[list[Any], Keep]:
        """Called with a key's values of one epoch; returns as many."""


class _MapLogic(OneToOneLogic):
    """A state of ``None`` forgets the key: going on with it is what a new logic would do."""

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
                    _two(returned, "value")
                state, one = returned
                made.append(one)
        except Exception as error:
            raise RejectedValue(value, f"the mapper raised {brief(error)}") from error
        self._state = state
        return made, DISCARD if state is None else KEEP

    def snapshot(self) -> Any:
        return self._state


def _two(returned: Any, what: str) -> tuple[Any, Any]:
    if type(returned) is tuple and len(returned) == 2:
        return returned
    raise TypeError(f"the mapper must return (state, {what}), got {shorten(returned)}")


@dataclass(frozen=True)
class _FlatMapBuilder:
    mapper: Callable[[Any, Any], Any]

    def __call__(self, state: Any) -> _FlatMapLogic:
        return _FlatMapLogic(self.mapper, state)


@dataclass(frozen=True)
class _MapBuilder:
    mapper: Callable[[Any, Any], Any]

    def __call__(self, state: Any) -> _MapLogic:
        return _MapLogic(self.mapper, state)


class _CollectLogic(StatefulLogic[Any, list[Any], tuple[list[Any], int]]):
    def __init__(self, timeout_us: int, max_size: int, state: tuple[list[Any], int] | None) -> None:
        self._timeout_us = timeout_us
        self._max_size = max_size
        self._values, self._due_us = state or ([], NEVER)

    def on_item(self, value: Any, moment: Moment) -> tuple[Iterable[list[Any]], Keep]:
        if not self._values:
            self._due_us = moment.now_us + self._timeout_us
        self._values.append(value)
        return self._emit() if len(self._values) >= self._max_size else ((), KEEP)

    def on_notify(self, moment: Moment) -> tuple[Iterable[list[Any]], Keep]:  # noqa: ARG002
        return self._emit()

    def on_end(self, moment: Moment) -> tuple[Iterable[list[Any]], Keep]:  # noqa: ARG002
        return self._emit()

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
        return _CollectLogic(self.timeout_us, self.max_size, state)


class _FoldLogic(StatefulLogic[Any, Any, Any]):
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
