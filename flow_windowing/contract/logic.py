"""The contract for what happens inside one window of one key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, Self, TypeVar

from flow.errors import RAISED, brief
from flow.keyed.logic import FailedCall, RejectedValue
from flow_windowing.contract.arrival import Arrival

V = TypeVar("V")
W = TypeVar("W")
S = TypeVar("S")


class WindowLogic(ABC, Generic[V, W, S]):
    """What happens inside one window of one key: the contract for `window`.

    Attributes:
        detaches: whether what it emits never changes with its state. Else a value that is an
            attribute of the logic, or a tuple that holds one, is copied as it is emitted.
        speaks_each_epoch: whether it also emits at the end of each epoch that changed its window.
    """

    detaches: ClassVar[bool] = False
    speaks_each_epoch: ClassVar[bool] = False

    @abstractmethod
    def on_value(self, value: V) -> Iterable[W]:
        """Called with each value that enters the window; returns what to emit at once."""

    def on_value_at(self, value: V, at: Arrival) -> Iterable[W]:  # noqa: ARG002
        """Called in the place of `on_value`: override it where a value's time or turn matters."""
        return self.on_value(value)

    def on_fill(self, values: list[tuple[V, Arrival]]) -> Iterable[W]:
        """Called first for a window that opens over values seen before, with all it holds then."""
        return [one for value, at in values for one in self.on_value_at(value, at)]

    def on_merge(self, original: Self) -> Iterable[W]:
        """Called when another window becomes part of this one, with that window's logic.

        Must be written for windowers that merge windows, such as sessions.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot merge windows: write on_merge")

    @abstractmethod
    def on_close(self) -> Iterable[W]:
        """Called once when the window closes; returns what to emit last."""

    @abstractmethod
    def snapshot(self) -> S:
        """Return a copy of the state, which must not change when the logic goes on."""


class EpochWindowLogic(WindowLogic[V, W, S]):
    """A logic that also says something at the end of each epoch in which its window changed."""

    speaks_each_epoch = True

    @abstractmethod
    def on_epoch_end(self) -> Iterable[W]:
        """Called once at the end of an epoch in which the window changed, if it is still open."""


class Calling:
    """A call of a user's logic: what it raises says which method of which class that was.

    Args:
        logic: the logic.
        method: the name of the method.
        value: the value that it is called with, if it is one.
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
        what = f"{type(self._logic).__name__}.{self._method}"
        if self._value:
            raise RejectedValue(self._value[0], f"{what} raised {brief(error)}") from error
        raise FailedCall(what) from error
