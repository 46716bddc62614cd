"""The address of the live page."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from flow.checks import wrong_type
from flow.errors import FlowBuildError, shorten

DEFAULT_WEB = "127.0.0.1:4041"
"""The address of ``--web`` without a value; Spark's own page is at port 4040."""

_FORM = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


class WebAddress(NamedTuple):
    """The address on which the live page listens.

    Attributes:
        host: a name or an IP address, without brackets.
        port: the port; 0 for a free one.
    """

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True if only this machine reaches the address."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def web_address(text: str) -> WebAddress:
    """Return the address in a text ``HOST:PORT``.

    >>> web_address("[::1]:4041")
    WebAddress(host='::1', port=4041)

    Raises:
        FlowBuildError: if the text has another form.
    """
    found = _FORM.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        raise FlowBuildError(
            f"an address must be HOST:PORT, such as {DEFAULT_WEB!r}, with a port up to 65535; "
            f"got {shorten(text)}"
        )
    return WebAddress(found["host"].strip("[]"), int(found["port"]))


def check_web_address(what: str, value: object) -> str:
    """Return the text of an address.

    Raises:
        FlowTypeError: if the value is no text.
        FlowBuildError: if the text is no address.
    """
    if not isinstance(value, str):
        raise wrong_type(f"{what} must be text", value)
    try:
        web_address(value)
    except FlowBuildError as error:
        raise FlowBuildError(f"{what}: {error}") from None
    return value


def missing_package(error: ModuleNotFoundError) -> FlowBuildError:
    """Return the error for a live page whose packages are not installed."""
    return FlowBuildError(
        f"web: the live page needs the package {error.name}: pip install 'flow-windows[web]'"
    )
