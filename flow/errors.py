"""The hierarchy of errors that users see, and text for messages.

Each class also derives from the fitting builtin, so that ``except ValueError`` works, and carries
the objects that its message names as attributes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from reprlib import Repr
from typing import Any

_short = Repr()
_short.maxlevel = 4
_short.maxdict = _short.maxlist = _short.maxtuple = _short.maxset = _short.maxfrozenset = 12
_short.maxstring = _short.maxother = 160


def shorten(value: object, limit: int = 400) -> str:
    """Return the repr of any value in at most `limit` characters.

    >>> shorten({"a": 1})
    "{'a': 1}"
    >>> len(shorten("x" * 1000)) <= 400
    True
    """
    try:
        text = _short.repr(value)
    except RAISED as error:  # A user's __repr__ may raise any exception.
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return cut_text(text, limit)


def cut_text(text: str, limit: int) -> str:
    """Return a text in at most `limit` characters, with an ellipsis for what is left out."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


_CONTROLS = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\n\t"
}
"""Characters that control a terminal or reorder text."""


def printable(text: str) -> str:
    r"""Escape the control characters of untrusted text, for a terminal or a log.

    Line ends and tabs stay.

    >>> printable("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    return text.translate(_CONTROLS)


RAISED = BaseException
"""The exceptions of a user's function that become the step's error: all, including those that would
end a process, a task or a generator."""


def error_message(error: BaseException | None) -> str:
    """Return an exception's message without control characters, also if its ``__str__`` raises."""
    try:
        return printable(str(error))
    except RAISED as raised:
        return f"<its message cannot be shown: {type(raised).__name__}>"


def brief(error: BaseException) -> str:
    """Return an exception's type and message in at most 500 characters.

    >>> brief(ValueError("bad"))
    'ValueError: bad'
    """
    return cut_text(f"{type(error).__name__}: {error_message(error)}", 500)


def first_line(error: BaseException | None) -> str:
    """Return the first line of an exception's message; its type if the message is empty.

    >>> first_line(ValueError("bad")), first_line(KeyError())
    ('bad', 'KeyError')
    """
    text = error_message(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and the exceptions before it: causes, or contexts."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class FlowError(Exception):
    """The root of all errors of flows, engines and connectors."""


class FlowBuildError(FlowError, ValueError):
    """A mistake in a flow, found when the flow is built, before it runs."""


class FlowTypeError(FlowBuildError, TypeError):
    """An argument of the wrong type, found when a flow is built."""


class DurationError(FlowBuildError):
    """A duration that cannot be read."""


class TimestampError(FlowError, ValueError):
    """A timestamp that cannot be read, or a naive datetime where an aware one is needed."""


class StepError(FlowError, RuntimeError):
    """A failure of a step during a run; ``__cause__`` is the exception of the user's code, if any.

    Attributes:
        step_id: the step that failed.
        problem: the problem, in one line.
        key: the key of the failed call, ``None`` without a key.
        item: the item of the failed call, as shortened text.
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
        """Return the step and the problem in one line, and key and item in further lines."""
        lines = [f"step {self.step_id!r}: {self.problem}"]
        if self.key is not None:
            lines.append(f"  key:  {shorten(self.key)}")
        if self.item is not None:
            lines.append(f"  item: {self.item}")
        return "\n".join(lines)


def step_error(
    step_id: str,
    problem: str,
    *,
    item: Any = None,
    has_item: bool = True,
    key: str | None = None,
    error: BaseException | None = None,
) -> StepError:
    """Make a `StepError` with the item as shortened text.

    Args:
        step_id: the step.
        problem: the problem, in one line.
        item: the item, or the value, of the failed call.
        has_item: False for a call without an item.
        key: the key of the value; ``None`` for an item.
        error: the exception of the user's function; by default, the one that is handled now.
    """
    error = error or sys.exception()
    advice = pair_advice(error.__cause__ or error, item, key) if has_item and error else ""
    return StepError(step_id, problem + advice, key, shorten(item) if has_item else None)


def pair_advice(error: BaseException, item: Any, key: str | None) -> str:
    """Return advice for a function that took a pair for a value, or the reverse, as a clause.

    Args:
        error: the exception of the function.
        item: the item, or the value, that the function got.
        key: the key of the value; ``None`` for an item.

    >>> pair_advice(TypeError("tuple indices must be integers or slices, not str"), ("k", {}), None)
    '; these are (key, value) pairs: op.map_value, op.filter_value and op.flat_map_value give a \
function the value'
    """
    text = error_message(error)
    if isinstance(item, tuple) and len(item) == 2:
        window = item[1] if key is None else item
        is_window = isinstance(window, tuple) and hasattr(next(iter(window), None), "window_id")
        is_pair = key is None and isinstance(item[0], str)
        advice = _OF_WINDOWS if is_window else _OF_PAIRS if is_pair else ""
        is_mistaken = any(sign in text for sign in ("tuple", "unpack", "there is no field"))
    else:
        kind, is_record = type(item).__name__, isinstance(item, Mapping)
        advice = _WITHOUT_KEY if key is None else _OF_VALUES
        is_mistaken = text.startswith(
            (f"cannot unpack non-iterable {kind}", f"'{kind}' object is not subs")
        ) or (is_record and (text in {"0", "1"} or "values to unpack" in text))
    # The call itself was refused: no frame of the function is in the traceback.
    is_refused = getattr(error.__traceback__, "tb_next", None) is None
    return advice if is_mistaken or (is_refused and "required positional" in text) else ""


_OF_WINDOWS = (
    "; these are results of windows, (key, (WindowMetadata, value)): op.map_window gives a "
    "function the three parts, and op.records makes records of them"
)
_OF_PAIRS = (
    "; these are (key, value) pairs: op.map_value, op.filter_value and op.flat_map_value give a "
    "function the value"
)
_OF_VALUES = "; this is the value of a pair, without its key: op.map gives a function (key, value)"
_WITHOUT_KEY = "; these are items without a key: op.key_on makes (key, value) pairs of them"


class SourceError(FlowError, RuntimeError):
    """A failure to read a source, or invalid data in a source."""


class SinkError(FlowError, RuntimeError):
    """A failure to write to a sink."""


class CheckpointError(FlowError, RuntimeError):
    """A checkpoint that cannot be used as requested."""


class EnvironmentProblem(FlowError, RuntimeError):
    """A requirement of a run, such as Java, that the machine lacks."""


@contextmanager
def package_of_extra(
    extra: str, package: str, user: str, *, on_workers: bool = False
) -> Iterator[None]:
    """Report a failed import in the block as a missing package, with the command that installs it.

    Args:
        extra: the extra that installs the package.
        package: the name of the package.
        user: the part of the product that imports the package.
        on_workers: True if workers import the package too.

    Raises:
        EnvironmentProblem: an import in the block failed.

    >>> with package_of_extra("kafka", "confluent-kafka", "Kafka", on_workers=True):
    ...     raise ImportError("No module named 'confluent_kafka'")
    Traceback (most recent call last):
    flow.errors.EnvironmentProblem: Kafka needs confluent-kafka, which cannot be imported \
(No module named 'confluent_kafka'): install it with pip install 'flow-windows[kafka]', where the \
flow is started and on its workers
    """
    try:
        yield
    except ImportError as error:
        places = ", where the flow is started and on its workers" if on_workers else ""
        raise EnvironmentProblem(
            f"{user} needs {package}, which cannot be imported ({error}): install it with "
            f"pip install 'flow-windows[{extra}]'{places}"
        ) from None


class EngineError(FlowError, RuntimeError):
    """A failure of Spark that no step caused; Spark's own log has the details."""


class UnusedStepWarning(UserWarning):
    """A step without effect: its items reach no output, `op.inspect` or `op.raises`."""


def behind_text(behind: Mapping[str, int], most: int) -> str:
    """Return the number of items that an input is behind, and the partitions furthest behind.

    Args:
        behind: the number of items that each source partition is behind.
        most: the greatest number of partitions to name.

    >>> behind_text({"orders/0": 1_000, "orders/1": 0, "orders/2": 20}, 3)
    '1,020 behind (orders/0 1,000, orders/2 20)'
    """
    worst = sorted(behind.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{name} {count:,}" for name, count in worst if count]
    more = ["…"] if len(named) > most else []
    total = f"{sum(behind.values()):,} behind"
    return f"{total} ({', '.join(named[:most] + more)})" if named else total
