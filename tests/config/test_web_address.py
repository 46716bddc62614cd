"""Addresses of the live page: their form, and which of them only this machine reaches."""

from __future__ import annotations

import re

import pytest

from flow import FlowConfig
from flow.config.flow_config import WebAddress, web_address
from flow.errors import FlowBuildError, FlowTypeError


@pytest.mark.parametrize(
    ("host", "port", "is_loopback"),
    [
        ("127.0.0.1", 4041, True),
        ("127.9.9.9", 0, True),
        ("localhost", 80, True),
        ("::1", 4041, True),
        ("0.0.0.0", 4041, False),
        ("::", 4041, False),
        ("10.0.0.7", 65_535, False),
        ("localhost.example", 1, False),
    ],
)
def test_an_address_has_a_host_and_a_port(host: str, port: int, is_loopback: bool) -> None:
    text = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    assert web_address(text) == WebAddress(host, port)
    assert str(WebAddress(host, port)) == text
    assert web_address(text).is_loopback is is_loopback


@pytest.mark.parametrize(
    "text", ["", "4041", ":4041", "localhost", "localhost:", "::1:4041", "a b:1", "h:65536", "h:-1"]
)
def test_other_texts_are_refused_with_the_value(text: str) -> None:
    message = f"FlowConfig: web must (be HOST:PORT, .*|not be empty,) got {re.escape(repr(text))}"
    with pytest.raises(FlowBuildError, match=message):
        FlowConfig(web=text)


def test_other_types_are_refused() -> None:
    with pytest.raises(FlowTypeError, match="FlowConfig: web must be text, got int 4041"):
        FlowConfig(web=4041)  # type: ignore[arg-type]
