"""Copies of sinks for a process that opens them and commits, as the driver does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_pickles_for_driver: ContextVar[bool] = ContextVar("pickles_for_driver", default=False)


@contextlib.contextmanager
def pickled_for_driver() -> Iterator[None]:
    """Pickle sinks in the block for a process that opens them and commits, not for tasks."""
    token = _pickles_for_driver.set(True)
    try:
        yield
    finally:
        _pickles_for_driver.reset(token)


def pickles_for_driver() -> bool:
    """Return True if a sink is pickled for a process that opens it and commits.

    A copy for tasks leaves out what they do not use, such as a password.
    """
    return _pickles_for_driver.get()
