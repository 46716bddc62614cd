"""The inside of a step over HTTP: only when asked for, one question at a time, errors as text."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from flow.engine.epoch.statistics import LateItem
from flow.errors import CheckpointError
from flow.web.inside import MAX_BYTES, MAX_KEPT, NO_STATE, Inside
from tests.support.monitored import SCRIPT, epoch_report
from tests.web.conftest import Site

LATE = LateItem("hours", SCRIPT, SCRIPT, "late", 1_000_000, 9_000_000)


@pytest.fixture
def open_site(site_at: Callable[..., Site]) -> Site:
    """Return a site that shows values, with one late value."""
    site = site_at(shows_values=True)
    site.page.report(epoch_report(late_items=(LATE,)))
    return site


def test_contents_are_not_shown_unless_asked_for(site: Site) -> None:
    site.page.start(lambda *_: pytest.fail("the state was read"))
    site.page.report(epoch_report(late_items=(LATE,)))
    for path in ("/api/late?step=hours", "/api/state?step=hours&key=a"):
        answer = site.ask(path)
        assert answer.status == 403
        assert "web_values=True" in json.loads(answer.body)["error"]
    assert not json.loads(site.ask("/api/flow").body)["values"]["are_shown"]
    for path in ("/api/flow", "/api/epochs", "/metrics"):
        assert SCRIPT not in site.ask(path).text


def test_late_values_are_served_newest_first(open_site: Site) -> None:
    newer = LATE._replace(value="newer")
    open_site.page.report(epoch_report(1, late_items=(newer,)))
    answer = open_site.ask("/api/late?step=hours")
    assert answer.headers["Content-Type"] == "application/json"
    assert [one["value"] for one in json.loads(answer.body)["late"]] == ["newer", SCRIPT]
    assert json.loads(open_site.ask("/api/flow").body)["values"]["are_shown"]


def test_state_is_that_of_the_reader_and_kept_until_the_next_epoch(open_site: Site) -> None:
    asked: list[tuple[str, str | None]] = []

    def reader(step_id: str, key: str | None) -> Any:
        asked.append((step_id, key))
        return {"step": step_id, "keys": [key]}

    open_site.page.start(reader)
    for _ in range(2):
        answer = open_site.ask("/api/state?step=hours&key=a%20%3Cb%3E")
        assert json.loads(answer.body) == {"step": "hours", "keys": ["a <b>"]}
    open_site.ask("/api/state?step=hours")
    assert asked == [("hours", "a <b>"), ("hours", None)]
    open_site.page.report(epoch_report(1))
    open_site.ask("/api/state?step=hours")
    assert asked[2:] == [("hours", None)]


def test_a_number_of_answers_is_kept(open_site: Site) -> None:
    asked: list[str | None] = []
    inside = Inside(shows_values=True)
    inside.reader = lambda _, key: {"n": asked.append(key)}
    first, others = "0", list(map(str, range(1, MAX_KEPT)))
    for key in (first, *others, first, "new", *others, first):
        inside.state(open_site.hub.status, "hours", key)
    assert asked == [first, *others, "new", first]


def test_a_run_without_a_checkpoint_says_how_to_have_one(open_site: Site) -> None:
    answer = open_site.ask("/api/state?step=hours")
    assert (answer.status, json.loads(answer.body)["error"]) == (404, NO_STATE)


@pytest.mark.parametrize("path", ["/api/late?step=other", "/api/state?step=other", "/api/late"])
def test_an_unknown_step_is_not_found(open_site: Site, path: str) -> None:
    assert open_site.ask(path).status == 404


@pytest.mark.parametrize(
    ("found", "status", "text"),
    [
        (CheckpointError("step 'hours' keeps nothing of key 'a'"), 404, "keeps nothing of key 'a'"),
        (RuntimeError("the JVM is gone"), 503, "the JVM is gone"),
        ("x" * MAX_BYTES, 404, "recovery inspect"),
    ],
    ids=["no such key", "failure", "too large"],
)
def test_an_error_of_the_reader_is_text_and_too_much_state_is_refused(
    open_site: Site, found: Exception | str, status: int, text: str
) -> None:
    def reader(*_: object) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    open_site.page.start(reader)
    answer = open_site.ask("/api/state?step=hours&key=a")
    assert answer.status == status
    assert text in json.loads(answer.body)["error"]


def test_one_question_is_answered_at_a_time(
    open_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flow.web.inside.PATIENCE_SECONDS", 0.1)
    reading, release = threading.Event(), threading.Event()

    def reader(*_: object) -> Any:
        reading.set()
        release.wait(20)
        return {}

    status, inside = open_site.hub.status, Inside(shows_values=True)
    inside.reader = reader
    first = threading.Thread(target=inside.state, args=(status, "hours", "a"))
    first.start()
    assert reading.wait(20)
    assert inside.state(status, "hours", "b").status == 503
    release.set()
    first.join()
    assert inside.state(status, "hours", "b").status == 200
