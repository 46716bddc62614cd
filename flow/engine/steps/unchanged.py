"""The check that functions leave the items as they are that they are given.

Items are values: a sibling branch, another window or a replay may have the same object. The driver
of tests compares the items of a step before and after its functions.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from flow.engine.plan.plan import Plan
from flow.engine.steps.keyed import without_stamps
from flow.errors import RAISED, shorten, step_error
from flow.keyed.logic import CONSTANTS


@contextmanager
def unchanged(plan: Plan, step_id: str, items: Iterable[Any]) -> Iterator[None]:
    """Check that a block, in which the functions of a step run, changes none of its items.

    Items that cannot be pickled are not checked.

    Args:
        plan: the compiled flow; without `Plan.checks_items` nothing is checked.
        step_id: the step.
        items: the items as Python objects, iterated only if they are checked.

    Raises:
        StepError: when an item has changed.
    """
    checked = map(without_stamps, items) if plan.checks_items else ()
    contents = [(item, _content(item)) for item in checked]
    yield
    for item, content in contents:
        if content is not None and content != _content(item):
            given = pickle.loads(content)
            if not _is_same(given, item):
                problem = (
                    f"a function changed an item that it was given, to {shorten(item)}: other "
                    "steps, windows and replays may have the same object, so change a copy of it"
                )
                raise step_error(step_id, problem, item=given)


def _content(item: Any) -> bytes | None:
    """Return an item as bytes; ``None`` if it never changes, or cannot be pickled."""
    try:
        return None if type(item) in CONSTANTS else pickle.dumps(item, 5)
    except RAISED:  # A user's class may raise any exception as it is pickled.
        return None


def _is_same(given: Any, item: Any) -> bool:
    """Return True for equal items of different bytes, of which one has cached an attribute."""
    try:
        return bool(given == item) and repr(given) == repr(item)
    except RAISED:
        return False
