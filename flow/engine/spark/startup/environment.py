"""Environment variables for processes that this process starts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
"""The environment variable with options of a JVM that PySpark starts."""


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables in the block, and restore the old values at its end."""
    before = {name: os.environ.pop(name, None) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def submit_options(*options: str | None) -> dict[str, str]:
    """Return the variable that passes options to a JVM, without empty options.

    >>> submit_options("-Xmx1g", None, "-Da=b")
    {'SPARK_SUBMIT_OPTS': '-Xmx1g -Da=b'}
    """
    return {SUBMIT_OPTIONS: " ".join(filter(None, options))}
