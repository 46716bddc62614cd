"""The part of the package's metadata that pyproject.toml cannot state: the description.

A package index shows the README on its own, where a relative link leads nowhere.
"""

from __future__ import annotations

import re
from pathlib import Path

NOTE = """\
Paths in this text are those of files in the source distribution, which also has `dev.py`.
"""


def description() -> str:
    """Return the README with the paths of files in the place of relative links."""
    text = (Path(__file__).parent / "README.md").read_text("utf-8")
    relative = r"\[([^\]]+)\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)"
    text = re.sub(rf"!{relative}\n+", "", text)
    text = re.sub(rf"\({relative}\)", r"(\1: `\2`)", text)
    text = re.sub(relative, r"\1 (`\2`)", text)
    title, lead, rest = text.split("\n\n", 2)
    return f"{title}\n\n{lead}\n\n{NOTE}\n{rest}"


if __name__ == "__main__":
    from setuptools import setup

    setup(long_description=description(), long_description_content_type="text/markdown")
