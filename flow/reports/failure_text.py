"""What went wrong, in words for a terminal: a flow's failure with the user's own exception."""

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
    r"""What failed in a flow, with the user's own exception; nothing of Spark's.

    >>> describe_failure(StepError("half", "the mapper raised", item="0"))
    "step 'half': the mapper raised\n  item: 0"
    """
    message = _JAVA_FRAMES.sub("", str(error))
    cause = error.__cause__
    if not isinstance(error, StepError) or cause is None or _is_sparks(cause):
        return message
    return f"{message}\n{users_trace(cause)}"


def users_trace(error: BaseException) -> str:
    """A traceback as Python prints it, with only the frames in the user's own files.

    An exception without any is shown with all its frames: it is a fault of this package.
    """
    if isinstance(error, SyntaxError):
        return "".join(traceback.format_exception_only(error)).rstrip()
    trace = traceback.TracebackException.from_exception(error)
    chain: list[traceback.TracebackException] = []
    link: traceback.TracebackException | None = trace
    while link is not None:
        chain.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    if any(_users_frames(one.stack) for one in chain):
        for one in chain:
            one.stack = traceback.StackSummary.from_list(_users_frames(one.stack))
    return "".join(trace.format()).rstrip()


def users_place(error: BaseException) -> str:
    """Where in the user's own files an exception was raised, in brackets; empty when nowhere."""
    frames = _users_frames(traceback.extract_tb(error.__traceback__))
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _users_frames(frames: Iterable[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    return [
        frame
        for frame in frames
        if not frame.filename.startswith("<")  # made by importlib, or by dataclasses
        and not os.path.abspath(frame.filename).startswith(_NOT_THE_USERS)
    ]


def _is_sparks(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in {"py4j", "pyspark"}
