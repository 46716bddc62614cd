"""The site of the docs: its reference has every public name, and its links are checked."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages.links import broken, external
from tests.support.public_names import listed, public_modules

DOCS = Path(__file__).resolve().parents[1] / "docs"
DIRECTIVE = re.compile(r"^\.\. (currentmodule|auto\w+):: (\S+)$", re.MULTILINE)


PAGES = sorted(DOCS.rglob("*.md"))
PAGE_LINES = 250
BLOCK = re.compile(r"^ *```(python|py)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
PEERS = ("bytewax", "quix_streams", "kafka_streams", "flink", "spark")
NOT_RUN = {
    "explanation/nexmark.md",
    "how_to/read_a_checkpoint.md",
    "how_to/upgrading.md",
    "how_to/views.md",
    "how_to/write_a_connector.md",
    "reference/kafka.md",
    "reference/spark.md",
}
"""Pages with code that needs a cluster, a server, a checkpoint, or the events of a benchmark."""


def blocks_not_run() -> Iterator[tuple[str, str]]:
    """Return the page and the text of each block of this library's code that no test runs."""
    for page in PAGES:
        name = page.relative_to(DOCS).as_posix()
        for kind, text in BLOCK.findall(page.read_text("utf-8")):
            of_a_peer = kind == "py" and name.startswith("coming_from/")
            of_the_tutorial = name.startswith("tutorial/") and re.match(r"# \w+\.py", text)
            if not (text.startswith(">>> ") or of_a_peer or of_the_tutorial):
                yield name, text


def imports_in(text: str) -> Iterator[tuple[str, str | None]]:
    """Return the modules, and the names of them, that a program imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((str(node.module), alias.name) for alias in node.names)


def test_only_pages_with_a_reason_have_code_that_is_not_run() -> None:
    assert {name for name, _ in blocks_not_run()} == NOT_RUN


def test_code_that_is_not_run_imports_existing_names() -> None:
    found = [one for _, text in blocks_not_run() for one in imports_in(text)]
    assert len(found) > 5
    for module, name in found:
        loaded = importlib.import_module(module)
        assert name is None or hasattr(loaded, name), f"{module}.{name}"


def test_pages_are_short() -> None:
    lengths = {page: page.read_text("utf-8").count("\n") for page in PAGES}
    assert {page: lines for page, lines in lengths.items() if lines > PAGE_LINES} == {}


@pytest.mark.parametrize("peer", PEERS)
def test_a_page_of_another_library_has_the_flow_twice_and_sources(peer: str) -> None:
    text = (DOCS / f"coming_from/{peer}.md").read_text("utf-8")
    there, here = re.findall(r"^:::\{container\} (?:there|here)\n(.*?)^:::$", text, re.S | re.M)
    assert re.search(r"^```(?:py|java)$", there, re.MULTILINE)
    assert here.split("```python\n")[1].startswith(">>> ")
    parts = ["The same flow", "Words", "What differs in meaning", "What is missing here"]
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == parts
    assert re.search(r"^\[[\w-]+\]: https://", text, re.MULTILINE)


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
    assert sorted(names_in_the_reference()) == listed()


def test_the_build_checks_the_names_of_all_public_modules() -> None:
    """The extension is read, not imported: it needs Sphinx."""
    tree = ast.parse((DOCS / "pages/public_names.py").read_text("utf-8"))
    (modules,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODULES"
    ]
    assert sorted(modules) == sorted(public_modules())


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
