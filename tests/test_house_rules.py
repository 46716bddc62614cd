"""Countable rules of the code: sizes and names of modules, sizes of functions, and docstrings.

`tests/benchmarks/test_journey.py` counts the files that a row crosses.
"""

from __future__ import annotations

import ast
import re

import pytest

from benchmarks.weight import PRODUCT, repeated, weigh, working_tree
from docs.architecture.imports import ROOT, modules

FILES, SHORT_MODULES, REPEATED_NAMES = 380, 12, 15
"""The most files and modules of under 25 lines in the packages, and names of several modules."""
TEST_MODULE_LINES = 600
FUNCTION_LINES = 60
"""Lines of a function without its docstring."""

CLAUSE = re.compile(r"(?:What|Whether|How|Which|Where|Those|Let)\b")
"""The first words of docstrings that are clauses in the place of noun phrases and statements."""

FOLDERS = ("flow", "flow_windowing", "recovery", "tests", "benchmarks", "examples", "docs")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def length(function: FunctionNode) -> int:
    """Return the lines of a function without its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    docstring = function.body[0] if ast.get_docstring(function) is not None else None
    if docstring is not None:
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def clauses(text: str) -> int:
    """Return the number of docstrings in a source that begin with a clause."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = (
        ast.get_docstring(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, documented)
    )
    return sum(CLAUSE.match(docstring or "") is not None for docstring in docstrings)


def test_a_module_is_a_concept_with_a_name_of_its_own() -> None:
    sources = working_tree()
    figures = weigh(sources)[PRODUCT]
    names = [name for of, name in repeated(sources) if of == PRODUCT]
    assert (figures.files <= FILES, figures.short <= SHORT_MODULES) == (True, True), figures
    assert len(names) <= REPEATED_NAMES, names


def test_no_test_module_is_too_long() -> None:
    tests = sorted((ROOT / "tests").rglob("*.py"))
    assert tests
    lengths = {path: path.read_text("utf-8").count("\n") for path in tests}
    assert {path: lines for path, lines in lengths.items() if lines > TEST_MODULE_LINES} == {}


def test_no_function_is_too_long() -> None:
    long = {
        f"{name}.{node.name}": length(node)
        for name, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, FunctionNode) and length(node) > FUNCTION_LINES
    }
    assert long == {}


def test_a_docstring_does_not_count_as_lines_of_its_function() -> None:
    (function,) = ast.parse('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n').body
    assert isinstance(function, ast.FunctionDef)
    assert length(function) == 2


def test_clauses_are_counted() -> None:
    text = '"""What it is."""\ndef f():\n    """Whether so."""\nclass C:\n    """Whatever."""\n'
    assert clauses(text) == 2


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_begin_with_nouns_and_verbs(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    counts = {path: clauses(path.read_text("utf-8")) for path in paths}
    assert {path: count for path, count in counts.items() if count} == {}
