"""Choice of tests and examples for a run, the order of test files, and the line of progress."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import mark_users_of_spark
from tests.support.choosing import choose, part_of
from tests.support.ordering import longest_files_first
from tests.support.progress import Progress
from tests.support.reaching import reached_files
from tests.support.sampling import sampled


def count_tries(**options: int) -> int:
    """Return the number of examples that a property is tried with."""
    tries: list[int] = []

    @sampled(40, **options)
    @given(st.integers())
    def holds(number: int) -> None:
        tries.append(number)

    holds()
    return len(tries)


@pytest.fixture
def profile() -> Iterator[Any]:
    """Loads a hypothesis profile for this test alone."""
    before = settings.get_current_profile_name()
    yield settings.load_profile
    settings.load_profile(before)


def test_an_ordinary_run_tries_a_part_of_the_examples(profile: Any) -> None:
    found = {}
    for name in ("steady", "thorough", "search"):
        profile(name)
        found[name] = count_tries(by_default=8)
    assert found == {"steady": 8, "thorough": 40, "search": 40}


def item(path: str, name: str, *markers: str) -> Any:
    return SimpleNamespace(
        path=path,
        name=name,
        nodeid=f"{path}::{name}",
        get_closest_marker=lambda one: one if one in markers else None,
    )


ITEMS = [item("a", "plain"), item("a", "further", "extended"), item("b", "property", "sampled")]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["plain", "property"]),
        ({"all": True}, ["plain", "further", "property"]),
        ({"lf": True}, ["plain", "further", "property"]),
        ({"args": ["a::further"]}, ["plain", "further", "property"]),
        ({"args": ["a"]}, ["plain", "property"]),
    ],
    ids=str,
)
def test_a_run_leaves_out_extended_tests_unless_asked(
    options: dict[str, Any], names: list[str]
) -> None:
    args = options.pop("args", [])
    chosen = {"all": False, "lf": False, "part": None, "changed": None, **options}
    config: Any = SimpleNamespace(option=SimpleNamespace(**chosen), args=args)
    assert [one.name for one in choose(config, ITEMS)] == names


def test_the_parts_of_eight_commits_together_are_all_that_is_left_out_or_shortened() -> None:
    items = [item("a", str(n), ("extended", "sampled", "spark")[n % 3]) for n in range(90)]
    commits = [f"c0ffee{n}" for n in range(8)]
    parts = [[int(one.name) for one in part_of(items, commit)] for commit in commits]
    assert sorted(itertools.chain(*parts)) == [n for n in range(90) if n % 3 < 2]
    for kind in range(2):
        assert {sum(n % 3 == kind for n in part) for part in parts} == {3, 4}


FILES = {
    "flow/__init__.py": "",
    "flow/clock.py": "",
    "flow/window.py": "from flow import clock",
    "tests/test_window.py": "def test():\n    import flow.window",
    "tests/test_other.py": "import flow",
    "tests/test_program.py": "PROGRAM = 'tests.program'",
    "tests/program.py": "import flow.window",
    "tests/test_page.py": "PAGE = 'page.md'",
    "dev.py": "",
}


@pytest.mark.parametrize(
    ("changed", "reached"),
    [
        ("flow/clock.py", ["clock", "program", "test_program", "test_window", "window"]),
        ("tests/test_other.py", ["test_other"]),
        ("tests/program.py", ["program", "test_program"]),
        ("docs/page.md", ["test_page"]),
        (
            "flow/__init__.py",
            ["__init__", "program", "test_other", "test_program", "test_window", "window"],
        ),
        ("pyproject.toml", sorted(Path(name).stem for name in FILES)),
    ],
)
def test_a_change_reaches_who_imports_or_names_it(
    changed: str, reached: list[str], tmp_path: Path
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = reached_files({tmp_path / changed}, tmp_path)
    assert sorted(path.stem for path in found) == reached


def test_a_test_with_the_session_has_its_marker() -> None:
    found: list[str] = []
    users: list[Any] = [
        SimpleNamespace(fixturenames=names, add_marker=found.append)
        for names in (["tmp_path", "spark"], ["tmp_path"])
    ]
    mark_users_of_spark(users)
    assert found == ["spark"]


def test_slow_files_come_first_with_their_tests_in_order() -> None:
    items = [
        item("a", "plain"),
        *(item("b", f"plain {n}") for n in range(9)),
        item("c", "first", "spark"),
        item("c", "second", "spark"),
        item("c", "third"),
        item("d", "slow", "spark", "slow"),
    ]
    ordered = [(one.path, one.name) for one in longest_files_first(items)]
    assert ordered[:4] == [("d", "slow"), ("c", "first"), ("c", "second"), ("c", "third")]
    assert [path for path, _ in ordered[4:]] == ["a", *"b" * 9]


class Reporter:
    """A terminal reporter with skipped tests of two reasons."""

    def __init__(self) -> None:
        reasons = ["no browser: apt-get install chromium"] * 2 + ["no disk"]
        skipped = [SimpleNamespace(longrepr=("a.py", 1, f"Skipped: {one}")) for one in reasons]
        self.stats = {"skipped": skipped}
        self.lines: list[str] = []
        self.write_line = self.lines.append


def test_a_run_writes_its_progress_and_what_it_could_not_test() -> None:
    reporter, stream = Reporter(), StringIO()
    progress = Progress(cast(Any, reporter), stream)
    progress.pytest_xdist_node_collection_finished(["a"] * 1_200)
    for outcome in ["passed"] * 949 + ["failed"]:
        report: Any = SimpleNamespace(when="call", outcome=outcome, passed=outcome == "passed")
        progress.pytest_runtest_logreport(report)
    assert progress.line(95.2) == "950 of 1,200 tests, 1 failed, 1:35"
    progress.pytest_terminal_summary()
    assert reporter.lines == [
        "not tested here (2): no browser: apt-get install chromium",
        "not tested here (1): no disk",
    ]


def test_a_test_with_a_long_time_limit_is_in_no_part() -> None:
    marks = {"extended": pytest.mark.extended.mark, "timeout": pytest.mark.timeout(1_800).mark}
    soak: Any = SimpleNamespace(nodeid="a::soak", get_closest_marker=marks.get)
    assert [n for n in range(8) if part_of([soak], str(n))] == []
