"""The check that the functions of a flow can be sent to workers, before Spark starts.

A function travels with the variables that it uses: those of the functions around it, its defaults,
and, unless workers can import it, the globals that it names. A lock, a socket or an open file among
them cannot be pickled. The check pickles each variable by itself, so that its error can name it.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple, TypeVar

from typing_extensions import override

from flow.dataflow import Operator, Step
from flow.errors import FlowBuildError, error_message, shorten
from flow.operators.edges import Input, Output

X = TypeVar("X")

_MOST_LEVELS = 6
"""Greatest depth of attributes in attributes that an error names."""


class Obstacle(NamedTuple):
    """A value that cannot be pickled.

    Attributes:
        place: the variable or attribute that holds the value.
        value: the value.
        reason: the message of pickle.
    """

    place: str
    value: object
    reason: str


def check_portable(steps: Mapping[str, Step], *, with_ends: bool = True) -> None:
    """Check that steps can be sent to workers.

    Args:
        steps: the steps by id.
        with_ends: True to check sources and sinks as well.

    Raises:
        FlowBuildError: when a step cannot be sent; the error names the step and the variable.
    """
    for name, step in steps.items():
        is_end = isinstance(step.operator, (Input, Output))
        # A source may hold millions of items, which the probe would visit one by one.
        if is_end and (not with_ends or _passes_cloudpickle(step.operator)):
            continue
        obstacle = obstacle_in(step.operator)
        if obstacle is not None and (is_end or not _passes_cloudpickle(step.operator)):
            raise FlowBuildError(
                f"step {name!r} cannot be sent to workers: {obstacle.place} is "
                f"{shorten(obstacle.value, 80)}, of type {type(obstacle.value).__name__} "
                f"({obstacle.reason}): make it inside the function that uses it"
            )


def obstacle_in(operator: Operator) -> Obstacle | None:
    """Return the first value of an operator that cannot be pickled; ``None`` if there is none."""
    checked: set[int] = set()
    waiting: list[tuple[str, object]] = [("", operator)]
    while waiting:
        place, value = waiting.pop()
        if id(value) in checked:
            continue
        checked.add(id(value))
        probe = _Probe()
        reason = probe.failure(value)
        if reason is not None:
            return _innermost(Obstacle(place, value, reason))
        waiting += [
            (f"variable {name!r} of function {function.__qualname__!r}", used)
            for function in probe.functions
            for name, used in _variables(function)
        ]
    return None


class _Probe(pickle.Pickler):
    """A pickler that discards its output, and collects the functions that it meets.

    Functions, classes and modules count as picklable: cloudpickle pickles them, and the variables
    of functions are checked one by one.
    """

    def __init__(self) -> None:
        super().__init__(_Discarded(), 5)
        self.functions: list[FunctionType] = []

    def failure(self, value: object) -> str | None:
        """Pickle a value, and return the message of the failure, ``None`` if it succeeds."""
        try:
            self.dump(value)
        except Exception as error:  # Pickle passes on any exception of a user's `__reduce__`.
            return error_message(error)
        return None

    @override
    def persistent_id(self, value: Any, /) -> str | None:
        """Return a name for a value that is not pickled here, ``None`` for any other."""
        if isinstance(value, FunctionType):
            self.functions.append(value)
        elif isinstance(value, type):
            if not _is_importable(value):
                methods = vars(value).values()
                self.functions += [one for one in methods if isinstance(one, FunctionType)]
        elif not isinstance(value, (ModuleType, CodeType, property)):
            return None
        return "left to cloudpickle"


class _Discarded:
    """A file whose content nobody needs."""

    def write(self, data: Any) -> int:
        return len(data)


def _innermost(obstacle: Obstacle) -> Obstacle:
    """Return the part of a value that cannot be pickled, by following its attributes."""
    for _ in range(_MOST_LEVELS):
        for name, part in _parts(obstacle.value):
            reason = _Probe().failure(part)
            if reason is not None:
                joined = f"{obstacle.place}{name}" if obstacle.place else name.lstrip(".")
                obstacle = Obstacle(joined, part, reason)
                break
        else:
            break
    return obstacle


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield the parts of a value with their place in it, such as ``.lock`` or ``[0]``."""
    if isinstance(value, partial):
        yield from _parts(value.args)
        yield from _parts(value.keywords)
        yield ".func", value.func
    elif isinstance(value, MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, (dict, MappingProxyType)):
        yield from ((f"[{shorten(key, 40)}]", part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{number}]", part) for number, part in enumerate(value))
    else:
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            yield from ((f".{name}", part) for name, part in attributes.items())


def _variables(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield the variables that travel with a function: none if workers import it."""
    if _is_importable(function):
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # The variable has no value yet.
            continue
    yield from zip(_defaulted(function), function.__defaults__ or (), strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _defaulted(function: FunctionType) -> tuple[str, ...]:
    """Return the positional parameters that have a default."""
    code, count = function.__code__, len(function.__defaults__ or ())
    return code.co_varnames[code.co_argcount - count : code.co_argcount]


def _names(code: CodeType) -> set[str]:
    """Return the global names that code uses, with those of the functions inside it."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _is_importable(value: FunctionType | type) -> bool:
    """Return True if pickle stores a function or class by its module and name."""
    if value.__module__ == "__main__":
        return False
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def _passes_cloudpickle(operator: Operator) -> bool:
    """Return True if the pickler of Spark can pickle an operator, whatever `_Probe` found."""
    # PySpark is imported in this rare case only: flows in a test's process do without it.
    from pyspark import cloudpickle

    try:
        cloudpickle.dumps(operator)  # type: ignore[no-untyped-call]
    except Exception:  # As above, it may be any exception.
        return False
    return True


def as_in_workers(value: X) -> X:
    """Return a copy of a value, made by the pickler of Spark, as workers get it."""
    from pyspark import cloudpickle

    copied: X = pickle.loads(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]
    return copied
