"""Answers to queries over HTTP, as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from flow.views import Views, answer, open
from tests.support.views import ViewRuns, hour

ANN = {"key": "ann", "value": {"n": 1}, "epoch": 0}


@pytest.fixture
def views(tmp_path: Path) -> Views:
    runs = ViewRuns(tmp_path)
    runs.epoch([("ann", {"n": 1}), ("bob", 2), ("cid/é", 3), ("", 4)])
    runs.stop()
    return open(tmp_path)


@pytest.fixture
def windows(tmp_path: Path) -> Views:
    runs = ViewRuns(tmp_path, {"by": "window"})
    runs.epoch([(key, (hour(n), f"{key}{n}")) for n in range(3) for key in "ab"])
    runs.stop()
    return open(tmp_path)


def values(body: dict[str, Any]) -> list[Any]:
    return [entry["value"] for entry in body["entries"]]


def test_the_root_lists_the_views(views: Views) -> None:
    assert answer(views, "", {}).body == {"views": ["totals"]}


def test_a_key_is_answered_with_its_epoch(views: Views) -> None:
    found = answer(views, "totals/ann", {})
    assert found.status == 200
    assert found.body == {"view": "totals", "run_id": "run", "epoch": 0, "entry": ANN}


@pytest.mark.parametrize(("key", "value"), [("cid/é", 3), ("", 4)])
def test_a_key_is_percent_encoded(key: str, value: int, views: Views) -> None:
    assert answer(views, f"totals/{quote(key, safe='')}", {}).body["entry"]["value"] == value


def test_a_missing_key_is_not_found_and_names_the_epoch(views: Views) -> None:
    found = answer(views, "totals/dan", {})
    assert found.status == 404
    assert found.body["epoch"] == 0
    assert found.body["error"] == "no entry of 'dan'"


def test_a_range_of_keys_comes_in_pages(views: Views) -> None:
    first = answer(views, "totals", {"start": "a", "limit": "2"}).body
    assert values(first) == [{"n": 1}, 2]
    second = answer(views, "totals", {"start": "a", "limit": "2", "next": first["next"]}).body
    assert values(second) == [3]
    assert second["next"] is None
    json.dumps(first)


def test_windows_of_a_key(windows: Views) -> None:
    found = answer(windows, "totals/a", {"since": "2024-05-01T01:00:00Z", "limit": "1"}).body
    assert found["entries"] == [
        {
            "key": "a",
            "value": "a1",
            "epoch": 0,
            "window": {
                "window_id": 1,
                "open_time": "2024-05-01T01:00:00Z",
                "close_time": "2024-05-01T02:00:00Z",
            },
        }
    ]
    assert found["next"] is not None


def test_windows_of_all_keys(windows: Views) -> None:
    found = answer(windows, "totals", {"until": "2024-05-01T01:00:00Z"}).body
    assert values(found) == ["a0", "b0"]
    assert values(answer(windows, "totals", {"start": "b"}).body) == ["b0", "b1", "b2"]


def test_one_window(windows: Views) -> None:
    newest = answer(windows, "totals/a", {"window": "newest"}).body
    assert newest["entry"]["value"] == "a2"
    first = answer(windows, "totals/a", {"window": "2024-05-01T00:00:00Z"}).body
    assert first["entry"]["value"] == "a0"


@pytest.mark.parametrize(
    ("path", "query", "status", "error"),
    [
        ("other", {}, 404, "has no view 'other'"),
        ("totals/a/b", {}, 400, "has 3 parts"),
        ("totals/%ff", {}, 400, "not UTF-8"),
        ("totals", {"limit": "0"}, 400, "limit must be a whole number from 1 to 1000, got '0'"),
        ("totals", {"limit": "1001"}, 400, "limit must be"),
        ("totals", {"limit": "²"}, 400, "limit must be"),
        ("totals", {"limit": "9" * 5000}, 400, "limit must be"),
        ("totals", {"next": "x"}, 400, "is not the `next` of a page"),
        ("totals", {"since": "2024-05-01"}, 400, "unknown parameter 'since'"),
        ("totals/ann", {"window": "newest"}, 400, "unknown parameter 'window'"),
        ("", {"x": "y"}, 400, "unknown parameter 'x'; this query has: none"),
    ],
)
def test_a_wrong_query(
    path: str, query: dict[str, str], status: int, error: str, views: Views
) -> None:
    found = answer(views, path, query)
    assert found.status == status
    assert error in found.body["error"]
    assert list(found.body) == ["error"]


def test_wrong_times_and_mixed_ranges_of_windows(windows: Views) -> None:
    assert answer(windows, "totals/a", {"since": "noon"}).status == 400
    assert answer(windows, "totals/a", {"window": "noon"}).status == 400
    assert answer(windows, "totals", {"since": "2024-05-01T00:00Z", "start": "a"}).status == 400


def test_a_file_that_cannot_be_read_is_unavailable(views: Views, tmp_path: Path) -> None:
    assert answer(lambda: open(tmp_path / "missing"), "totals/ann", {}).status == 503
    Path(views.path).write_bytes(b"no database, and long enough to be read as one" * 100)
    assert answer(views, "totals/ann", {}).status == 503
