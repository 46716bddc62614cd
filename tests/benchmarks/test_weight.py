"""Sizes of rooms: lines of code, files, short modules, repeated names, and their differences."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

import pytest

from benchmarks.weight import Figures, code_lines, files_of, names, table, weigh, working_tree

LONG = "x = 1\n" * 25
TREE = {
    PurePosixPath(path): text
    for path, text in {
        "flow/__init__.py": "x = 1\n",
        "flow/engine/spark/session/logs.py": LONG,
        "flow/engine/state/store.py": "x = 1\n",
        "flow_windowing/rules/store.py": LONG,
        "tests/engine/store.py": LONG,
        "tests/engine/test_store.py": "x = 1\n",
    }.items()
}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('"""A docstring\n\nof three lines."""\nx = 1\n', 1),
        ('def f():\n    """A docstring."""\n', 1),
        ('class A:\n    x: int = 1\n    """A described attribute."""\n', 2),
        ("x = 1  # a comment\n\n# another\n", 1),
        ('x = """a string\n\n# of a program\n"""\n', 4),
        ("x = [\n    # a comment\n    1,\n]\n", 3),
    ],
)
def test_blanks_comments_and_statements_that_are_strings_are_no_code(
    source: str, lines: int
) -> None:
    assert code_lines(source) == lines


def test_a_room_sums_its_files_and_names_repeat_within_the_product_or_the_tests() -> None:
    assert weigh(TREE) == {
        "flow": Figures(lines=1, files=1),
        "flow/engine/spark": Figures(lines=25, files=1),
        "flow/engine/state": Figures(lines=1, files=1, short=1, twice=1),
        "flow_windowing/rules": Figures(lines=25, files=1, twice=1),
        "product": Figures(lines=52, files=4, short=1, twice=2),
        "tests": Figures(lines=26, files=2, short=1),
    }
    assert names(TREE, {}) == "1 (+1) names in several places: store.py 2"


def test_the_table_shows_differences_also_of_rooms_that_are_gone() -> None:
    before = {**TREE, PurePosixPath("flow/engine/files/paths.py"): LONG}
    lines = [line.split() for line in table(TREE, before).splitlines()]
    assert lines[0] == ["room", "lines", "files", "short", "twice"]
    assert ["flow/engine/files", "0", "(-25)", "0", "(-1)", "0", "0"] in lines
    assert ["product", "52", "(-25)", "4", "(-1)", "1", "2"] in lines


def test_new_files_count_and_a_commit_is_read_without_a_checkout(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)

    package = tmp_path / "flow"
    package.mkdir()
    (package / "kept.py").write_text("x = 1\n")
    (package / "moved.py").write_text("y = 1\n")
    (package / "py.typed").touch()
    (tmp_path / "setup.py").touch()
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    (package / "moved.py").rename(package / "new.py")
    (package / "ignored.py").touch()

    kept, moved, new = (PurePosixPath(f"flow/{name}.py") for name in ("kept", "moved", "new"))
    assert files_of("HEAD", tmp_path) == {kept: "x = 1\n", moved: "y = 1\n"}
    assert working_tree(tmp_path) == {kept: "x = 1\n", new: "y = 1\n"}
    with pytest.raises(
        SystemExit, match="git archive nothing: fatal: not a valid object name: nothing"
    ):
        files_of("nothing", tmp_path)
