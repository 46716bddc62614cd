"""The pairs that joins by time emit."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

L = TypeVar("L")
R = TypeVar("R")


class JoinedPair(NamedTuple, Generic[L, R]):
    """A left and a right value, which `join_interval` and `join_asof` emit together.

    It is a tuple, so that it can be unpacked: ``key, (window, (left, right)) = item``. Sinks of
    tables, and `flow.operators.records`, make the columns ``left`` and ``right`` of it.

    Attributes:
        left: the left value; ``None`` for a right value without a partner.
        right: the right value; ``None`` for a left value without a partner.

    >>> pair = JoinedPair({"price": 5}, None)
    >>> pair.left["price"], pair == ({"price": 5}, None)
    (5, True)
    """

    left: L
    right: R
