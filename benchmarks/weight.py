"""Size of the code by room: lines of code, files, short modules, and repeated file names.

Run with ``python3 dev.py weight [--against COMMIT]``; the standard library is enough. Blank lines,
comments and strings that are statements, such as docstrings, are no lines of code. A room is a
folder of a package; tests, benchmarks, docs and examples are a room each. The columns:

*lines*
    Lines of code.
*files*
    Python files.
*short*
    Modules of fewer than 25 lines, without ``__init__`` and ``__main__``.
*twice*
    Modules whose name occurs again, in the packages or in the same other room, without these two.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
import textwrap
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("flow", "flow_windowing", "recovery")
OTHERS = ("tests", "benchmarks", "docs", "examples")
DIVIDED = ("flow/engine", "flow/connectors")
"""Folders whose subfolders are rooms."""
PRODUCT = "product"
SHORT = 25

_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}

Sources = Mapping[PurePosixPath, str]
"""The text of each Python file, by its path in the project."""


class Figures(NamedTuple):
    """The figures of a room, or of several."""

    lines: int = 0
    files: int = 0
    short: int = 0
    twice: int = 0

    def plus(self, other: Figures) -> Figures:
        """Return the sum of each figure."""
        return Figures(*(mine + its for mine, its in zip(self, other, strict=True)))


@cache
def code_lines(source: str) -> int:
    r"""Return the number of lines with code.

    >>> code_lines("'''Docstring.'''\n\nx = [  # comment\n    1,\n]\n")
    3
    """
    texts = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    code = (range(one.start[0], one.end[0] + 1) for one in tokens if one.type not in _NO_CODE)
    return len(set().union(*code) - texts)


def room_of(path: PurePosixPath) -> str:
    """Return the room of a file.

    >>> room_of(PurePosixPath("flow/engine/spark/session/session.py"))
    'flow/engine/spark'
    """
    folders = path.parts[:-1]
    if folders[0] in OTHERS:
        return folders[0]
    return "/".join(folders[: 3 if "/".join(folders[:2]) in DIVIDED else 2])


def sum_of(path: PurePosixPath) -> str:
    """Return the sum that a file counts in: `PRODUCT` or one of `OTHERS`."""
    return path.parts[0] if path.parts[0] in OTHERS else PRODUCT


def is_named(path: PurePosixPath) -> bool:
    """Return True unless Python itself prescribes the name, as ``__init__``."""
    return not path.stem.startswith("__")


def repeated(paths: Iterable[PurePosixPath]) -> Counter[tuple[str, str]]:
    """Return the number of places of each name that occurs more than once in a sum."""
    places = Counter((sum_of(path), path.name) for path in paths if is_named(path))
    return Counter({name: count for name, count in places.items() if count > 1})


def weigh(sources: Sources) -> dict[str, Figures]:
    """Return the figures of each room, and of the product."""
    places = repeated(sources)
    found: defaultdict[str, Figures] = defaultdict(Figures)
    for path, source in sources.items():
        lines = code_lines(source)
        is_short = lines < SHORT and is_named(path)
        figures = Figures(lines, 1, is_short, (sum_of(path), path.name) in places)
        for room in {room_of(path), sum_of(path)}:
            found[room] = found[room].plus(figures)
    return dict(found)


def table(now: Sources, before: Sources) -> str:
    """Return a line for each room and the product, with the differences to the figures before."""
    new, old = weigh(now), weigh(before)
    lines = [f"{'room':28}{''.join(f'{title:>17}' for title in Figures._fields)}"]
    for room in sorted({*new, *old}, key=lambda room: (room in (PRODUCT, *OTHERS), room)):
        pairs = zip(new.get(room, Figures()), old.get(room, Figures()), strict=True)
        lines.append(f"{room:28}{''.join(f'{with_difference(*pair):>17}' for pair in pairs)}")
    return "\n".join(lines)


def with_difference(new: int, old: int) -> str:
    """Return a figure and its difference to an earlier one.

    >>> with_difference(1200, 1207), with_difference(5, 5)
    ('1,200 (-7)', '5')
    """
    return f"{new:,} ({new - old:+,})" if new != old else f"{new:,}"


def names(now: Sources, before: Sources) -> str:
    """Return the product's module names that occur more than once, with their number of places."""
    places, then = (
        {name: count for (of, name), count in repeated(sources).items() if of == PRODUCT}
        for sources in (now, before)
    )
    listed = (f"{name} {places[name]}" for name in sorted(places, key=lambda n: (-places[n], n)))
    count = with_difference(len(places), len(then))
    return textwrap.fill(f"{count} names in several places: {', '.join(listed)}", 100)


def working_tree(root: Path = ROOT) -> Sources:
    """Return the files of the working tree, with new ones and without those that Git ignores."""
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").decode()
    paths = [PurePosixPath(name) for name in sorted(set(listed.split("\0")))]
    there = (path for path in paths if is_weighed(path) and (root / path).exists())
    return {path: (root / path).read_text("utf-8") for path in there}


def files_of(commit: str, root: Path = ROOT) -> Sources:
    """Return the files of a commit."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(git(root, "archive", commit))) as archive:
        for member in archive:
            path, content = PurePosixPath(member.name), archive.extractfile(member)
            if content is not None and is_weighed(path):
                found[path] = content.read().decode()
    return found


def is_weighed(path: PurePosixPath) -> bool:
    """Return True for Python files of the packages and of the other rooms."""
    return path.suffix == ".py" and path.parts[0] in {*PACKAGES, *OTHERS}


def git(root: Path, *arguments: str) -> bytes:
    """Return the output of Git; a failure ends the program with the reason that Git gives."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.decode().strip()}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table and the names that occur more than once."""
    parser = argparse.ArgumentParser(
        prog="dev.py weight",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--against", metavar="COMMIT", help="show the differences to a commit")
    against = parser.parse_args(arguments).against
    now = working_tree()
    before = files_of(against) if against else now
    print(table(now, before), names(now, before), sep="\n")


if __name__ == "__main__":
    main()
