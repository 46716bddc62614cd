"""The process of a run: its signals and its standard output.

A first Ctrl-C or SIGTERM stops a run after the current epoch, a second at once.

A handler that the program has set stays in place. The handler that PySpark sets, when the main
thread makes a session, does not count as set by the program.
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

from flow.errors import SinkError, StepError, causes

STOP_MESSAGE = "stopping after the current epoch; a second Ctrl-C stops at once"

_DEFAULTS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


@contextlib.contextmanager
def stopping_on_signals(ask: Callable[[], None]) -> Iterator[None]:
    """Ask for a stop at a first Ctrl-C or SIGTERM in the block, and end the process at a second.

    Outside the main thread, the only one that may handle signals, the context does nothing. A
    handler that the program has set stays in place.

    Args:
        ask: called at the first signal, in a signal handler: must not block.
    """
    first_signals: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if first_signals:
            _end_at_once(number)
        first_signals.append(number)
        _print(STOP_MESSAGE)
        ask()

    before = {number: signal.getsignal(number) for number in _DEFAULTS if _is_free(number)}
    for number in before:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def own_handlers_kept() -> Iterator[None]:
    """Restore the program's own Ctrl-C handler if PySpark replaces the handler in the block."""
    before = signal.getsignal(signal.SIGINT)
    is_own = _in_main_thread() and before is not None and not _is_free(signal.SIGINT)
    try:
        yield
    finally:
        if is_own:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defer a Ctrl-C that comes in the block to the end of the block."""
    before = signal.getsignal(signal.SIGINT)
    if not _in_main_thread() or before is None:
        yield
        return
    deferred: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: deferred.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for number in deferred[:1]:
            signal.raise_signal(number)


@contextlib.contextmanager
def plainly_interrupted() -> Iterator[None]:
    """Raise a plain `KeyboardInterrupt` at Ctrl-C, without the errors of Spark jobs that end.

    The log of Py4J, which logs each exception that it raises, is off during the block.
    """
    py4j = logging.getLogger("py4j")
    before = py4j.level
    py4j.setLevel(logging.CRITICAL + 1)
    try:
        yield
    except StepError:
        raise  # A user's function may raise KeyboardInterrupt itself, in a worker.
    except BaseException as error:
        if any(isinstance(cause, KeyboardInterrupt) for cause in causes(error)):
            raise KeyboardInterrupt from None
        raise
    finally:
        py4j.setLevel(before)


def _is_free(number: signal.Signals) -> bool:
    """Return True in the main thread if the program has set no handler for the signal."""
    handler = signal.getsignal(number)
    is_pysparks = str(getattr(handler, "__module__", "")).startswith("pyspark.")
    return _in_main_thread() and (handler == _DEFAULTS[number] or is_pysparks)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _end_at_once(number: int) -> None:
    """End the process without further messages of Python or Spark; the JVM ends with it."""
    _print("stopped at once")
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(128 + number)


def _print(text: str) -> None:
    """Write to standard error. An error here must not reach the code that the signal interrupts."""
    with contextlib.suppress(Exception):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def print_text(text: str) -> None:
    """Print text at once; a character that standard output cannot encode becomes an escape.

    Closed standard output takes nothing, as for Python's own `print`.

    Raises:
        SinkError: the program that reads standard output, such as ``head``, has ended.
    """
    if sys.stdout is None:
        return
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        sys.stdout.write(f"{text}\n".encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would flush what is left as it ends, and print a second error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SinkError("the program that reads standard output has ended") from None
