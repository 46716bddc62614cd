"""The contract of window logics, and the arrival of a value that a logic receives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from flow.errors import RAISED, brief
from flow.keyed.logic import FailedCall, RejectedValue

V = TypeVar("V")
W = TypeVar("W")
S = TypeVar("S")


class Arrival(NamedTuple):
    """The arrival of a value.

    Attributes:
        timestamp_us: the timestamp, in microseconds since the Unix epoch.
        number: the arrival number: the number of values of the key that arrived before.
        entered: the entry number: the number of values of the key that entered windows before. It
            differs from the arrival number where values are buffered to enter in timestamp order.
    """

    timestamp_us: int
    number: int
    entered: int


class WindowLogic(ABC, Generic[V, W, S]):
    """The logic of one window of one key, for `window`.

    Attributes:
        detaches: True if emitted values never change with the state. With False, dicts, lists,
            sets, tuples and attributes of the logic in an emitted value are copied.
        emits_each_epoch: True if the logic also emits at the end of each epoch that changed its
            window.
    """

    detaches: ClassVar[bool] = False
    emits_each_epoch: ClassVar[bool] = False

    @abstractmethod
    def on_value(self, value: V) -> Iterable[W]:
        """Add a value to the window, and return the values to emit at once."""

    def on_value_at(self, value: V, at: Arrival) -> Iterable[W]:  # noqa: ARG002
        """Add a value with its arrival; a logic that uses the arrival overrides this method."""
        return self.on_value(value)

    def on_fill(self, values: list[tuple[V, Arrival]]) -> Iterable[W]:
        """Add the values of a window that opens over earlier values, and return values to emit."""
        return [one for value, at in values for one in self.on_value_at(value, at)]

    def on_merge(self, original: Self) -> Iterable[W]:
        """Merge the logic of another window into this logic, and return the values to emit.

        Required for windowers that merge windows, such as sessions.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot merge windows: write on_merge")

    @abstractmethod
    def on_close(self) -> Iterable[W]:
        """Return the last values to emit. Called once, as the window closes."""

    @abstractmethod
    def snapshot(self) -> S:
        """Return a copy of the state, which later calls must not change."""


class EpochWindowLogic(WindowLogic[V, W, S]):
    """A logic that also emits at the end of each epoch in which its window changed."""

    emits_each_epoch = True

    @abstractmethod
    def on_epoch_end(self) -> Iterable[W]:
        """Return values to emit at the end of an epoch that changed the open window."""


class Calling:
    """A context for a call of a user's logic, which names class and method in errors of the call.

    Args:
        logic: the logic.
        method: the name of the method.
        value: the value that the method is called with, if any.

    Raises:
        RejectedValue: when a call with a value raised.
        FailedCall: when a call without a value raised.
    """

    __slots__ = ("_logic", "_method", "_value")

    def __init__(self, logic: WindowLogic[Any, Any, Any], method: str, *value: Any) -> None:
        self._logic = logic
        self._method = method
        self._value = value

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, RAISED) or isinstance(error, (RejectedValue, FailedCall)):
            return
        name = f"{type(self._logic).__name__}.{self._method}"
        if self._value:
            raise RejectedValue(self._value[0], f"{name} raised {brief(error)}") from error
        raise FailedCall(name) from error
