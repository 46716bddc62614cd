"""Answers to queries of views as JSON, for a server of HTTP.

`answer` takes the path below ``/view/`` and the parameters of a ``GET``, and returns status and
body. The paths:

- empty: the names of the views.
- ``<output>``: a range of keys, by ``start``, ``stop``, ``limit`` and ``next``. Of a view by window
  also a range of windows of all keys, by ``since``, ``until``, ``limit`` and ``next``.
- ``<output>/<key>``: the entry of a key. Of a view by window, the windows of the key, by ``since``,
  ``until``, ``limit`` and ``next``; or one window, with ``window=newest`` or its open time.

Output and key are percent-encoded, a slash in them too. Range ends are exclusive. Times are ISO
8601 text with an offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

from flow.connectors.formats.json_encoding import instant_text
from flow.errors import shorten
from flow.views.queries import Answer, Entry, Page, QueryError, UnknownViewError, View, Views
from flow.views.views_file import ViewError

MAX_LIMIT = 1_000
"""The most entries of an answer."""

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class JsonAnswer:
    """The answer to a query.

    Attributes:
        status: the status of HTTP: 200; 400 for an invalid query, 404 for a view or a key that does
            not exist, 503 for a file that cannot be read.
        body: the body, as the types that JSON has; with ``error`` unless the status is 200.
    """

    status: int
    body: Json


def answer(views: Callable[[], Views] | Views, path: str, query: Mapping[str, str]) -> JsonAnswer:
    """Answer a query as JSON; any thread may call it.

    Args:
        views: the views, or a function that opens them.
        path: the path after ``/view/``, percent-encoded as in the request, without the query.
        query: the parameters of the query, decoded.

    Example:
        >>> from flow.views import open
        >>> answer(lambda: open("missing"), "hourly/ann", {}).status
        503
    """
    try:
        opened = views if isinstance(views, Views) else views()
        return _answer(opened, path, query)
    except UnknownViewError as error:
        return JsonAnswer(404, {"error": str(error)})
    except QueryError as error:
        return JsonAnswer(400, {"error": str(error)})
    except (ViewError, OSError) as error:
        return JsonAnswer(503, {"error": str(error)})


def _answer(views: Views, path: str, query: Mapping[str, str]) -> JsonAnswer:
    if path == "":
        _checked(query, ())
        return JsonAnswer(200, {"views": list(views.names())})
    parts = [_decoded(part) for part in path.split("/")]
    if len(parts) > 2:
        raise QueryError(
            f"the path {shorten(path, 80)} has {len(parts)} parts: it is <output> or "
            "<output>/<key>, with %2F for a slash in either"
        )
    view = views[parts[0]]
    if len(parts) == 1:
        return JsonAnswer(200, _page(_range(view, query)))
    key = parts[1]
    if view.by == "window" and "window" not in query:
        _checked(query, ("since", "until", "limit", "next"))
        return JsonAnswer(200, _page(view.windows(key, **_times(query), **_paging(query))))
    _checked(query, ("window",) if view.by == "window" else ())
    window = query.get("window", "newest")
    return _one(view.get(key, None if window == "newest" else window), key)


def _range(view: View, query: Mapping[str, str]) -> Page:
    if view.by == "window" and ("since" in query or "until" in query):
        _checked(query, ("since", "until", "limit", "next"))
        return view.windows(**_times(query), **_paging(query))
    _checked(query, ("start", "stop", "limit", "next"))
    return view.range(query.get("start"), query.get("stop"), **_paging(query))


def _times(query: Mapping[str, str]) -> dict[str, Any]:
    return {name: query[name] for name in ("since", "until") if name in query}


def _paging(query: Mapping[str, str]) -> dict[str, Any]:
    after = query.get("next") or None
    if "limit" not in query:
        return {"after": after}
    text = query["limit"]
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 0 < int(text) <= MAX_LIMIT):
        raise QueryError(
            f"limit must be a whole number from 1 to {MAX_LIMIT}, got {shorten(text, 40)}"
        )
    return {"limit": int(text), "after": after}


def _checked(query: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Raise a `QueryError` if a query has other parameters than the known ones."""
    for name in query:
        if name not in known:
            wanted = ", ".join(known) or "none"
            raise QueryError(f"unknown parameter {shorten(name, 40)}; this query has: {wanted}")


def _decoded(part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError as error:
        raise QueryError(f"the path has {shorten(part, 80)}, which is not UTF-8") from error


def _one(found: Answer, key: str) -> JsonAnswer:
    body = _head(found)
    if found.entry is None:
        return JsonAnswer(404, {"error": f"no entry of {shorten(key, 80)}", **body})
    return JsonAnswer(200, {**body, "entry": _entry(found.entry)})


def _head(found: Answer | Page) -> Json:
    return {"view": found.view, "run_id": found.run_id, "epoch": found.epoch}


def _page(page: Page) -> Json:
    return {
        **_head(page),
        "entries": [_entry(entry) for entry in page.entries],
        "next": page.next,
    }


def _entry(entry: Entry) -> Json:
    content: Json = {"key": entry.key, "value": entry.value, "epoch": entry.epoch}
    if entry.window is not None:
        content["window"] = {
            "window_id": entry.window.window_id,
            "open_time": instant_text(entry.window.open_time),
            "close_time": instant_text(entry.window.close_time),
        }
    return content
