"""The commands of benchmarks and pictures that documents name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"python3? ((?:benchmarks|docs)/[\w/]+\.py)")
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
SCRIPTS = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "docs").glob("*.py")]
NAMED = {
    name for file in (*DOCUMENTS, *SCRIPTS) for name in COMMAND.findall(file.read_text("utf-8"))
}
OF_PROJECT = ("benchmarks", "docs", "tests")
"""The packages that are not installed with the product."""


def test_commands_are_found() -> None:
    assert {"benchmarks/live_page.py", "docs/draw_live_page.py"} <= NAMED


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_script_finds_its_modules_from_any_folder(name: str) -> None:
    """Python's path has the folder of a script, not the project's."""
    is_extended = False
    for node in ast.parse((ROOT / name).read_text("utf-8")).body:
        is_extended |= ast.unparse(node).startswith("sys.path.insert(0, ")
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OF_PROJECT:
            assert is_extended, f"{name} imports {node.module}"
