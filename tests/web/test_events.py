"""The event stream of the page: newest status, slow readers, the end of a run, and later runs."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from itertools import islice
from typing import Any

import pytest

from flow import Summary
from flow.errors import StepError
from flow.monitoring.backlog import MAX_POINTS, PERIOD_SECONDS
from flow.web import hub as hub_module
from flow.web import requests
from flow.web import server as server_module
from flow.web.hub import Hub
from flow.web.requests import SILENCE_SECONDS
from flow.web.server import live_page
from tests.support.monitored import Clock, epoch_report, hourly_plan, recorded
from tests.web.conftest import Site
from tests.web.page_states import RATE, SECONDS, play, shop_flow

ENDED = Summary("hourly", "streaming")


def events(answer: HTTPResponse) -> Iterator[tuple[str, Any]]:
    """Yield the events of a stream, until it ends."""
    name = ""
    for line in answer:
        field, _, value = line.decode().rstrip("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def test_a_reader_gets_the_status_and_then_each_change(site: Site) -> None:
    site.page.report(epoch_report(0))
    stream = events(site.open("/events"))
    name, epochs = next(stream)
    assert (name, [epoch["epoch"] for epoch in epochs]) == ("epochs", [0])
    name, points = next(stream)
    assert (name, [point["items"] for point in points]) == ("points", [5])
    name, found = next(stream)
    assert (name, found["epochs"], len(found["graph"]["steps"])) == ("flow", 1, 4)
    site.page.report(epoch_report(1))
    start = time.monotonic()
    name, epochs = next(stream)
    assert time.monotonic() - start < SILENCE_SECONDS / 2
    assert (name, [epoch["epoch"] for epoch in epochs]) == ("epochs", [1])
    assert next(stream)[0] == "points"
    name, found = next(stream)
    assert (name, found["epochs"]) == ("status", 2)
    assert found["steps"]["visits"]["counts"] == {"out": 200}
    assert "graph" not in found


def test_a_reader_without_news_hears_that_the_run_is_alive(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "SILENCE_SECONDS", 0.05)
    stream = events(site.open("/events"))
    assert [next(stream) for _ in range(3)][1:] == [("alive", {}), ("alive", {})]


def test_a_reader_that_comes_late_gets_the_last_fifteen_minutes(
    site_at: Callable[..., Site],
) -> None:
    clock = Clock(time.time() - SECONDS)
    site = site_at(flow=shop_flow(), clock=clock)
    play(site.page.report, clock)
    found = dict(islice(events(site.open("/events")), 3))
    first, *_, last = found["points"]
    assert len(found["points"]) == MAX_POINTS
    assert last["at"] - first["at"] == SECONDS - PERIOD_SECONDS
    assert last["rate"] == pytest.approx(RATE)


def test_a_reader_gets_the_end_and_the_stream_ends(site: Site) -> None:
    stream = events(site.open("/events"))
    assert next(stream)[0] == "flow"
    site.page.report(epoch_report(0))
    site.page.end(ENDED)
    found = list(stream)
    assert (found[-1][0], found[-1][1]["state"]) == ("status", "ended")
    assert [epoch["epoch"] for name, one in found if name == "epochs" for epoch in one] == [0]


@pytest.fixture
def hub() -> Hub:
    return Hub(recorded().status)


def test_the_end_of_a_run_waits_until_readers_have_its_last_status(hub: Hub) -> None:
    reader = hub.join()
    assert reader is not None
    assert not hub.wait_until_left(0.0)
    hub.leave(reader)
    assert hub.wait_until_left(0.0)


def test_a_failure_reaches_the_reader(site: Site) -> None:
    stream = events(site.open("/events"))
    next(stream)
    site.page.fail(StepError("hours", "broke", key="<script>"))
    _, found = next(stream)
    assert (found["error"]["step_id"], found["error"]["key"]) == ("hours", "'<script>'")
    assert list(stream) == []


def test_a_reader_that_misses_statuses_gets_the_newest_and_all_epochs(hub: Hub) -> None:
    recorder, reader = recorded(), hub.join()
    assert reader is not None
    for number in range(50):
        hub.publish(recorder.add(epoch_report(number)))
    status = reader.next(0.0)
    assert status is not None
    assert (status.epochs, len(status.history)) == (50, 50)
    assert reader.next(0.0) is None


#  A client that never reads: its window is small, so the server's writes block.
def test_a_slow_reader_delays_no_report(site: Site) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        client.connect(("127.0.0.1", site.server.address.port))
        client.sendall(f"GET /events HTTP/1.1\r\nHost: {site.server.address}\r\n\r\n".encode())
        while not site.hub._readers:
            time.sleep(0.01)
        big = {"visits": {f"visits/{number}": number for number in range(2_000)}}
        longest = 0.0
        for number in range(200):
            start = time.perf_counter()
            site.page.report(epoch_report(number, behind=big))
            longest = max(longest, time.perf_counter() - start)
        assert site.hub._readers, "the reader is still there, and has not been served"
        assert longest < 0.5
        start = time.perf_counter()
        site.server.close()
        assert time.perf_counter() - start < server_module.LAST_SECONDS + 1.0


def test_readers_share_the_text_of_a_status(hub: Hub) -> None:
    text = hub.status_text(hub.status)
    assert hub.status_text(hub.status) is text
    hub.publish(recorded().add(epoch_report()))
    assert json.loads(hub.status_text(hub.status))["epochs"] == 1


def test_the_number_of_readers_is_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "MAX_READERS", 1)
    first = site.open("/events")
    assert first.status == 200
    assert site.ask("/events").status == 503


def test_an_error_in_the_run_is_published_and_raised() -> None:
    error = StepError("inverse", "the mapper raised ZeroDivisionError", item="0")
    with pytest.raises(StepError), live_page("127.0.0.1:0", hourly_plan(), "batch") as page:
        raise error
    status = page._hub.status
    assert status.state.value == "failed"
    assert status.error is not None
    assert (status.error.step_id, status.error.item) == ("inverse", "0")
