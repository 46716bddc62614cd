"""Errors for names of other libraries and misspelt names; each error gives the right name."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any, ClassVar

from flow.errors import FlowTypeError


def no_attribute(module: str, name: str, known: list[str], hints: Mapping[str, str]) -> Exception:
    """Return the error of a module that lacks a name.

    Args:
        module: the module.
        name: the name.
        known: the names that the module has.
        hints: for each name of another library, the hint at the name to use here.
    """
    hint = hints.get(name)
    if hint is None:
        close = get_close_matches(name, known, n=1)
        hint = f"is it {close[0]}?" if close else ""
    return AttributeError(
        f"module {module!r} has no {name!r}" + (f": {hint}" if hint else ""), name=name
    )


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
                hint = cls.WRONG_ARGUMENTS.get(name) or _right_names(name, [*own][1:])
                raise FlowTypeError(f"{cls.__name__} has no argument {name!r}: {hint}")
        return super().__new__(cls)


def _right_names(name: str, own: list[str]) -> str:
    """Return the hint at the arguments of a class, after one with a wrong name."""
    close = get_close_matches(name, own, n=1)
    if close:
        return f"is it {close[0]}=?"
    return f"it has {', '.join(f'{one}=' for one in own)}" if own else "it takes none"
