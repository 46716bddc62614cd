"""Files that a change reaches: tests import a changed module, or name a changed file."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from docs.architecture.imports import imports_in, reachable

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("flow", "flow_windowing", "recovery", "tests", "benchmarks", "examples", "docs")
EVERYWHERE = ("pyproject.toml", "tests/conftest.py")
"""Files that every test depends on."""


def reached_files(changed: Collection[Path], root: Path = ROOT) -> set[Path]:
    """Return Python files that changed, import a changed module, or name a changed file.

    Imports count through other modules, and in functions. A file that is no module counts by its
    own name, or by the name of a folder above it, in a text of the importer. A module counts so
    too, since programs that a test starts are named and not imported.
    """
    modules = modules_of(root)
    if any(root / name in changed for name in EVERYWHERE):
        return set(modules.values())
    named = defaultdict[str, set[str]](set)
    for name, path in modules.items():
        for text in _names(path, root):
            named[text].add(name)
    graph, start = dict[str, set[str]](), set[str]()
    others = {name for path in changed for name in _names(path, root) if path.suffix != ".py"}
    for name, path in modules.items():
        source = path.read_text("utf-8")
        texts = _texts(source)
        graph[name] = {*_imported(name, source, modules), *(m for t in texts for m in named[t])}
        if path in changed or texts & others:
            start.add(name)
    return {
        path for name, path in modules.items() if name in start or reachable(graph, name) & start
    }


def modules_of(root: Path) -> dict[str, Path]:
    """Return the project's modules by name."""
    found = {"dev": root / "dev.py"}
    for folder in FOLDERS:
        for path in (root / folder).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def _imported(name: str, source: str, modules: Mapping[str, Path]) -> Iterator[str]:
    for found in imports_in(name, source, modules):
        # A module's packages run before it.
        parts = found.imported.split(".")
        outer = (".".join(parts[: n + 1]) for n in range(len(parts)))
        yield from (module for module in outer if module in modules)


def _names(path: Path, root: Path) -> set[str]:
    """Return the texts by which a program may name a file."""
    inside = path.relative_to(root)
    if path.suffix == ".py":
        return {str(inside), ".".join(inside.with_suffix("").parts), path.name}
    return {path.name, str(inside), *inside.parent.parts} - {*FOLDERS}


def _texts(source: str) -> set[str]:
    return {
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
