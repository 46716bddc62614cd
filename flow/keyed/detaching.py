"""Copies of emitted items that share an object with their key's state.

A function may return its state as an item, and change the state with the next value. Items are sent
at the end of an epoch. Without a copy such an item would change until then, and the output would
depend on the boundaries of epochs. The item is therefore copied when it is emitted.
"""

from __future__ import annotations

import copy
import datetime
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

CONSTANTS = frozenset(
    {
        *(bool, int, float, complex, str, bytes, type(None), Decimal, Fraction, UUID),
        *(datetime.datetime, datetime.date, datetime.time, datetime.timedelta),
    }
)
"""Types whose values never change."""


def detach(item: Any, state: Any) -> Any:
    """Return an item, or a copy of it if it is the state or a tuple that holds the state.

    Args:
        item: the item to emit.
        state: the state, which later values may change. A caller skips the call for a state whose
            type is in `CONSTANTS`.

    >>> seen = [1]
    >>> item = detach(("a", seen), seen)
    >>> seen.append(2)
    >>> item
    ('a', [1])
    """
    if item is state or (type(item) is tuple and any(part is state for part in item)):
        return copy.deepcopy(item)
    return item


def detach_items(logic: object, items: Iterable[Any]) -> list[Any]:
    """Return emitted items, with copies of items that are attributes of the logic."""
    return [item if type(item) in CONSTANTS else _detach_from(item, logic) for item in items]


def _detach_from(item: Any, logic: object) -> Any:
    for state in getattr(logic, "__dict__", {}).values():
        if type(state) not in CONSTANTS:
            item = detach(item, state)
    return item
