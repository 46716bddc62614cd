"""Transport of failures from a worker to the driver.

A failure travels as a packet, not as an exception through Spark: Spark does not retry a task for an
error that would recur, logs no stack trace, and the user receives the original exception.
"""

from __future__ import annotations

import pickle
import traceback
from types import FrameType
from typing import TypeVar

from flow.errors import RAISED, FlowError, SourceError, error_message

ExceptionT = TypeVar("ExceptionT", bound=BaseException)

_OWN = ("flow", "flow_windowing", "recovery")


def encode_failure(error: FlowError) -> bytes:
    """Return an error and its cause as bytes."""
    cause = error.__cause__
    trace = "" if cause is None else user_trace(cause)
    return pickle.dumps((portable(error), None if cause is None else portable(cause), trace), 5)


def decode_failure(payload: bytes) -> FlowError:
    """Return the error in bytes made by `encode_failure`, with its cause and the worker's trace."""
    error, cause, trace = pickle.loads(payload)
    if cause is not None:
        if trace:
            cause.add_note("raised in a worker at:\n" + trace)
        error.__cause__ = cause
    failure: FlowError = error
    return failure


def user_trace(error: BaseException) -> str:
    """Return the frames of a traceback outside this project, innermost last."""
    trace = error.__traceback__
    frames = zip(traceback.extract_tb(trace), traceback.walk_tb(trace), strict=True)
    # By module, as compiled modules in a worker's zip name the files that they were compiled from.
    theirs = [shown for shown, (frame, _) in frames if _package(frame) not in _OWN]
    return "".join(traceback.format_list(theirs)).rstrip()


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def naming(step_id: str, error: SourceError) -> SourceError:
    """Return a source's error with the step that reads the source, which a source does not know."""
    prefix = f"step {step_id!r}: "
    return error if str(error).startswith(prefix) else SourceError(f"{prefix}{error}")


def portable(error: ExceptionT) -> ExceptionT | RuntimeError:
    """Return an exception that can be pickled: the exception itself, or one with its message."""
    try:
        pickle.loads(pickle.dumps(error, 5))
        str(error)
    except RAISED:  # A user's class may raise any exception as it is pickled.
        return RuntimeError(f"{type(error).__name__}: {error_message(error)}")
    return error
