"""Views over HTTP: the server of the live page answers queries of a run's views."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from flow.views import ViewSink
from flow.web.inside import view_answer
from tests.support.monitored import SCRIPT
from tests.support.views import STEP, ViewRuns
from tests.web.conftest import Site

OF_A_SCRIPT = quote(SCRIPT, safe="")
SCRIPT_ENTRY = {"key": SCRIPT, "value": SCRIPT, "epoch": 0}


@pytest.fixture
def runs(tmp_path: Path) -> ViewRuns:
    """A run that has committed an epoch to its view."""
    runs = ViewRuns(tmp_path)
    runs.epoch([("ann", {"n": 1}), ("a/b", 2), (SCRIPT, SCRIPT)])
    return runs


def asked(site_at: Callable[..., Site], runs: ViewRuns, path: str) -> tuple[int, Any]:
    answer = site_at(views={STEP: runs.sink}).ask(path)
    assert answer.headers["Content-Type"] == "application/json"
    return answer.status, json.loads(answer.body)


@pytest.mark.parametrize(
    ("path", "status", "part"),
    [
        ("/view/", 200, {"views": [STEP]}),
        ("/view/totals/ann", 200, {"epoch": 0}),
        ("/view/totals/a%2Fb", 200, {"entry": {"key": "a/b", "value": 2, "epoch": 0}}),
        (f"/view/totals/{OF_A_SCRIPT}", 200, {"entry": SCRIPT_ENTRY}),
        ("/view/totals?limit=1", 200, {"next": None}),
        ("/view/totals/dan", 404, {"error": "no entry of 'dan'"}),
        ("/view/totals?stop=&next=", 200, {"entries": []}),
        ("/view/totals?limit=x", 400, {}),
        ("/view/other/ann", 404, {}),
        ("/view/%ff/ann", 404, {}),
    ],
)
def test_queries_are_answered(
    path: str, status: int, part: dict[str, Any], runs: ViewRuns, site_at: Callable[..., Site]
) -> None:
    found, body = asked(site_at, runs, path)
    assert found == status
    if "next" in part:
        assert body["next"]
    else:
        assert part.items() <= body.items()
    assert (status == 200) == ("error" not in body)


def test_a_view_needs_the_token_of_the_page(runs: ViewRuns, site_at: Callable[..., Site]) -> None:
    site = site_at(token="secret", views={STEP: runs.sink})
    assert site.ask("/view/totals/ann").status == 401
    assert site.ask("/view/totals/ann", Authorization="Bearer secret").status == 200


def test_a_view_that_no_run_has_opened_yet_is_unavailable() -> None:
    found = view_answer({"last": ViewSink()}, "last/ann", {})
    assert found.status == 503
    assert found.body == {"error": "the run has not opened the view 'last' yet"}


def test_a_run_without_views_has_none() -> None:
    assert view_answer({}, "", {}).body == {"views": []}
    assert "its views are: none" in view_answer({}, "x", {}).body["error"]
