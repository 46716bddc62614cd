"""Items that are their key's state: they leave as they are when they are emitted.

A function may return its state as an item as well, and change the state with the next value. Items
travel at the end of an epoch, so the item would change too, as far as the epoch goes. What is
emitted must not depend on where epochs are cut: such an item is copied.
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


def detached(item: Any, state: Any) -> Any:
    """Return an item, or a copy of it if it is a state, or a tuple that holds the state.

    Args:
        item: what is emitted.
        state: what goes on to change. A caller need not ask for one of `CONSTANTS`.

    >>> seen = [1]
    >>> item = detached(("a", seen), seen)
    >>> seen.append(2)
    >>> item
    ('a', [1])
    """
    if item is state or (type(item) is tuple and any(part is state for part in item)):
        return copy.deepcopy(item)
    return item


def detached_from(logic: object, items: Iterable[Any]) -> list[Any]:
    """Return the items that a logic emits, with copies of those that are attributes of it."""
    return [item if type(item) in CONSTANTS else _detached(item, logic) for item in items]


def _detached(item: Any, logic: object) -> Any:
    for state in getattr(logic, "__dict__", {}).values():
        if type(state) not in CONSTANTS:
            item = detached(item, state)
    return item
