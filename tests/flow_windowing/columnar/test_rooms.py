"""Import rules of the rooms of windowing over columns."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COLUMNAR = ROOT / "flow_windowing/columnar"
ROOMS = ["values", "aggregates", "admission", "state", "windows", "storage", "step"]
"""The rooms, each of which imports only itself and those before it."""


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in COLUMNAR.rglob("*.py")}


def imports_of(path: Path) -> set[str]:
    """Return the columnar modules that a module imports, also in functions and for types."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & MODULES.keys()


def room_of(module: str) -> str:
    return module.split(".")[2]


def test_every_folder_is_a_room() -> None:
    assert sorted(one.parent.name for one in COLUMNAR.glob("*/__init__.py")) == sorted(ROOMS)


def test_rooms_import_only_rooms_before_them() -> None:
    against = {
        (module, imported)
        for module, path in MODULES.items()
        for imported in imports_of(path)
        if ROOMS.index(room_of(imported)) > ROOMS.index(room_of(module))
    }
    assert against == set()


def test_no_module_imports_itself_through_others() -> None:
    graph = {module: imports_of(path) - {module} for module, path in MODULES.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)
