"""The server of the live page: its answers, its headers, and who may read it."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import flow.web.hub
from flow import EnvironmentProblem, run
from flow.config.flow_config import WebAddress
from flow.errors import FlowBuildError, StepError
from flow.web.hub import Hub
from flow.web.page_access import TOKEN_VARIABLE, Access
from flow.web.requests import CONTENT_TYPES, FILES, content
from flow.web.server import PageServer, live_page
from tests.support.monitored import PHASES, SCRIPT, epoch_report, hourly_flow, hourly_plan, recorded
from tests.web.conftest import Site

TOKEN = "a-token-of-the-tests"
ASSETS = Path(str(flow.web.hub.__file__)).parent / "assets"


def test_every_file_of_the_page_is_served_with_its_type(site: Site) -> None:
    for path, name in FILES.items():
        answer, kind = site.ask(path), CONTENT_TYPES[name.rpartition(".")[2]]
        assert (answer.status, answer.headers["Content-Type"]) == (200, kind)
        assert answer.body == content(name)


def test_all_files_are_served_but_the_request_for_a_token_and_licences() -> None:
    present = {path.relative_to(ASSETS).as_posix() for path in ASSETS.rglob("*") if path.is_file()}
    licences = {name for name in present if name.endswith(".txt")}
    assert len(licences) == 2
    assert present - licences - {"login.html"} == set(FILES.values())


def test_no_other_file_is_served(site: Site) -> None:
    for path in ("/../hub.py", "/%2e%2e/hub.py", "/login.html", "/vendor/"):
        assert site.ask(path).status == 404, path


def test_the_page_names_no_other_host_and_holds_no_inline_code() -> None:
    own = [path for path in ASSETS.iterdir() if path.suffix in (".html", ".js", ".css")]
    for path in own:
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, path
        assert "innerHTML" not in text, path
        assert "style=" not in text, path
        assert "<script>" not in text, path


def test_every_answer_has_a_strict_policy(site: Site) -> None:
    for path in ("/", "/api/flow", "/metrics", "/healthz", "/nothing"):
        headers = site.ask(path).headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
        assert "unsafe" not in policy
        assert "*" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Server"] == "flow"


def test_only_get_is_allowed(site: Site) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"):
        answer = site.ask("/api/flow", method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET"), method


def test_the_status_is_json_and_escapes_nothing_wrongly(site: Site) -> None:
    site.page.report(epoch_report(behind={"visits": {SCRIPT: 4}}))
    found = json.loads(site.ask("/api/flow").body)
    assert found["behind"] == {"visits": {SCRIPT: 4}}
    assert found["steps"]["hours"]["counts"] == {"in": 100, "late": 2}
    steps = [step["step_id"] for step in found["graph"]["steps"]]
    assert steps == ["visits", "hours", "out", "late"]
    assert found["edges"][0] == {"items": 100, "rate": 0.0}
    (epoch,) = json.loads(site.ask("/api/epochs").body)["epochs"]
    assert epoch["phases"] == PHASES


def test_health_has_a_code_and_a_reason(site: Site) -> None:
    assert site.ask("/healthz").status == 503  # The recorder's clock is in 1970.
    assert site.ask("/healthz?patience=30000d").status == 200
    wrong = site.ask("/healthz?patience=soon")
    assert (wrong.status, "patience" in wrong.text) == (400, True)
    site.page.fail(StepError("hours", "broke"))
    answer = site.ask("/healthz?patience=30000d")
    assert (answer.status, answer.text) == (503, "the run has failed: step 'hours': broke\n")


def test_metrics_have_the_type_of_prometheus(site: Site) -> None:
    answer = site.ask("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert 'flow_run_state{flow="hourly",state="starting"} 1.0' in answer.text


# --- access ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        (["localhost:1", "127.0.0.1", "[::1]:9", "LOCALHOST"], 200),
        (["example.com", "127.0.0.1.example.com:80", "", "10.0.0.1:4041"], 403),
    ],
)
def test_a_loopback_page_answers_to_names_of_the_loopback_only(
    site: Site, hosts: list[str], status: int
) -> None:
    assert [site.ask("/api/flow", Host=host).status for host in hosts] == [status] * 4


PATHS = ["/api/flow", "/api/epochs", "/metrics", "/healthz", "/events", "/page.js", "/nothing"]


def test_elsewhere_every_path_needs_the_token(site_at: Callable[..., Site]) -> None:
    site = site_at("0.0.0.0", TOKEN)
    cookie = f"flow_token_{site.server.address.port}=wrong"
    wrong = {"Authorization": "Bearer wrong"}, {"Cookie": cookie}, {"Authorization": ""}
    for path in PATHS:
        assert [site.ask(path, **headers).status for headers in ({}, *wrong)] == [401] * 4, path


def test_elsewhere_the_page_asks_for_the_token_and_keeps_it(site_at: Callable[..., Site]) -> None:
    site = site_at("0.0.0.0", TOKEN)
    asked = site.ask("/")
    assert asked.status == 401
    assert b'name="token"' in asked.body
    assert site.ask("/?token=wrong").status == 401
    answer = site.ask(f"/?token={TOKEN}")
    assert (answer.status, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    name = f"flow_token_{site.server.address.port}"
    assert cookie == f"{name}={TOKEN}; HttpOnly; SameSite=Strict; Path=/"
    other = 'theme={"dark": true}; flow_token_1=the-token-of-another-run; '
    assert site.ask("/", Cookie=other + cookie.split(";")[0]).body == content("index.html")
    assert site.ask("/metrics", Authorization=f"Bearer {TOKEN}").status == 200


def test_the_token_is_that_of_the_environment_or_random() -> None:
    anywhere, here = WebAddress("0.0.0.0", 0), WebAddress("::1", 0)
    assert Access.to(anywhere, {TOKEN_VARIABLE: TOKEN}).token == TOKEN
    first, second = Access.to(anywhere, {}).token, Access.to(anywhere, {}).token
    assert first is not None
    assert len(first) >= 32
    assert first != second
    assert Access.to(here, {TOKEN_VARIABLE: TOKEN}).token is None
    with pytest.raises(FlowBuildError, match="FLOW_WEB_TOKEN must have at least 16 characters"):
        Access.to(anywhere, {TOKEN_VARIABLE: "short"})


def test_a_token_that_requests_cannot_bear_is_refused_and_any_other_works(
    site_at: Callable[..., Site],
) -> None:
    anywhere = WebAddress("0.0.0.0", 80)
    for character in ';, "\\\n%é':
        got = re.escape(repr("*" * len(TOKEN) + character))
        with pytest.raises(
            FlowBuildError, match=rf"^FLOW_WEB_TOKEN must .* alone, got {got}: make"
        ):
            Access.to(anywhere, {TOKEN_VARIABLE: f"{TOKEN}{character}"})
    token = f"{TOKEN}+/.~_="
    url = Access.to(anywhere, {TOKEN_VARIABLE: token}).url
    assert url == f"http://0.0.0.0:80/?token={TOKEN}%2B%2F.~_%3D"
    site = site_at("0.0.0.0", token)
    cookie = site.ask(url.removeprefix("http://0.0.0.0:80")).headers["Set-Cookie"].split(";")[0]
    assert site.ask("/api/flow", Cookie=cookie).status == 200
    assert site.ask("/api/flow", Authorization=f"Bearer {token}").status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://example.com"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_pages_of_other_sites_may_lead_to_the_page_alone(
    site: Site, headers: dict[str, str], status: int
) -> None:
    assert site.ask("/api/flow", **headers).status == status
    assert site.ask("/", **headers).status == 200


@pytest.mark.parametrize(
    ("target", "accept", "status"),
    [
        ("http://[", "", 400),
        ("/healthz?patience=" + "9" * 5_000 + "s", "", 400),
        ("/metrics", "application/openmetrics-text; version=x", 200),
    ],
)
def test_a_malformed_request_is_answered_without_a_trace(
    site: Site, capsys: pytest.CaptureFixture[str], target: str, accept: str, status: int
) -> None:
    assert site.ask(target, Accept=accept).status == status
    assert capsys.readouterr().err == ""


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "web", flow.web)  # The next import replaces it.
    for name in [name for name in sys.modules if name.startswith("flow.web")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    message = r"the live page needs prometheus-client, .*pip install 'flow-windows\[web\]'"
    with pytest.raises(EnvironmentProblem, match=message):
        run(hourly_flow(), web="127.0.0.1:0")


# --- addresses ---------------------------------------------------------------------------------


def test_an_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = WebAddress("127.0.0.1", other.getsockname()[1])
        message = rf"web: the page cannot listen on {address}: .*in use; choose another port"
        with pytest.raises(FlowBuildError, match=message):
            PageServer(Access(address, None), Hub(recorded().status))


def test_the_log_names_the_address_which_is_free_again_after_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="flow")
    with live_page("127.0.0.1:0", hourly_plan(), "streaming"):
        (address,) = re.findall(r"live page: http://(127\.0\.0\.1:\d+)/", caplog.text)
        assert "token" not in caplog.text
    with live_page(address, hourly_plan(), "streaming"):
        assert caplog.text.count(address) == 2
