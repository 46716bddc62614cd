"""Load a flow by its name: ``module:flow``, or ``module:make_flow("x", n=3)``."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from flow.cli.command_line import FLOW_FORM, CommandError
from flow.dataflow import Dataflow
from flow.errors import FlowError, shorten
from flow.reports.failure_text import describe_failure, users_place, users_trace


def load_flow(text: str) -> Dataflow:
    """Return the flow that ``module:flow`` or ``module:make_flow("x", n=3)`` names.

    The current directory comes first on the module search path.

    Raises:
        CommandError: if there is no such flow, or the code of the module raised.
    """
    target = Target.parse(text)
    module = _import(target.module)
    if not hasattr(module, target.name):
        flows = [name for name, value in vars(module).items() if isinstance(value, Dataflow)]
        there = f"its flows are: {', '.join(flows)}" if flows else "it has no Dataflow at all"
        raise CommandError(f"module {target.module!r} has no {target.name!r}; {there}")
    found, verb = getattr(module, target.name), "is"
    if target.is_call or (callable(found) and not isinstance(found, Dataflow)):
        found, verb = _call(found, target), "returned"
    if not isinstance(found, Dataflow):
        raise CommandError(f"{text} {verb} no Dataflow but {type(found).__name__} {shorten(found)}")
    return found


@dataclass(frozen=True)
class Target:
    """The module and the name of a flow, or of a function that returns one.

    Attributes:
        module: the module's name.
        name: the name in the module.
        is_call: True if the name is written as a call.
        args: the call's arguments by position.
        kwargs: the call's arguments by name.
    """

    module: str
    name: str
    is_call: bool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read ``module:name`` or ``module:name(literals)``.

        Raises:
            CommandError: if the text is neither.

        >>> Target.parse("flights:make_flow('x', n=3)")
        Target(module='flights', name='make_flow', is_call=True, args=('x',), kwargs={'n': 3})
        """
        module, colon, flow = text.partition(":")
        if not all(part.isidentifier() for part in module.split(".")):
            parts = re.split(r"[/\\]", module.removesuffix(".py"))
            named = ".".join(filter(str.isidentifier, parts)) or "examples.flights"
            raise CommandError(
                f"{module!r} is not the name of a module: write {FLOW_FORM}, such as {named}:flow"
            )
        if not colon or not flow.strip():
            raise CommandError(f"{text!r} names no flow: write {FLOW_FORM}, such as {module}:flow")
        try:
            node = ast.parse(flow.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            node = ast.Constant(None)
        match node:
            case ast.Name(id=name):
                return cls(module, name, False, (), {})
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                by_name = {str(word.arg): _literal(word.value) for word in keywords if word.arg}
                if len(by_name) == len(keywords):
                    return cls(module, name, True, tuple(map(_literal, args)), by_name)
        raise CommandError(
            f"{flow!r} is neither a name nor a call: write {FLOW_FORM}, such as {module}:flow "
            f'or {module}:make_flow("x", n=3)'
        )


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError) as error:
        raise CommandError(
            f"{ast.unparse(node)!r} is not a literal: the arguments of a call can be text in "
            "quotes, numbers, True, False, None, and lists, tuples, dicts and sets of them"
        ) from error


def _import(name: str) -> ModuleType:
    try:
        here = os.getcwd()
    except FileNotFoundError:
        raise CommandError("the working directory was removed: use one that exists") from None
    if here not in sys.path:
        sys.path.insert(0, here)
    with _users_code(f"module {name!r}"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise CommandError(f"there is no module {name!r} in {here} or on sys.path") from error


def _call(factory: Any, target: Target) -> Any:
    name = f"{target.module}:{target.name}"
    if not callable(factory):
        raise CommandError(
            f"{name} is {type(factory).__name__} {shorten(factory)}, not a function: "
            "leave out the parentheses"
        )
    try:
        inspect.signature(factory).bind(*target.args, **target.kwargs)
    except (TypeError, ValueError) as error:
        raise CommandError(
            f"{name} cannot be called like that: {error}; give its arguments as literals, "
            f'such as {name}("x", n=3)'
        ) from error
    with _users_code(name):
        return factory(*target.args, **target.kwargs)


@contextlib.contextmanager
def _users_code(what: str) -> Iterator[None]:
    """Raise any exception of a user's code as a `CommandError`."""
    try:
        yield
    except CommandError:
        raise
    except FlowError as error:
        raise CommandError(f"{describe_failure(error)}{users_place(error)}") from error
    except SystemExit as error:
        raise CommandError(f"{what} called sys.exit({error.code!r}) while loading") from error
    except Exception as error:
        raise CommandError(f"{what} failed while loading\n{users_trace(error)}") from error
