"""Addresses of servers, and connections that are made on trial."""

from __future__ import annotations

import re
import socket

CONNECT_SECONDS = 5.0
"""The time after which an address that does not answer counts as not reached."""

_ADDRESS = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+)):(\d{1,5})")


def address(text: str) -> tuple[str, int] | None:
    """Return host and port of ``HOST:PORT``; ``None`` for other text.

    >>> address("broker:9092"), address("[::1]:9092"), address("broker")
    (('broker', 9092), ('::1', 9092), None)
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or not 0 < int(match[3]) < 1 << 16:
        return None
    return match[1] or match[2], int(match[3])


def refusal(host: str, port: int) -> str | None:
    """Return the reason why a connection fails; ``None`` if it does not."""
    try:
        socket.create_connection((host, port), CONNECT_SECONDS).close()
    except OSError as error:
        return str(error) or type(error).__name__
    return None
