"""Checks of arguments: each error names the parameter, the rule and the value, or the right name.

`name` is the parameter as the error shows it, with its owner where the owner is not clear:
``"EventClock: on_idle"`` or ``"step 'total': emit"``.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any, ClassVar

from flow.errors import FlowBuildError, FlowTypeError, shorten
from flow.fields import FieldPath


def wrong_type(rule: str, value: object, hint: str = "") -> FlowTypeError:
    """Return the error for a value of a wrong type; `rule` names the parameter and its type."""
    return FlowTypeError(f"{rule}, got {type(value).__name__} {shorten(value)}{hint}")


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
    if callable(value):
        check_function(name, value)
    else:
        check_path(name, value, example, "a function or ")


def check_path(name: str, value: object, example: str, other: str = "") -> None:
    """Raise unless `value` is the path of a field, such as `example`.

    Args:
        name: the parameter.
        value: the value.
        example: a path.
        other: what the value may be else, for the error.

    Raises:
        FlowTypeError: it is not text.
        FlowBuildError: it has an empty name in the path.
    """
    if not isinstance(value, str):
        raise wrong_type(f"{name} must be {other}a field's path such as {example!r}", value)
    if not FieldPath(value).is_valid:
        raise FlowBuildError(f"{name} must be a field's path such as {example!r}, got {value!r}")


def check_items(name: str, value: object) -> None:
    """Raise a `FlowTypeError` unless `value` is a list of items, or another iterable but one item.

    A mapping or a text is one item: iterating over it would read its keys or characters, and over
    a data frame the names of its columns.
    """
    if hasattr(value, "columns"):
        raise wrong_type(f"{name} must be a list of items: frame.to_dict('records')", value)
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise wrong_type(f"{name} must be a list of items, also for one item: [item]", value)


def checked_texts(rule: str, values: object) -> tuple[str, ...]:
    """Return a list of texts as a tuple; `rule` names the parameter and its type, for the error."""
    if isinstance(values, (list, tuple)) and all(isinstance(value, str) for value in values):
        return tuple(values)
    raise wrong_type(rule, values)


def check_flag(name: str, value: object) -> None:
    """Raise a `FlowTypeError` unless `value` is True or False; 0 and 1 are neither."""
    if not isinstance(value, bool):
        raise wrong_type(f"{name} must be True or False", value)


def no_attribute(module: str, name: str, known: list[str], hints: Mapping[str, str]) -> Exception:
    """Return the error of a module that lacks a name, for the module's `__getattr__`.

    Args:
        module: the module.
        name: the name.
        known: the names that the module has.
        hints: for each name of another library, the hint at the name to use here.
    """
    hint = hints.get(name)
    if hint is None:
        # Inspection asks modules for private names, in great number.
        close = [] if name.startswith("_") else get_close_matches(name, known, n=1)
        hint = f"is it {close[0]}?" if close else ""
    text = f"module {module!r} has no {name!r}" + (f": {hint}" if hint else "")
    caller = sys._getframe(2)
    # Of an AttributeError, `from module import name` makes an ImportError without the hint.
    is_import = caller.f_code.co_code[caller.f_lasti] == dis.opmap["IMPORT_FROM"]
    return ImportError(text, name=module) if is_import and hint else AttributeError(text, name=name)


def given_arguments(config: Any) -> dict[str, Any]:
    """Return the arguments of a dataclass that differ from their defaults, those by name last."""
    own = sorted((one for one in fields(config) if one.init), key=lambda one: one.kw_only is True)
    values = ((one.name, getattr(config, one.name), one.default) for one in own)
    return {name: value for name, value, default in values if value != default}


def call_text(config: Any, arguments: Mapping[str, Any]) -> str:
    """Return the call that makes an object from arguments, as the repr of the object."""
    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"{type(config).__name__}({shown})"


class KnownArguments:
    """Base of configuration that refuses arguments with wrong names, and gives the right ones."""

    __slots__ = ()

    WRONG_ARGUMENTS: ClassVar[Mapping[str, str]] = {}
    """For each argument of another library, the hint at the argument to use here."""

    def __new__(cls, *_args: Any, **options: Any) -> Any:
        """Make the object, unless an argument has a name that the class does not have.

        Raises:
            FlowTypeError: for such a name; the error gives the name to use.
        """
        own = signature(cls.__init__).parameters if options else {}
        if not any(parameter.kind is Parameter.VAR_KEYWORD for parameter in own.values()):
            for name in (name for name in options if name not in own):
                hint = cls.WRONG_ARGUMENTS.get(name) or right_names(name, [*own][1:])
                raise FlowTypeError(f"{cls.__name__} has no argument {name!r}: {hint}")
        return super().__new__(cls)


def right_names(name: str, own: list[str]) -> str:
    """Return the hint at the arguments of a class or function, after one with a wrong name."""
    close = get_close_matches(name, own, n=1)
    if close:
        return f"is it {close[0]}=?"
    return f"it has {', '.join(f'{one}=' for one in own)}" if own else "it takes none"
