"""Choice of tests and examples for a run, and the order of test files."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import asks_for_faults, mark_users_of_spark
from tests.support.ordering import longest_files_first
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


@pytest.mark.parametrize(
    ("expression", "asks"),
    [("", False), ("faults", True), ("faults and sampled", True), ("spark and not faults", False)],
)
def test_faults_are_asked_for_by_their_marker(expression: str, asks: bool) -> None:
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr=expression))
    assert asks_for_faults(config) is asks


def item(path: str, name: str, *markers: str) -> Any:
    return SimpleNamespace(
        path=path, name=name, get_closest_marker=lambda one: one if one in markers else None
    )


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
