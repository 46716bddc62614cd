"""Access to the page: free on the loopback interface, elsewhere for bearers of the token."""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from flow.config.web_address import WebAddress, web_address
from flow.errors import FlowBuildError

TOKEN_VARIABLE = "FLOW_WEB_TOKEN"
COOKIE = "flow_token"
LEAST_TOKEN_LENGTH = 16


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
            FlowBuildError: if the environment's token is too short.
        """
        if address.is_loopback:
            return cls(address, None)
        token = environ.get(TOKEN_VARIABLE, "")
        if token and len(token) < LEAST_TOKEN_LENGTH:
            raise FlowBuildError(
                f"{TOKEN_VARIABLE} must have at least {LEAST_TOKEN_LENGTH} characters, "
                f"got {len(token)}: make one with `python -c 'import secrets; "
                "print(secrets.token_urlsafe())'`"
            )
        return cls(address, token or secrets.token_urlsafe(24))

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

    def admits(self, authorization: str | None, cookie: str | None) -> bool:
        """Return True if a request's headers bear the token, or if none is needed."""
        if self.token is None:
            return True
        given = (authorization or "").removeprefix("Bearer ").strip()
        return self.is_token(given) or self.is_token(_cookie(cookie))

    def is_token(self, text: str) -> bool:
        """Return True if a text is the token, in a time that does not depend on the text."""
        return self.token is not None and hmac.compare_digest(text.encode(), self.token.encode())


def _cookie(header: str | None) -> str:
    try:
        found = SimpleCookie(header or "").get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value
