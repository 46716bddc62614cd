"""The site of the docs: its reference has every public name, and its links are checked."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from docs.pages.links import broken, external
from tests.test_import_rules import PUBLIC

DOCS = Path(__file__).resolve().parents[1] / "docs"
DIRECTIVE = re.compile(r"^\.\. (currentmodule|auto\w+):: (\S+)$", re.MULTILINE)


def names_in_the_reference() -> list[str]:
    """Return the full names of all entries, in the order of the pages."""
    names = []
    for page in sorted((DOCS / "reference/api").glob("*.md")):
        module = ""
        for directive, argument in DIRECTIVE.findall(page.read_text("utf-8")):
            if directive == "currentmodule":
                module = argument
            else:
                names.append(f"{module}.{argument}")
    return names


def test_every_public_name_has_one_entry_in_the_reference() -> None:
    public = sorted(f"{module}.{name}" for module, names in PUBLIC.items() for name in names)
    assert len(public) > 150
    assert sorted(names_in_the_reference()) == public


def test_the_build_checks_the_names_of_all_public_modules() -> None:
    """The extension is read, not imported: it needs Sphinx."""
    tree = ast.parse((DOCS / "pages/public_names.py").read_text("utf-8"))
    (modules,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODULES"
    ]
    assert sorted(modules) == sorted(PUBLIC)


def test_links_to_missing_files_and_ids_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1> <a href="#top">1</a> <a href="b.html#here">2</a>'
        '<a href="#gone">3</a> <a href="b.html#gone">4</a> <img src="no.svg">'
        '<a href="https://example.com/x">5</a>'
    )
    (tmp_path / "b.html").write_text('<p id="here"></p>')
    assert list(broken(tmp_path)) == [
        "a.html: #gone leads nowhere",
        "a.html: b.html#gone leads nowhere",
        "a.html: no.svg leads nowhere",
    ]
    assert external(tmp_path) == ["https://example.com/x"]
