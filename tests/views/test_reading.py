"""Reads of a view: keys, ranges, pages, odd keys, and wrong queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.views import Entry, Page, QueryError, UnknownViewError, View, ViewError, open
from tests.support.sampling import sampled
from tests.support.views import ViewRuns, hour

ODD_KEYS = ["", "'", '"; DROP TABLE views; --', "a\0", "a\0b", "%", "é", "\uff45", "😀", "/", "\n"]


@pytest.fixture
def runs(tmp_path: Path) -> ViewRuns:
    return ViewRuns(tmp_path)


@pytest.fixture
def by_window(runs: ViewRuns) -> View:
    """Three hours of two keys."""
    runs.options = {"by": "window"}
    runs.epoch([(key, (hour(n), f"{key}{n}")) for n in range(3) for key in "ab"])
    return runs.view


def pages(read: Any, **arguments: Any) -> list[list[Any]]:
    """Return the values of each page of a range."""
    found: list[list[Any]] = []
    after = None
    while True:
        page: Page = read(after=after, **arguments)
        found.append(values(page))
        after = page.next
        if after is None:
            return found


def values(page: Page) -> list[Any]:
    return [entry.value for entry in page.entries]


def test_an_answer_names_its_epoch_and_the_epoch_of_the_value(runs: ViewRuns) -> None:
    runs.epoch([("ann", 1)])
    runs.epoch([("bob", 2)])
    answer = runs.view.get("ann")
    assert (answer.view, answer.run_id, answer.epoch) == ("totals", "run", 1)
    assert answer.entry == Entry("ann", 1, 0)
    assert runs.view.get("cid").value is None


def test_odd_keys_are_keys_as_any_other(runs: ViewRuns) -> None:
    runs.epoch([(key, key) for key in ODD_KEYS])
    for key in ODD_KEYS:
        assert runs.view.get(key).value == key
    assert [entry.key for entry in runs.view.range().entries] == sorted(ODD_KEYS)
    runs.epoch([(key, None) for key in ODD_KEYS])
    assert runs.content() == {}


def test_a_range_of_keys_has_the_start_and_not_the_stop(runs: ViewRuns) -> None:
    runs.epoch([(key, key) for key in "edcba"])
    assert values(runs.view.range("b", "d")) == ["b", "c"]
    assert values(runs.view.range("d")) == ["d", "e"]
    assert values(runs.view.range(stop="b")) == ["a"]
    assert values(runs.view.range("d", "b")) == []


@sampled(100, by_default=25)
@given(keys=st.sets(st.text(st.characters(codec="utf-8"), max_size=3)), limit=st.integers(1, 4))
def test_pages_of_keys_have_each_key_once(
    keys: set[str], limit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    runs = ViewRuns(tmp_path_factory.mktemp("view"))
    runs.epoch([(key, key) for key in keys])
    found = pages(runs.view.range, limit=limit)
    assert [key for page in found for key in page] == sorted(keys)
    assert {len(page) for page in found[:-1]} <= {limit}
    runs.stop()


def test_windows_of_a_key_are_sorted_by_time(by_window: View) -> None:
    assert values(by_window.windows("a")) == ["a0", "a1", "a2"]
    assert values(by_window.windows("a", since="2024-05-01T01:00Z")) == ["a1", "a2"]
    assert values(by_window.windows("a", until="2024-05-01T01:00Z")) == ["a0"]
    assert pages(by_window.windows, key="a", limit=2) == [["a0", "a1"], ["a2"]]


def test_windows_of_all_keys_are_sorted_by_time(by_window: View) -> None:
    assert values(by_window.windows()) == ["a0", "b0", "a1", "b1", "a2", "b2"]
    first_hour = by_window.windows(until="2024-05-01T01:00Z")
    assert values(first_hour) == ["a0", "b0"]
    assert pages(by_window.windows, limit=4) == [["a0", "b0", "a1", "b1"], ["a2", "b2"]]
    assert pages(by_window.range, limit=4) == [["a0", "a1", "a2", "b0"], ["b1", "b2"]]


def test_one_window_is_the_newest_or_the_one_that_opens_at_a_time(by_window: View) -> None:
    assert by_window.get("a").value == "a2"
    answer = by_window.get("a", hour(1).open_time)
    assert answer.entry is not None
    assert answer.entry.window is not None
    assert answer.entry.window.close_time == hour(1).close_time
    assert answer.value == "a1"
    assert by_window.get("a", "2024-05-01T00:30Z").value is None


def test_a_view_by_key_shows_the_window_of_its_newest_value(runs: ViewRuns) -> None:
    runs.epoch([("a", (hour(2), 5)), ("a", (hour(1), 4))])
    (entry,) = runs.view.range().entries
    assert entry.value == 4
    assert entry.window is not None
    assert entry.window.window_id == 1


def test_a_page_goes_on_where_the_page_before_ended_in_a_changed_view(runs: ViewRuns) -> None:
    runs.epoch([(key, key) for key in "abcd"])
    page = runs.view.range(limit=2)
    runs.epoch([("b", None), ("aa", "aa"), ("c", "new")])
    later = runs.view.range(limit=2, after=page.next)
    assert (values(page), page.epoch) == (["a", "b"], 0)
    assert (values(later), later.epoch) == (["new", "d"], 1)


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (lambda view: view.get(None), "key must be text, got NoneType None"),
        (lambda view: view.get("\ud800"), "key must be text that UTF-8 can encode"),
        (lambda view: view.get("a", "noon"), "open_time: 'noon' is not an ISO 8601 timestamp"),
        (lambda view: view.range(3), "start must be text, got int 3"),
        (lambda view: view.range(limit=0), "limit must be a positive whole number, got 0"),
        (lambda view: view.range(limit=True), "limit must be a positive whole number, got True"),
        (lambda view: view.windows(since=float("nan")), "since: nan is not a timestamp"),
        (lambda view: view.range(after="x"), "after='x' is not the `next` of a page"),
        (lambda view: view.range(after=3), "after=3 is not the `next` of a page"),
        (lambda view: view.range(after="é"), "is not the `next` of a page"),
        (lambda view: view.range(after="W10"), "is not the `next` of a page"),
        (
            lambda view: view.range(after=view.windows("a", limit=1).next),
            "is not the `next` of a page of this range",
        ),
        # ["KEYS_AND_WINDOWS", "a", 2**63, 0]
        (
            lambda view: view.range(
                after="WyJLRVlTX0FORF9XSU5ET1dTIiwgImEiLCA5MjIzMzcyMDM2ODU0Nzc1ODA4LCAwXQ"
            ),
            "is not the `next` of a page",
        ),
    ],
)
def test_a_wrong_query_is_an_error(ask: Any, problem: str, by_window: View) -> None:
    with pytest.raises(QueryError, match=problem):
        ask(by_window)


def test_a_view_by_key_has_no_windows_to_ask_for(runs: ViewRuns) -> None:
    runs.epoch([("a", 1)])
    with pytest.raises(QueryError, match="has one entry for each key"):
        runs.view.windows("a")
    with pytest.raises(QueryError, match="has one entry for each key"):
        runs.view.get("a", "2024-05-01T00:00Z")


def test_an_unknown_view_is_an_error_with_the_known_ones(runs: ViewRuns) -> None:
    runs.epoch([("a", 1)])
    views = open(runs.directory)
    assert views.names() == ("totals",)
    with pytest.raises(UnknownViewError, match="has no view 'x'; its views are: 'totals'"):
        views["x"]
    with pytest.raises(ViewError, match="there is no file"):
        open(runs.directory / "elsewhere")
