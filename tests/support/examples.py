"""Examples, and the lines that their docstrings show."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

from examples import word_count

EXAMPLES = Path(word_count.__file__).parent


def docstring_output(name: str) -> list[str]:
    """Return the lines that an example prints according to its docstring."""
    docstring = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text())) or ""
    _, says, after = docstring.partition("\nIt prints")
    assert says, f"the docstring of {name} does not say what it prints"
    _, _, block = after.partition(":\n")
    return textwrap.dedent(block).strip("\n").splitlines()
