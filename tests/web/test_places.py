"""The places of connections: slow clients and long answers leave room for probes."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from tests.web.conftest import Site

PROBE = "/healthz?patience=30000d"


@pytest.fixture
def small_site(monkeypatch: pytest.MonkeyPatch, site_at: Callable[..., Site]) -> Site:
    """A site with three places, of which two may be used by answers."""
    monkeypatch.setattr("flow.web.server.MAX_CONNECTIONS", 3)
    monkeypatch.setattr("flow.web.server.MAX_ANSWERS", 2)
    monkeypatch.setattr("flow.web.server.REQUEST_SECONDS", 0.5)
    return site_at()


@contextlib.contextmanager
def begun(site: Site, count: int) -> Iterator[list[socket.socket]]:
    """Open connections that have sent the first bytes of a request for the state."""
    with contextlib.ExitStack() as stack:
        address = "127.0.0.1", site.server.address.port
        found = [stack.enter_context(socket.create_connection(address, 20)) for _ in range(count)]
        for client in found:
            client.sendall(b"GET /api/state HTTP/1.1\r\nHost: localhost\r\nX: ")
        yield found


def test_a_request_finds_a_place_among_connections_that_send_none(small_site: Site) -> None:
    with begun(small_site, 3) as clients:
        assert small_site.ask(PROBE).status == 200
        assert small_site.ask("/metrics").status == 200
        assert clients[0].recv(1) == b""


def test_the_whole_request_has_a_limit_of_time(small_site: Site) -> None:
    """A byte each 0.1 s never lets a single read wait for 0.5 s."""
    with begun(small_site, 1) as (client,):
        start = time.monotonic()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() - start < 20:
                client.sendall(b"x")
                time.sleep(0.1)
        assert 0.4 < time.monotonic() - start < 10


def test_answers_leave_a_place_to_probes(small_site: Site) -> None:
    followers = [small_site.open("/events") for _ in range(2)]
    assert [answer.status for answer in followers] == [200, 200]
    assert small_site.ask("/api/flow").status == 503
    assert small_site.ask(PROBE).status == 200
