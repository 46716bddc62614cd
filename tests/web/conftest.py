"""A server of the page with a recorder that the test feeds, a client without a browser, and one."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from socketserver import BaseServer
from types import MappingProxyType

import pytest

from flow import Dataflow, Summary
from flow.config.flow_config import WebAddress
from flow.engine.plan.compiler import compile_flow
from flow.monitoring.recorder import Recorder
from flow.views import ViewSink
from flow.web.hub import Hub
from flow.web.inside import Inside
from flow.web.page_access import Access
from flow.web.server import LivePage, PageServer
from tests.support.browsing import Browser, headless_chromium
from tests.support.monitored import recorded


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Site:
    """A page that a test reports to and reads."""

    page: LivePage
    hub: Hub
    server: PageServer
    connections: list[http.client.HTTPConnection] = field(default_factory=list)

    def open(self, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
        """Send a request, and return its answer, of which only the head has been read."""
        address = self.server.address
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=20)
        self.connections.append(connection)
        connection.putrequest(method, path, skip_host=True)
        for name, value in {"Host": str(address), **headers}.items():
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse()

    def ask(self, path: str, method: str = "GET", **headers: str) -> Response:
        answer = self.open(path, method, **headers)
        return Response(answer.status, dict(answer.headers.items()), answer.read())

    def close(self) -> None:
        self.page.end(Summary("hourly", "streaming"))  # so that no reader stays
        self.server.close()
        for connection in self.connections:
            connection.close()


@pytest.fixture
def site_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Site]]:
    """Return a function that serves a page at a host, of a flow or of the hourly one.

    Its server looks for its end more often than others do.
    """
    serve_forever = BaseServer.serve_forever
    monkeypatch.setattr(BaseServer, "serve_forever", lambda one, _: serve_forever(one, 0.01))
    sites: list[Site] = []

    def serve(
        host: str = "127.0.0.1",
        token: str | None = None,
        views: Mapping[str, ViewSink] = MappingProxyType({}),
        shows_values: bool = False,
        flow: Dataflow | None = None,
        clock: Callable[[], float] = time.time,
        trigger: float = 1.0,
    ) -> Site:
        plan = compile_flow(flow) if flow else None
        recorder = Recorder(plan, "streaming", trigger, clock) if plan else recorded()
        hub = Hub(recorder.status)
        inside = Inside(shows_values)
        server = PageServer(Access(WebAddress(host, 0), token), hub, views, inside)
        sites.append(Site(LivePage(recorder, hub, inside), hub, server))
        return sites[-1]

    yield serve
    for site in sites:
        site.close()


@pytest.fixture
def site(site_at: Callable[..., Site]) -> Site:
    return site_at()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with headless_chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """The browser on a laptop's screen, without messages and requests of the pages before."""
    chromium.open("about:blank")
    chromium.resize(1366, 768)
    chromium.console()
    chromium.hosts()
    return chromium
