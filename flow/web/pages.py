"""The files of the page, and the headers of every answer."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from types import MappingProxyType

SECURITY_HEADERS = MappingProxyType(
    {
        "Content-Security-Policy": "; ".join(
            [
                "default-src 'none'",
                "script-src 'self'",
                "style-src 'self'",
                "connect-src 'self'",
                "img-src 'self'",
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

_JAVASCRIPT = "text/javascript; charset=utf-8"
_CSS = "text/css; charset=utf-8"

FILES = MappingProxyType(
    {
        "/": ("index.html", "text/html; charset=utf-8"),
        "/page.js": ("page.js", _JAVASCRIPT),
        "/graph.js": ("graph.js", _JAVASCRIPT),
        "/charts.js": ("charts.js", _JAVASCRIPT),
        "/inside.js": ("inside.js", _JAVASCRIPT),
        "/format.js": ("format.js", _JAVASCRIPT),
        "/page.css": ("page.css", _CSS),
        "/icon.svg": ("icon.svg", "image/svg+xml"),
        "/vendor/uPlot.iife.min.js": ("vendor/uPlot.iife.min.js", _JAVASCRIPT),
        "/vendor/uPlot.min.css": ("vendor/uPlot.min.css", _CSS),
        "/vendor/dagre.esm.js": ("vendor/dagre.esm.js", _JAVASCRIPT),
    }
)
"""The files by path of the URL, with their content types; no other file is served."""

LOGIN = "login.html"


@cache
def content(name: str) -> bytes:
    """Return the content of a file of the page."""
    return files("flow.web").joinpath("assets", name).read_bytes()
