"""Text of a failure for a terminal, with exceptions of the user's code and none of Spark's."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

from flow.errors import FlowError, StepError

_JAVA_FRAMES = re.compile(r"\n\s+(?:at [\w.$/<>]+\(.*\)|\.\.\. \d+ more)")
_PACKAGES = Path(__file__).resolve().parents[2]
_NOT_THE_USERS = tuple(
    f"{folder}{os.sep}"
    for folder in (
        *(_PACKAGES / name for name in ("flow", "flow_windowing", "recovery")),
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    )
)


def describe_failure(error: FlowError) -> str:
    r"""Return the text of a flow's failure, with the user's frames of the exception, if any.

    >>> describe_failure(StepError("half", "the mapper raised", item="0"))
    "step 'half': the mapper raised\n  item: 0"
    """
    message = _JAVA_FRAMES.sub("", str(error))
    cause = error.__cause__
    is_sparks = type(cause).__module__.partition(".")[0] in {"py4j", "pyspark"}
    if not isinstance(error, StepError) or cause is None or is_sparks:
        return message
    is_users = bool(users_place(cause)) or hasattr(cause, "__notes__")  # The note of a worker.
    return f"{message}\n{users_trace(cause)}" if is_users else message


def whole_trace(error: BaseException) -> str:
    """Return a traceback as Python prints it, with all frames."""
    return "".join(traceback.format_exception(error)).rstrip()


def users_trace(error: BaseException) -> str:
    """Return a traceback as Python prints it, with only the frames in the user's files.

    The traceback of an exception without such frames, a fault of this package, has all frames.
    """
    if isinstance(error, SyntaxError):
        return "".join(traceback.format_exception_only(error)).rstrip()
    trace = traceback.TracebackException.from_exception(error)
    chain = [trace]
    for link in chain:  # The list grows meanwhile.
        context = None if link.__suppress_context__ else link.__context__
        chain += filter(None, [link.__cause__ or context])
    if any(_users_frames(link.stack) for link in chain):
        for link in chain:
            link.stack = traceback.StackSummary.from_list(_users_frames(link.stack))
    return "".join(trace.format()).rstrip()


def users_place(error: BaseException) -> str:
    """Return the user's file and line that raised an exception, in brackets; empty if none did."""
    frames = _users_frames(traceback.extract_tb(error.__traceback__))
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _users_frames(frames: Iterable[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    return [
        frame
        for frame in frames
        if not frame.filename.startswith("<")  # Code of importlib or dataclasses has no file.
        and not os.path.abspath(frame.filename).startswith(_NOT_THE_USERS)
    ]
