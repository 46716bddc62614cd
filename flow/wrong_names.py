"""Errors for names of other libraries and misspelt names; each error gives the right name."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
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


class Named:
    """Base of configuration whose arguments have other names in other libraries."""

    __slots__ = ()

    WRONG_ARGUMENTS: ClassVar[Mapping[str, str]] = {}
    """For each argument of another library, the hint at the argument to use here."""

    def __new__(cls, *_args: Any, **options: Any) -> Any:
        """Make the object, unless an argument has a name of another library.

        Raises:
            FlowTypeError: for such a name; the error gives the name to use.
        """
        own = getattr(cls, "__dataclass_fields__", {})
        for name in options:
            if name in cls.WRONG_ARGUMENTS and name not in own:
                raise FlowTypeError(
                    f"{cls.__name__} has no argument {name!r}: {cls.WRONG_ARGUMENTS[name]}"
                )
        return super().__new__(cls)
