"""Extension of Sphinx that links types to their public names, and checks that all have an entry.

A class is documented under the name that users import, such as `flow.Stream`, and its annotations
name the module that defines it, such as `flow.dataflow.Stream`. Docstrings use the last part alone.
"""

from __future__ import annotations

import importlib
import inspect
from functools import cache
from types import ModuleType
from typing import Any, Generic

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.inspect import stringify_signature

MODULES = (
    "flow",
    "flow.operators",
    "flow.operators.dead_letters",
    "flow.testing",
    "flow.testing.connectors",
    "flow.connectors.dataframe",
    "flow.connectors.delta",
    "flow.connectors.files",
    "flow.connectors.iceberg",
    "flow.connectors.items",
    "flow.connectors.kafka",
    "flow.connectors.sink",
    "flow.connectors.source",
    "flow.connectors.sql",
    "flow.connectors.stdio",
    "flow.connectors.then",
    "flow.monitoring.lineage",
    "flow.monitoring.otel",
    "flow.views",
    "flow_windowing",
    "recovery",
)
"""The modules that users import."""

PACKAGES = ("flow", "flow_windowing", "recovery")

log = logging.getLogger(__name__)


def names_of(module: ModuleType) -> list[str]:
    """Return the public names of a module: ``__all__``, or its own classes and functions."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    own = vars(module).items()
    return [
        name
        for name, value in own
        if not name.startswith("_")
        and callable(value)
        and getattr(value, "__module__", None) == module.__name__
    ]


@cache
def public_names() -> dict[str, Any]:
    """Return the public objects by their full public names."""
    modules = [importlib.import_module(name) for name in MODULES]
    return {
        f"{module.__name__}.{name}": getattr(module, name)
        for module in modules
        for name in names_of(module)
    }


@cache
def other_names() -> dict[str, list[str]]:
    """Return full public names by the names that stand for them in annotations and docstrings."""
    others: dict[str, list[str]] = {}
    for public, value in public_names().items():
        defined = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
        for other in {defined, public.rpartition(".")[2]}:
            others.setdefault(other, []).append(public)
    return others


def public_name(target: str, inside: str | None) -> str | None:
    """Return the full public name for a reference's target, or None if there is not exactly one.

    Args:
        target: the name in the reference, which may end with a member: ``EventClock.build``.
        inside: the module whose page has the reference; its names go first.
    """
    owner, dot, member = target.rpartition(".")
    for name, rest in ((target, ""), (owner, dot + member)):
        found = other_names().get(name, [])
        near = [public for public in found if inside and public.startswith(f"{inside}.")]
        if len(near or found) == 1:
            return (near or found)[0] + rest
    return None


def exists(target: str) -> bool:
    """Return True if a dotted name leads to an object of the packages, public or not."""
    parts = target.split(".")
    if parts[0] not in PACKAGES:
        return False
    for length in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Element | None:
    """Link a reference that Sphinx does not resolve, if its target stands for a public name.

    A target that exists and is not public, such as a type variable, stays text. Sphinx warns of all
    others.
    """
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    name = public_name(target, node.get("py:module"))
    if name is None:
        return content if exists(target) else None
    page, domain, builder = node["refdoc"], env.domains["py"], app.builder
    return domain.resolve_xref(env, page, builder, "obj", name, node, content)


def drop_internal_bases(
    app: Sphinx, name: str, cls: type, options: object, bases: list[type]
) -> None:
    """Show the bases of a class that are public, or of another package."""
    del app, name, cls, options
    shown = [base for base in bases if is_shown(base)]
    bases[:] = shown


def is_shown(base: Any) -> bool:
    """Return True if users need to know a base of a class."""
    origin = getattr(base, "__origin__", base)
    if origin in (object, Generic):
        return False
    inside = str(getattr(origin, "__module__", "")).split(".")[0] in PACKAGES
    return not inside or any(origin is value for value in public_names().values())


def skip_field(
    app: Sphinx, kind: str, name: str, value: object, skip: bool, options: object
) -> bool | None:
    """Leave out the fields of named tuples: the docstring of the class describes them."""
    del app, kind, name, skip, options
    return True if str(getattr(value, "__doc__", "")).startswith("Alias for field ") else None


def class_signature(
    app: Sphinx,
    what: str,
    name: str,
    value: Any,
    options: object,
    arguments: str | None,
    returns: str | None,
) -> tuple[str, None] | None:
    """Show the arguments of ``__init__``, where Sphinx shows the ``*args`` of a ``__new__``."""
    del app, name, options, returns
    if what != "class" or not arguments or "**options" not in arguments:
        return None
    own = inspect.signature(value.__init__)
    parameters = [one for one in own.parameters.values() if one.name != "self"]
    own = own.replace(parameters=parameters)
    return stringify_signature(own, show_annotation=False, show_return_annotation=False), None


def check(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of each public name without an entry in the reference."""
    del app
    entries = env.domains["py"].objects  # type: ignore[attr-defined]
    for name in sorted(set(public_names()) - set(entries)):
        log.warning("%s is public and has no entry in docs/reference/api", name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the extension."""
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-bases", drop_internal_bases)
    app.connect("autodoc-skip-member", skip_field)
    app.connect("autodoc-process-signature", class_signature)
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
