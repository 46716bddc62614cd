"""The answers to requests of browsers, of Prometheus and of probes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from typing_extensions import override

from flow.durations import duration_us
from flow.errors import FlowError
from flow.monitoring.metrics import METRICS
from flow.monitoring.run_status import RunStatus, epochs_json, flow_json, health_of, points_json
from flow.views.answers import JsonAnswer
from flow.web.hub import Hub, Reader
from flow.web.inside import Inside, ViewSinks, view_answer
from flow.web.page_access import Access, cookie_name, is_of_other_site

SILENCE_SECONDS = 3.0
"""The longest silence of the event stream; an event then shows that the process is alive. A page
that has received nothing for three times as long shows that the run does not answer."""

PAUSE_SECONDS = 0.2
"""The least time between two events of a reader."""

VIEW = "/view/"
"""The path before queries of views."""

_TEXT = "text/plain; charset=utf-8"
_HTML = "text/html; charset=utf-8"


class PageHandler(BaseHTTPRequestHandler):
    """The handler of one connection; a subclass has what it serves.

    Its server counts answers, and ends connections whose requests do not arrive: see
    `flow.web.server`.
    """

    hub: ClassVar[Hub]
    access: ClassVar[Access]
    views: ClassVar[ViewSinks]
    inside: ClassVar[Inside]
    server: Any

    timeout = 10
    """Seconds that a client may take to take a part of the answer."""

    @override
    def parse_request(self) -> bool:
        """Read the head of a request; return False if there is nothing to answer."""
        return super().parse_request() and bool(self.server.arrive(self.connection))

    def do_GET(self) -> None:
        """Answer a request, if its sender may read the page."""
        try:
            url = urlsplit(self.path)
            given = parse_qs(url.query, keep_blank_values=True)
            query = {name: values[-1] for name, values in given.items()}
        except ValueError:
            self._send(HTTPStatus.BAD_REQUEST, _TEXT, b"the address of the request is malformed\n")
            return
        if not self.access.is_own_host(self.headers.get("Host")):
            self._send(HTTPStatus.FORBIDDEN, _TEXT, b"this name is not one of this server\n")
        elif url.path != "/" and is_of_other_site(self.headers):
            self._send(HTTPStatus.FORBIDDEN, _TEXT, b"pages of other sites get no answer\n")
        else:
            self._answer_bearer(url.path, query)

    def _answer_bearer(self, path: str, query: Mapping[str, str]) -> None:
        """Answer a request that bears the token, or ask for the token."""
        if path == "/" and self.access.is_token(query.get("token", "")):
            self._keep_token(query["token"])
        elif self.access.admits(self.headers):
            self._answer_in_place(path, query)
        elif path == "/":
            self._send_file(HTTPStatus.UNAUTHORIZED, LOGIN)
        elif path == "/page.css":  # The page that asks for the token uses it.
            self._send_file(HTTPStatus.OK, "page.css")
        else:
            headers = {"WWW-Authenticate": "Bearer"}
            self._send(HTTPStatus.UNAUTHORIZED, _TEXT, b"this page needs its token\n", headers)

    def _not_allowed(self) -> None:
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"only GET is allowed\n", {"Allow": "GET"})

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _not_allowed

    def _answer_in_place(self, path: str, query: Mapping[str, str]) -> None:
        """Answer a request, unless too many are answered; a probe is answered always."""
        if path == "/healthz":
            self._send_health(self.hub.status, query.get("patience") or None)
        elif self.server.answers.acquire(blocking=False):
            try:
                self._answer(path, query)
            finally:
                self.server.answers.release()
        else:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, b"too many requests at once\n")

    def _answer(self, path: str, query: Mapping[str, str]) -> None:
        status = self.hub.status
        match path:
            case "/events":
                self._follow()
            case "/api/flow":
                self._send_answer(JsonAnswer(200, self._flow_json(status)))
            case "/api/late":
                self._send_answer(self.inside.late(status, query.get("step", "")))
            case "/api/state":
                step_id = query.get("step", "")
                self._send_answer(self.inside.state(status, step_id, query.get("key")))
            case "/api/epochs":
                epochs = {"run_id": status.run_id, "epochs": epochs_json(status.history)}
                self._send_answer(JsonAnswer(200, epochs))
            case "/metrics":
                body, content_type = exposition(status, self.headers.get("Accept"))
                self._send(HTTPStatus.OK, content_type, body)
            case _ if path.startswith(VIEW):
                self._send_answer(view_answer(self.views, path.removeprefix(VIEW), query))
            case _ if path in FILES:
                self._send_file(HTTPStatus.OK, FILES[path])
            case _:
                self._send(HTTPStatus.NOT_FOUND, _TEXT, b"no such page\n")

    def _send_health(self, status: RunStatus, patience: str | None) -> None:
        try:
            seconds = None if patience is None else duration_us(patience, "patience") / 1e6
        except FlowError as error:
            self._send(HTTPStatus.BAD_REQUEST, _TEXT, f"{error}\n".encode())
            return
        health = health_of(status, time.time(), seconds)
        code = HTTPStatus.OK if health.is_healthy else HTTPStatus.SERVICE_UNAVAILABLE
        self._send(code, _TEXT, f"{health.reason}\n".encode())

    def _keep_token(self, token: str) -> None:
        """Store the token in a cookie, and lead to the page without it in the address."""
        cookie = f"{cookie_name(self.headers)}={token}; HttpOnly; SameSite=Strict; Path=/"
        headers = {"Location": "/", "Set-Cookie": cookie}
        self._send(HTTPStatus.SEE_OTHER, _TEXT, b"", headers)

    def _flow_json(self, status: RunStatus) -> dict[str, Any]:
        """Return the status with its graph, and the reason if the page may not show values."""
        inside = self.inside
        values = {"are_shown": inside.shows_values, "how_to_show": inside.how_to_show}
        return {**flow_json(status), "values": values}

    def _send_answer(self, answer: JsonAnswer) -> None:
        self._send(HTTPStatus(answer.status), "application/json", _json(answer.body))

    def _send_file(self, code: HTTPStatus, name: str) -> None:
        self._send(code, CONTENT_TYPES[name.rpartition(".")[2]], content(name))

    def _send(
        self,
        code: HTTPStatus,
        content_type: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._send_head(code, {"Content-Length": str(len(body)), **(headers or {})}, content_type)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_head(self, code: HTTPStatus, headers: Mapping[str, str], content_type: str) -> None:
        self.send_response(code)
        for name, value in {**SECURITY_HEADERS, **headers, "Content-Type": content_type}.items():
            self.send_header(name, value)
        self.end_headers()

    def _follow(self) -> None:
        """Send the status now, and each time it changes, until the run or the reader ends."""
        reader = self.hub.join()
        if reader is None:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, b"too many pages follow this run\n")
            return
        try:
            self._send_head(HTTPStatus.OK, {"Connection": "close"}, "text/event-stream")
            self._send_events(reader)
        finally:
            self.hub.leave(reader)

    def _send_events(self, reader: Reader) -> None:
        sent: RunStatus | None = None
        while sent is None or not sent.state.is_over:
            status = reader.next(SILENCE_SECONDS)
            if status is None:
                self._send_event(b"alive", b"{}")
                continue
            last = 0 if sent is None else sent.epochs
            new = [epoch for epoch in status.history if epoch.index > last]
            if new:
                self._send_event(b"epochs", _json(epochs_json(new)))
                since = sent.points[-1].at if sent is not None and sent.points else 0.0
                points = points_json(one for one in status.points if one.at >= since)
                self._send_event(b"points", _json(points))
            if sent is None:
                self._send_event(b"flow", _json(self._flow_json(status)))
            else:
                self._send_event(b"status", self.hub.status_text(status))
            sent = status
            if not status.state.is_over:
                time.sleep(PAUSE_SECONDS)

    def _send_event(self, name: bytes, text: bytes) -> None:
        self.wfile.write(b"event: %s\ndata: %s\n\n" % (name, text))

    @override
    def version_string(self) -> str:
        return "flow"

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests: their addresses may have the token."""


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


SECURITY_HEADERS = MappingProxyType(
    {
        "Content-Security-Policy": "; ".join(
            [
                "default-src 'none'",
                *(f"{kind}-src 'self'" for kind in ("script", "style", "connect", "img")),
                "form-action 'self'",
                "base-uri 'none'",
                "frame-ancestors 'none'",
            ]
        ),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }
)

_FILES = (
    *("page.js", "graph.js", "charts.js", "inside.js", "format.js", "page.css", "icon.svg"),
    *("vendor/uPlot.iife.min.js", "vendor/uPlot.min.css", "vendor/dagre.esm.js"),
)

FILES = MappingProxyType({"/": "index.html", **{f"/{name}": name for name in _FILES}})
"""The files by path of the URL; no other file is served."""

CONTENT_TYPES = MappingProxyType(
    {
        "html": _HTML,
        "js": "text/javascript; charset=utf-8",
        "css": "text/css; charset=utf-8",
        "svg": "image/svg+xml",
    }
)

LOGIN = "login.html"


@cache
def content(name: str) -> bytes:
    """Return the content of a file of the page."""
    return files("flow.web").joinpath("assets", name).read_bytes()


def exposition(status: RunStatus, accept: str | None) -> tuple[bytes, str]:
    """Return the metrics of a run for Prometheus or OpenMetrics, and their content type.

    Args:
        status: the status of the run.
        accept: the request's Accept header, which asks for a format.
    """
    registry = CollectorRegistry()
    registry.register(_OfStatus(status))
    try:
        encode, content_type = choose_encoder(accept or "")
    except (TypeError, ValueError):  # The header names a version that is none.
        encode, content_type = choose_encoder("")
    return encode(registry), content_type


class _OfStatus(Collector):
    def __init__(self, status: RunStatus) -> None:
        self._status = status

    @override
    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            family_type = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
            family = family_type(metric.name, metric.meaning, labels=("flow", *metric.labels))
            for labels, value in metric.samples(self._status).items():
                family.add_metric((self._status.flow_id, *labels), value)
            yield family
