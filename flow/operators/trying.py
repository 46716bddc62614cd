"""Operators for items that fail: a stream of errors, and a stream that must stay empty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from typing_extensions import override

from flow.dataflow import Operator, Stream
from flow.operators.building import add_step, check_callable

X = TypeVar("X")
Y = TypeVar("Y")


@dataclass(frozen=True)
class TryMap(Operator):
    """Map each item; an item on which the mapper raises goes to ``errors`` as an `ItemError`."""

    mapper: Callable[[Any], Any]

    @property
    @override
    def ports(self) -> tuple[str, ...]:
        return ("ok", "errors")


@dataclass(frozen=True)
class Raises(Operator):
    """Fail at the first item."""

    @property
    @override
    def ports(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class ItemError:
    """An item on which the function of a `try_map` or `map_async` step raised.

    Attributes:
        item: the item.
        step_id: the step whose function raised.
        exception: the exception.
    """

    item: Any
    step_id: str
    exception: Exception


class TryOut(NamedTuple):
    """The streams of a `try_map` or `map_async`: results, and an `ItemError` for each failure."""

    ok: Stream[Any]
    errors: Stream[ItemError]


def try_map(step_id: str, up: Stream[X], mapper: Callable[[X], Y]) -> TryOut:
    """Map each item; an item on which `mapper` raises is an `ItemError` on the ``errors`` stream.

    >>> import flow.operators as op
    >>> from flow.testing import run_once
    >>> run_once(["1", "x"], lambda s: op.try_map("int", s, int).ok)
    [1]
    >>> errors = run_once(["1", "x"], lambda s: op.try_map("int", s, int).errors)
    >>> errors[0].item, errors[0].step_id, type(errors[0].exception).__name__
    ('x', 'int', 'ValueError')
    """
    check_callable(step_id, "mapper", mapper)
    return TryOut(*add_step(step_id, TryMap(mapper), up))


def raises(step_id: str, up: Stream[Any]) -> None:
    """Fail at the first item, for a stream that must stay empty."""
    add_step(step_id, Raises(), up)
