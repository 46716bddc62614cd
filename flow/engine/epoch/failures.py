"""Transport of failures from a worker to the driver.

A failure travels as a packet, not as an exception through Spark: Spark does not retry a task for an
error that would recur, logs no stack trace, and the user receives the original exception.
"""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from flow.errors import (
    RAISED,
    EngineError,
    FlowError,
    SinkError,
    SourceError,
    StepError,
    brief,
    causes,
    error_message,
    shorten,
)

ExceptionT = TypeVar("ExceptionT", bound=BaseException)
P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("flow")

_OWN = ("flow", "flow_windowing", "recovery")


def with_brief_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose errors show the frames of the user's code, and none of this package.

    With the level DEBUG of the logger ``flow`` they show all frames.
    """

    @wraps(function)
    def brief(*args: P.args, **options: P.kwargs) -> R:
        try:
            return function(*args, **options)
        except EngineError:
            raise
        except FlowError as error:
            if logger.isEnabledFor(logging.DEBUG):
                raise
            for cause in causes(error.__cause__):
                cause.__traceback__ = users_frames(cause)
            raise error.with_traceback(None) from error.__cause__

    return brief


def encode_failure(error: FlowError) -> bytes:
    """Return an error and its cause as bytes."""
    cause, traces = error.__cause__, ("", "")
    if cause is not None:
        traces = user_trace(cause), "".join(traceback.format_tb(cause.__traceback__)).rstrip()
    return pickle.dumps((portable(error), None if cause is None else portable(cause), traces), 5)


def decode_failure(payload: bytes) -> FlowError:
    """Return the error in bytes made by `encode_failure`, with its cause and the worker's trace."""
    error, cause, traces = pickle.loads(payload)
    if cause is not None:
        trace = traces[logger.isEnabledFor(logging.DEBUG)]
        if trace:
            cause.add_note("raised in a worker at:\n" + trace)
        error.__cause__ = cause
    failure: FlowError = error
    return failure


def user_trace(error: BaseException) -> str:
    """Return the frames of a traceback outside this project, innermost last."""
    return "".join(traceback.format_tb(users_frames(error))).rstrip()


def users_frames(error: BaseException) -> TracebackType | None:
    """Return a traceback without the frames of this project; ``None`` if nothing is left."""
    links, link = list[TracebackType](), error.__traceback__
    while link is not None:
        links.append(link)
        link = link.tb_next
    theirs = None
    for link in reversed(links):
        # By module: compiled modules in a worker's zip name the files they were compiled from.
        module_name = str(link.tb_frame.f_globals.get("__name__", ""))
        if module_name.partition(".")[0] not in _OWN:
            theirs = TracebackType(theirs, link.tb_frame, link.tb_lasti, link.tb_lineno)
    return theirs


@contextmanager
def user_code(
    step_id: str,
    what: str,
    passes: tuple[type[BaseException], ...] = (KeyboardInterrupt,),
    about: object = None,
) -> Iterator[None]:
    """Raise an exception of the block as a `StepError`.

    The error of a source or a sink gets the step; another error of a flow stays as it is.

    Args:
        step_id: the step.
        what: the action that may raise it, for the error.
        passes: exceptions that stay as they are, by default the user's interrupt of the run, whose
            process this is.
        about: the object of the action, for the error.
    """
    try:
        yield
    except (SourceError, SinkError) as error:
        raise naming(step_id, error) from error.__cause__
    except RAISED as error:
        if isinstance(error, (FlowError, *passes)):
            raise
        what = what if about is None else f"{what} {shorten(about)}"
        raise StepError(step_id, f"{what} raised {brief(error)}") from error


def naming(step_id: str, error: SourceError | SinkError) -> SourceError | SinkError:
    """Return the error of a source or a sink with its step, which the two do not know."""
    prefix = f"step {step_id!r}: "
    return error if str(error).startswith(prefix) else type(error)(f"{prefix}{error}")


def portable(error: ExceptionT) -> ExceptionT | RuntimeError:
    """Return an exception that can be pickled: the exception itself, or one with its message."""
    try:
        pickle.loads(pickle.dumps(error, 5))
        str(error)
    except RAISED:  # A user's class may raise any exception as it is pickled.
        return RuntimeError(f"{type(error).__name__}: {error_message(error)}")
    return error
