"""The import graph of the packages: modules, their rooms, and the arrows between rooms.

A room is a folder. Modules directly in the folder of a package are in rooms by role: the vocabulary
that all code shares, what `flow.run` needs, and the thin modules of commands.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("flow", "flow_windowing", "recovery")

BASE, RUN, COMMANDS = "flow.base", "flow.run", "commands"

ROOMS: Mapping[str, str] = {
    **dict.fromkeys(("flow", "flow.execution", "flow.preflight", "flow.background"), RUN),
    **dict.fromkeys(("flow.run", "flow.prepare"), COMMANDS),
    "flow.frames": "flow.frames",
    **dict.fromkeys(("flow.visualize", "flow.visualize.__main__"), COMMANDS),
    **dict.fromkeys(("flow.doctor", "flow.doctor.__main__", "flow.doctor.findings"), COMMANDS),
    "flow.doctor.runtimes": COMMANDS,
    **dict.fromkeys(("recovery.__main__", "recovery.checkpoint_page"), COMMANDS),
}
"""The rooms of modules by role. All other modules directly in ``flow/`` are in the base."""


class When(Enum):
    """The time at which an import runs."""

    LOADING = "when the module is loaded"
    CALLING = "when a function is called"
    TYPING = "when types are checked"


@dataclass(frozen=True)
class Import:
    """An import of one module by another.

    Attributes:
        importer: the module that has the statement.
        imported: the module that it names; a package's own name for names of its ``__init__``.
        when: the time at which the import runs.
    """

    importer: str
    imported: str
    when: When


@cache
def modules() -> Mapping[str, Path]:
    """Return the modules of the packages by name."""
    found: dict[str, Path] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


@cache
def imports() -> tuple[Import, ...]:
    """Return all imports in the packages, also of modules outside of them."""
    return tuple(
        found
        for name, path in modules().items()
        for found in imports_in(name, path.read_text("utf-8"), modules())
    )


def imports_in(module: str, source: str, known: Iterable[str] = ()) -> Iterator[Import]:
    """Yield the imports in a module's source, each once for each statement.

    Args:
        module: the module's name.
        source: the module's text.
        known: names of modules; ``from a import b`` imports ``a.b`` if that is a module.
    """
    names = frozenset(known)
    for node, when in _statements(ast.parse(source), When.LOADING):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, when)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield Import(module, name if name in names else node.module, when)


def _statements(node: ast.AST, when: When) -> Iterator[tuple[ast.AST, When]]:
    for child in ast.iter_child_nodes(node):
        inside = when
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            inside = When.TYPING
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and when is When.LOADING:
            inside = When.CALLING
        yield child, inside
        yield from _statements(child, inside)


def room_of(module: str) -> str:
    """Return the room of a module.

    >>> room_of("flow.errors"), room_of("flow.connectors.files"), room_of("recovery.settings")
    ('flow.base', 'flow.connectors.files', 'recovery')
    """
    if module in ROOMS:
        return ROOMS[module]
    folder = modules()[module].relative_to(ROOT).parent
    return BASE if folder == Path("flow") else ".".join(folder.parts)


def module_graph(*when: When) -> dict[str, set[str]]:
    """Return the modules of the packages that each module imports at the given times."""
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for found in imports():
        if found.when in when and found.imported in graph and found.imported != found.importer:
            graph[found.importer].add(found.imported)
    return graph


def room_graph(*when: When) -> dict[str, set[str]]:
    """Return the other rooms that each room imports at the given times."""
    graph: dict[str, set[str]] = defaultdict(set)
    for importer, imported in module_graph(*when).items():
        graph[room_of(importer)] |= set(map(room_of, imported))
    return {room: rooms - {room} for room, rooms in graph.items()}


def reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Return the nodes to which a path leads from a node; the node itself only on a circle."""
    found: set[str] = set()
    left = list(graph.get(start, ()))
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left += graph.get(node, ())
    return found


def circles(graph: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the groups of nodes that all reach one another, each sorted.

    >>> circles({"a": {"b"}, "b": {"a", "c"}, "c": set()})
    [('a', 'b')]
    """
    reach = {node: reachable(graph, node) for node in graph}
    groups = {
        tuple(sorted(other for other in reach[node] if node in reach.get(other, ())))
        for node in graph
        if node in reach[node]
    }
    return sorted(groups)
