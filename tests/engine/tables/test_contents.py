"""Contents of tables, compared with their definition."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flow.engine.tables.contents import Change, Contents, History, Newest

KEYS = st.sampled_from("abc")
VALUES = st.one_of(st.none(), st.integers(0, 9))
TIMES = st.integers(0, 20)
CHANGES = st.lists(st.builds(Change, KEYS, VALUES, TIMES), max_size=30)


def newest_by_definition(changes: list[Change], key: str) -> Any:
    return next((one.value for one in reversed(changes) if one.key == key), None)


def as_of_by_definition(changes: list[Change], key: str, at_us: int) -> Any:
    """The value of the greatest time up to `at_us`; of equal times the later arrival."""
    known = [(one.at_us, n, one.value) for n, one in enumerate(changes) if one.key == key]
    return max((one for one in known if one[0] <= at_us), default=(0, 0, None))[2]


@given(CHANGES)
def test_the_newest_value_of_a_key_is_that_of_its_last_change(changes: list[Change]) -> None:
    contents = Newest()
    contents.apply(changes)
    for key in "abc":
        assert contents.view().get(key) == newest_by_definition(changes, key)


@given(CHANGES)
def test_a_history_has_the_value_of_each_time(changes: list[Change]) -> None:
    contents = History()
    contents.apply(changes)
    for at_us in range(-1, 22):
        view = contents.view(at_us)
        expected = {key: as_of_by_definition(changes, key, at_us) for key in "abc"}
        assert {key: view.get(key) for key in "abc"} == expected
        assert dict(view) == {key: one for key, one in expected.items() if one is not None}
        assert len(view) == len(dict(view))
        assert all((key in view) == (expected[key] is not None) for key in "abc")
    newest = {key: as_of_by_definition(changes, key, 20) for key in "abc"}
    assert dict(contents.view()) == {key: one for key, one in newest.items() if one is not None}


@given(CHANGES, st.integers(1, 10))
def test_a_bounded_history_starts_at_its_bound(changes: list[Change], keep_us: int) -> None:
    ordered = sorted(changes, key=lambda one: one.at_us)
    contents = History(keep_us)
    contents.apply(ordered)
    for key in "abc":
        last_us = max((one.at_us for one in ordered if one.key == key), default=0)
        for at_us in range(last_us - keep_us, 22):
            assert contents.view(at_us).get(key) == as_of_by_definition(ordered, key, at_us)
        earlier = [at_us for at_us in contents.times.get(key, ()) if at_us <= last_us - keep_us]
        assert len(earlier) <= 1, "the value that holds at the bound"


@given(st.lists(CHANGES, max_size=5), st.sampled_from([Newest(), History(), History(5)]))
def test_sets_of_changes_are_as_all_at_once(sets: list[list[Change]], empty: Contents) -> None:
    whole, in_parts = empty.copy(), empty.copy()
    whole.apply([change for changes in sets for change in changes])
    for changes in sets:
        in_parts.apply(changes)
    assert whole == in_parts
    rebuilt = empty.copy()
    rebuilt.apply(whole.changes())
    assert rebuilt == whole
    assert list(rebuilt.changes()) == list(whole.changes())


@given(
    st.lists(st.builds(Change, KEYS, st.one_of(st.none(), st.binary()), TIMES), max_size=30),
    st.sampled_from([Newest(), History(), History(5)]),
)
def test_the_growth_adds_up_to_the_kept_size(changes: list[Change], empty: Contents) -> None:
    contents = empty.copy()
    grown = sum(contents.apply([change]) for change in changes)
    assert grown == sum(len(key) + len(value or b"") for key, value, _ in contents.changes())


def test_a_copy_changes_on_its_own() -> None:
    for contents in (Newest(), History()):
        contents.apply([Change("a", 1)])
        contents.copy().apply([Change("a", 2), Change("b", 3)])
        assert dict(contents.view()) == {"a": 1}
