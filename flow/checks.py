"""Checks of arguments: each error names the parameter, the rule and the value.

`name` is the parameter as the error shows it, with its owner where the owner is not clear:
``"EventClock: on_idle"`` or ``"step 'total': emit"``.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from flow.errors import FlowBuildError, FlowTypeError, shorten
from flow.fields import FieldPath


def wrong_type(rule: str, value: object) -> FlowTypeError:
    """Return the error for a value of a wrong type; `rule` names the parameter and its type."""
    return FlowTypeError(f"{rule}, got {type(value).__name__} {shorten(value)}")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise a `FlowBuildError` unless `value` is one of two or more words."""
    if not isinstance(value, str) or value not in choices:
        *others, last = map(repr, choices)
        raise FlowBuildError(f"{name} must be {', '.join(others)} or {last}, got {shorten(value)}")


def check_whole(name: str, value: object, least: int) -> None:
    """Raise unless `value` is a whole number of at least `least`.

    Raises:
        FlowTypeError: it is no whole number; True and False are none.
        FlowBuildError: it is below `least`.
    """
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < least:  # type: ignore[operator]
        kind = FlowBuildError if is_whole else FlowTypeError
        raise kind(f"{name} must be a whole number of at least {least}, got {shorten(value)}")


def check_function(name: str, value: object) -> None:
    """Raise a `FlowTypeError` unless `value` is a function that is not ``async``."""
    if not callable(value):
        raise wrong_type(f"{name} must be a function", value)
    if inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value):
        own = getattr(value, "__name__", "")
        raise FlowTypeError(
            f"{name} must be a plain function, got async def {own}: only op.map_async awaits, "
            "many calls at a time"
        )


def check_getter(name: str, value: object, example: str) -> None:
    """Raise unless `value` is a function or the path of a field, such as `example`.

    Raises:
        FlowTypeError: it is neither.
        FlowBuildError: it is text with an empty name in the path.
    """
    if isinstance(value, str):
        if not FieldPath(value).is_valid:
            raise FlowBuildError(
                f"{name} must be a field's path such as {example!r}, got {value!r}"
            )
    elif callable(value):
        check_function(name, value)
    else:
        raise wrong_type(f"{name} must be a function or a field's path such as {example!r}", value)


def check_flag(name: str, value: object) -> None:
    """Raise a `FlowTypeError` unless `value` is True or False; 0 and 1 are neither."""
    if not isinstance(value, bool):
        raise wrong_type(f"{name} must be True or False", value)
