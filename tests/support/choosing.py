"""Choice of the tests of a run: each behaviour once, every test, a part, or what a change reaches.

An ordinary run leaves out tests with the marker ``extended`` and tries a part of the examples of
properties with the marker ``sampled``. These options of pytest choose otherwise:

``--all``           every test, with all examples
``--part COMMIT``   of the tests that an ordinary run leaves out or shortens, the part that belongs
                    to a commit: runs of some commits together have them all
``--changed[=REV]`` of the tests otherwise chosen, those that import a file changed since a commit
``--failed``        tests that failed in the last run
"""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.reaching import reached_files

ROOT = Path(__file__).resolve().parents[2]
PARTS = 8
"""Number of parts of the tests that an ordinary run leaves out."""
PART_SECONDS = 300
"""Greatest time limit of a test in a part; longer ones run with ``--all`` alone."""
LEFT_OUT = ("extended", "sampled")
"""Markers of tests that an ordinary run leaves out or shortens."""
COSTLY = ("cluster", "slow", "spark", "sampled")
"""Markers of tests that take long in a part."""


def add_options(parser: pytest.Parser) -> None:
    """Add the options that choose tests."""
    group = parser.getgroup("choice of tests")
    group.addoption("--all", action="store_true", help="run every test, with all examples")
    group.addoption("--part", metavar="COMMIT", help="run a commit's part of what is left out")
    group.addoption(
        "--changed",
        metavar="REV",
        nargs="?",
        const="HEAD",
        help="run tests that import a file changed since a commit, HEAD by default",
    )


def tries_all_examples(config: pytest.Config) -> bool:
    """Return True if the run tries all examples of properties."""
    return bool(config.option.all or config.option.part)


def choose(config: pytest.Config, items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that the options of a run choose."""
    chosen = list(items)
    if config.option.part:
        chosen = part_of(chosen, config.option.part)
    # Without a cache, pytest has no option for the tests that failed.
    elif not (config.option.all or getattr(config.option, "lf", False) or names_tests(config.args)):
        chosen = [item for item in chosen if not item.get_closest_marker("extended")]
    if config.option.changed:
        reached = reached_files(changed_files(config.option.changed))
        chosen = [item for item in chosen if item.path in reached]
    return chosen


def names_tests(arguments: Sequence[str]) -> bool:
    """Return True if each argument names a single test function."""
    return bool(arguments) and all("::" in argument for argument in arguments)


def part_of(items: Sequence[pytest.Item], commit: str) -> list[pytest.Item]:
    """Return the part that belongs to a commit of the tests that an ordinary run leaves out.

    Tests with the same markers are dealt out in turn, so that parts take about equally long.
    """

    def order(item: pytest.Item) -> tuple[list[bool], int]:
        marks = [item.get_closest_marker(name) is not None for name in COSTLY]
        return marks, zlib.crc32(item.nodeid.encode())

    dealt = sorted(filter(is_left_out, items), key=order)[int(commit, 16) % PARTS :: PARTS]
    chosen = {item.nodeid for item in dealt}
    return [item for item in items if item.nodeid in chosen]


def is_left_out(item: pytest.Item) -> bool:
    """Return True if an ordinary run leaves a test out or shortens it, and a part may have it."""
    limit = item.get_closest_marker("timeout")
    is_long = limit is not None and limit.args[0] > PART_SECONDS
    return not is_long and any(item.get_closest_marker(name) for name in LEFT_OUT)


def changed_files(revision: str) -> set[Path]:
    """Return files that differ from a commit, also those that git does not track yet."""
    found = set[Path]()
    for command in (
        ["diff", "--name-only", "--no-renames", revision, "--"],
        ["ls-files", "--others", "--exclude-standard"],
    ):
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise pytest.UsageError(f"--changed={revision}: {done.stderr.strip()}")
        found |= {ROOT / line for line in done.stdout.splitlines()}
    return found
