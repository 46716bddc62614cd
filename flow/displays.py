"""Displays of objects in notebooks, and by ``print``.

A notebook asks an object for its display by the method ``_repr_mimebundle_``. The modules that draw
are above the classes that are drawn, so a module of `flow.reports` registers its function here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Bundle: TypeAlias = dict[str, str]
"""The forms of an object by media type, such as ``text/markdown``."""

_DISPLAYS: dict[type, Callable[[Any], Bundle]] = {}
_TEXTS: dict[type, Callable[[Any], str]] = {}


class NotebookObject:
    """An object with a display in notebooks, and a text for ``print``."""

    def __str__(self) -> str:
        text = _TEXTS.get(type(self), repr)
        return text(self)

    def _repr_mimebundle_(self, **options: Any) -> Bundle:  # noqa: ARG002  (Jupyter's signature)
        """Return the forms of the object for a notebook; without a display, its text."""
        plain = {"text/plain": str(self)}
        display = _DISPLAYS.get(type(self))
        return plain if display is None else {**plain, **display(self)}


def display_as(kind: type[NotebookObject], display: Callable[[Any], Bundle]) -> None:
    """Register the function that returns the display of the objects of a class."""
    _DISPLAYS[kind] = display


def print_as(kind: type[NotebookObject], text: Callable[[Any], str]) -> None:
    """Register the function that returns the text of the objects of a class, in place of repr."""
    _TEXTS[kind] = text
