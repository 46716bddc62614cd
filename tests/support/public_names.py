"""Public names of the modules that users import, and the list of them in a file.

After a name has been added, removed or renamed on purpose, write the list again:

    python -m tests.support.public_names --write
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests/public_names.txt"
"""The full names that users may import, one a line, sorted."""

CONNECTORS = "flow.connectors"
SHARED = ("__init__", "driver_copies", "formats", "lakehouse", "leveling", "polls", "start_rules")
"""Modules and folders of connectors that are no systems: what connectors share."""


def public_modules() -> list[str]:
    """Return the modules that users import, of connectors all."""
    paths = (ROOT / "flow/connectors").iterdir()
    connectors = {path.stem for path in paths if path.suffix == ".py" or path.is_dir()}
    return [
        *("flow", "flow.operators", "flow.testing", "flow.views", "flow_windowing", "recovery"),
        *("flow.monitoring.lineage", "flow.monitoring.otel", "flow.operators.dead_letters"),
        "flow.testing.connectors",
        *(f"{CONNECTORS}.{name}" for name in sorted(connectors - {"__pycache__", *SHARED})),
    ]


def names_of(module: str) -> list[str]:
    """Return a module's ``__all__``, or the classes and functions that it defines."""
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", None)
    if names is not None:
        return list(names)
    return [
        name
        for name, value in vars(loaded).items()
        if not name.startswith("_")
        and not isinstance(value, TypeVar)
        and getattr(value, "__module__", None) == module
    ]


def offered() -> list[str]:
    """Return the full names that the packages offer now, sorted."""
    return sorted(f"{module}.{name}" for module in public_modules() for name in names_of(module))


def listed() -> list[str]:
    """Return the full names in the file."""
    return FILE.read_text("utf-8").splitlines()


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.support.public_names --write")
    FILE.write_text("\n".join(offered()) + "\n", "utf-8")
