"""Extension of Sphinx for links to files beside ``docs/``, such as an example or the README.

On the site such a link is the path of the file, as text: the site holds the pages alone.
"""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from sphinx.addnodes import download_reference, pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


class OutsideLinks(SphinxTransform):
    """Replaces links that lead out of ``docs/`` by the path of the file in the project."""

    default_priority = 5

    def apply(self, **_: object) -> None:
        """Replace the links of one page."""
        page = Path(self.env.doc2path(self.env.docname))
        for link in [
            *self.document.findall(pending_xref),
            *self.document.findall(download_reference),
        ]:
            target = str(link.get("reftarget", ""))
            # The parser takes the ending of a Markdown file off, and makes its path absolute.
            for name in (target, f"{target}.md"):
                file = (page.parent / name).resolve()
                if "/" in name and file.exists() and is_outside(file):
                    link.replace_self(as_path(link, file.relative_to(ROOT).as_posix()))
                    break


def is_outside(file: Path) -> bool:
    """Return True if a file of the project is no page, or no file of ``docs/``."""
    return not file.is_relative_to(DOCS) or file.suffix == ".py"


def as_path(link: nodes.Element, path: str) -> list[nodes.Node]:
    """Return the text of a link, with the path behind it unless the text is the path."""
    text = link.astext()
    shown = nodes.literal(text=path)
    if path.endswith(text):
        return [shown]
    return [*link.children, nodes.Text(" ("), shown, nodes.Text(")")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the transform."""
    app.add_transform(OutsideLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
