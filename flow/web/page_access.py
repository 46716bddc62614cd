"""Access to the page: free on the loopback interface, elsewhere for bearers of the token."""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from urllib.parse import quote

from flow.config.flow_config import WebAddress, web_address
from flow.errors import FlowBuildError

TOKEN_VARIABLE = "FLOW_WEB_TOKEN"
COOKIE = "flow_token"
LEAST_TOKEN_LENGTH = 16
_OF_TOKENS = re.compile(r"[A-Za-z0-9._~+/=-]")
"""Characters that both a cookie and the header Authorization (RFC 6750) may have."""


@dataclass(frozen=True)
class Access:
    """The rule of access to a server.

    Attributes:
        address: the address that the server listens on.
        token: the token; ``None`` on the loopback interface.
    """

    address: WebAddress
    token: str | None

    @classmethod
    def to(cls, address: WebAddress, environ: Mapping[str, str] = os.environ) -> Access:
        """Return the rule for an address: a token unless only this machine reaches it.

        Raises:
            FlowBuildError: if the environment's token is too short, or has a character that
                requests cannot bear.
        """
        if address.is_loopback:
            return cls(address, None)
        token = environ.get(TOKEN_VARIABLE, "")
        if token and (len(token) < LEAST_TOKEN_LENGTH or _OF_TOKENS.sub("", token)):
            raise FlowBuildError(
                f"{TOKEN_VARIABLE} must have at least {LEAST_TOKEN_LENGTH} characters, of A-Z, "
                f"a-z, 0-9 and -._~+/= alone, got {_OF_TOKENS.sub('*', token)!r}: make one with "
                "`python -c 'import secrets; print(secrets.token_urlsafe())'`"
            )
        return cls(address, token or secrets.token_urlsafe(24))

    @property
    def url(self) -> str:
        """The URL of the page, with the token."""
        query = "" if self.token is None else f"?token={quote(self.token, safe='')}"
        return f"http://{self.address}/{query}"

    def is_own_host(self, host: str | None) -> bool:
        """Return True if a request's Host header may name this server.

        On the loopback interface only names of the loopback are valid: a page of another site whose
        name leads to 127.0.0.1 could read this one otherwise.
        """
        if self.token is not None:
            return True
        if not host:
            return False
        name = host if host.rpartition(":")[2].isdecimal() else f"{host}:80"
        try:
            return web_address(name).is_loopback
        except FlowBuildError:
            return False

    def admits(self, headers: Message) -> bool:
        """Return True if a request's headers bear the token, or if none is needed."""
        if self.token is None:
            return True
        given = headers.get("Authorization", "").removeprefix("Bearer ").strip()
        return self.is_token(given) or self.is_token(_cookie(headers))

    def is_token(self, text: str) -> bool:
        """Return True if a text is the token, in a time that does not depend on the text."""
        return self.token is not None and hmac.compare_digest(text.encode(), self.token.encode())


def is_of_other_site(headers: Message) -> bool:
    """Return True if a page of another site, or of another port, has made the browser ask.

    Such a page cannot read the answer, but a question about state costs a job of Spark.
    """
    origin = headers.get("Origin")
    is_other = origin is not None and origin.partition("://")[2] != headers.get("Host")
    return is_other or headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")


def cookie_name(headers: Message) -> str:
    """Return the name of the cookie with the token.

    Browsers send the cookies of a host to all of its ports, so each port has a name of its own.
    """
    port = headers.get("Host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isdecimal() else COOKIE


def _cookie(headers: Message) -> str:
    # Not SimpleCookie, which takes none of them beside a malformed one of another server's page.
    cookies = (each.strip().partition("=") for each in headers.get("Cookie", "").split(";"))
    return next((value for name, _, value in cookies if name == cookie_name(headers)), "")
