"""Signals: a first Ctrl-C or SIGTERM lets the epoch in hand end, a second one ends the process.

A handler that a program has set itself is its own business and stays in place. PySpark sets one
whenever a session is made in the main thread; that one counts as nobody's.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from flow.errors import StepError

SAID = "stopping when the epoch in hand is done; a second Ctrl-C stops at once"

_DEFAULTS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


@contextlib.contextmanager
def stopping_on_signals(ask: Callable[[], None]) -> Iterator[None]:
    """Let a first Ctrl-C or SIGTERM ask for a stop, and a second one end the process.

    Outside the main thread, which alone may handle signals, nothing is changed; nor is a handler
    that the program has set itself.

    Args:
        ask: called by the first; it must not wait for anything.
    """
    asked: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if asked:
            _end_at_once(number)
        asked.append(number)
        _say(SAID)
        ask()

    before = {number: signal.getsignal(number) for number in _DEFAULTS if _is_nobodys(number)}
    for number in before:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def own_handlers_kept() -> Iterator[None]:
    """Put a program's own handler of Ctrl-C back, if PySpark takes its place meanwhile."""
    before = signal.getsignal(signal.SIGINT)
    own = _in_main_thread() and before is not None and not _is_nobodys(signal.SIGINT)
    try:
        yield
    finally:
        if own:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def plainly_interrupted() -> Iterator[None]:
    """Let Ctrl-C be a `KeyboardInterrupt`, not what Spark says of the jobs that end because of it.

    What Spark and Py4J were at when it came is left out of its trace, and not logged: Py4J raises
    all that it logs.
    """
    py4j = logging.getLogger("py4j")
    before = py4j.level
    py4j.setLevel(logging.CRITICAL + 1)
    try:
        yield
    except StepError:
        raise  # also where a user's function raised it, in a worker
    except BaseException as error:
        if any(isinstance(one, KeyboardInterrupt) for one in _causes(error)):
            raise KeyboardInterrupt from None
        raise
    finally:
        py4j.setLevel(before)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, and those that it was raised from or while they were handled."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_nobodys(number: signal.Signals) -> bool:
    """Whether a signal can be taken: this is the main thread, and no one else has asked for it."""
    handler = signal.getsignal(number)
    return _in_main_thread() and (handler == _DEFAULTS[number] or _is_pysparks(handler))


def _is_pysparks(handler: Any) -> bool:
    return str(getattr(handler, "__module__", "")).startswith("pyspark.")


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _end_at_once(number: int) -> None:
    """End without another word of Python's or Spark's; the JVM goes when this process is gone."""
    _say("stopped at once")
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(128 + number)


def _say(text: str) -> None:
    """Say something on standard error; what is wrong with that must not reach what runs here."""
    with contextlib.suppress(Exception):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
