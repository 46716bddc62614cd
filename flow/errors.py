"""Every error a user can meet, in one hierarchy.

Each class also derives from the builtin that fits, so ``except ValueError`` works as people expect,
and carries the objects it speaks of as attributes.
"""

from __future__ import annotations

from reprlib import Repr
from typing import Any

_short = Repr()
_short.maxlevel = 4
_short.maxdict = _short.maxlist = _short.maxtuple = _short.maxset = _short.maxfrozenset = 12
_short.maxstring = _short.maxother = 160


def shorten(value: object, limit: int = 400) -> str:
    """Show a value in at most `limit` characters, whatever it is.

    >>> shorten({"a": 1})
    "{'a': 1}"
    >>> len(shorten("x" * 1000)) <= 400
    True
    """
    try:
        text = _short.repr(value)
    except RAISED as error:  # a user's __repr__ may raise anything
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


_CONTROLS = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\n\t"
}
"""Characters that make a terminal do something, or show text in another order."""


def printable(text: str) -> str:
    r"""Return text that may come from outside fit for a terminal or a log.

    Line ends and tabs stay; other control characters are written as Python would.

    >>> printable("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    return text.translate(_CONTROLS)


RAISED = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
"""Exceptions that a user's function may raise. Those that would end a process or a generator end
the flow, and are told with the step and the item like any other."""


def said(error: BaseException | None) -> str:
    """Return an exception's message, fit to be shown, whatever its ``__str__`` does."""
    try:
        return printable(str(error))
    except RAISED as raised:
        return f"<its message cannot be shown: {type(raised).__name__}>"


def brief(error: BaseException, limit: int = 500) -> str:
    """An exception's type and message, cut to a sane length.

    >>> brief(ValueError("bad"))
    'ValueError: bad'
    """
    text = f"{type(error).__name__}: {said(error)}"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def first_line(error: BaseException | None) -> str:
    """What an exception says in its first line; its type where it says nothing.

    >>> first_line(ValueError("bad")), first_line(KeyError())
    ('bad', 'KeyError')
    """
    text = said(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


class FlowError(Exception):
    """The root of all errors raised by a flow, its engines and its connectors."""


class FlowBuildError(FlowError, ValueError):
    """A flow was put together wrongly: found when it is built, before anything runs."""


class FlowTypeError(FlowBuildError, TypeError):
    """An argument of the wrong type was given while building a flow."""


class DurationError(FlowBuildError):
    """A duration that cannot be read."""


class TimestampError(FlowError, ValueError):
    """A timestamp that cannot be read, or a naive datetime where an aware one is needed."""


class StepError(FlowError, RuntimeError):
    """A step failed while the flow ran; the user's own exception, if any, is the ``__cause__``.

    Attributes:
        step_id: the step that failed.
        problem: what went wrong, in one line.
        key: the key in hand, or ``None`` where there was none.
        item: the item in hand, shortened text.
    """

    def __init__(
        self, step_id: str, problem: str, key: str | None = None, item: str | None = None
    ) -> None:
        self.step_id = step_id
        self.problem = problem
        self.key = key
        self.item = item
        super().__init__(step_id, problem, key, item)

    def __str__(self) -> str:
        """Name the step, then the problem, then the key and the item on lines of their own."""
        lines = [f"step {self.step_id!r}: {self.problem}"]
        if self.key is not None:
            lines.append(f"  key:  {shorten(self.key)}")
        if self.item is not None:
            lines.append(f"  item: {self.item}")
        return "\n".join(lines)


def step_error(
    step_id: str, problem: str, *, item: Any = None, has_item: bool = True, key: str | None = None
) -> StepError:
    """Make a `StepError` with the item cut to a sane length."""
    return StepError(step_id, problem, key, shorten(item) if has_item else None)


class SourceError(FlowError, RuntimeError):
    """A source could not be read, or held something it should not."""


class SinkError(FlowError, RuntimeError):
    """A sink could not take what was written to it."""


class CheckpointError(FlowError, RuntimeError):
    """A checkpoint cannot be used as asked."""


class EnvironmentProblem(FlowError, RuntimeError):
    """The machine lacks something a run needs, such as Java."""


class EngineError(FlowError, RuntimeError):
    """Spark failed in a way that is not the fault of a step; Spark's own log says more."""


class UnusedStepWarning(UserWarning):
    """A step's items reach no output, `op.inspect` or `op.raises`: the step has no effect."""
