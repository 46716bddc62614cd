"""Extension of Sphinx that removes the blank line at the end of examples.

In the Markdown files an empty line ends the expected output of an example.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class ShortBlocks(SphinxTransform):
    """Removes blank lines at the end of blocks of code."""

    default_priority = 5

    def apply(self, **_: object) -> None:
        """Shorten the blocks of one page."""
        for block in self.document.findall(nodes.literal_block):
            text = block.astext().rstrip()
            block.rawsource = text
            block.children = []
            block += nodes.Text(text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the transform."""
    app.add_transform(ShortBlocks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
