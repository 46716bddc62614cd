"""Paths, globs and URIs of users: checks, and the parts of a glob."""

from __future__ import annotations

import os
import re

from flow.errors import FlowBuildError, FlowTypeError, shorten

# Hadoop writes file:/data, with a single slash.
URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):(?://([^/?#]*)|(?=/))")
"""Start of a URI: its scheme, and its host or bucket."""


def as_paths(path: object) -> str | tuple[str, ...]:
    """Return the `path` argument of a source as text, or a list of paths as a tuple of texts.

    Raises:
        FlowBuildError: the argument, or a path in it, is empty.
        FlowTypeError: a path is neither text nor a `pathlib.Path`.
    """
    if isinstance(path, (list, tuple)):
        if not path:
            raise FlowBuildError("path must name at least one file, got an empty list")
        return tuple(map(as_path, path))
    return as_path(path)


def as_path(path: object) -> str:
    """Return one path or URI as text; raise the errors of `as_paths`."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise FlowTypeError(
            f"path must be text or a pathlib.Path, got {type(path).__name__} {shorten(path)}"
        )
    if not text.strip():
        raise FlowBuildError(f"path must name a file or a directory, got {text!r}")
    return text


def absolute(text: str) -> str:
    """Return a path from the root; a URI unchanged."""
    return text if URI.match(text) else os.path.abspath(os.path.expanduser(text))


def split_glob(text: str) -> tuple[str, list[str]]:
    """Return the directory before a glob's first wildcard, and the glob's parts from there on.

    In a URI a question mark starts the options, such as ``?region=eu-west-1``, and is no wildcard.
    A path without wildcards, and one that exists as written, has no parts.
    """
    is_uri = URI.match(text)
    body, mark, options = text.partition("?") if is_uri else (text, "", "")
    if not is_uri and os.path.exists(os.path.expanduser(text)):
        return text, []
    segments = body.split("/")
    wildcards = "*[" if is_uri else "*?["
    first = next((n for n, part in enumerate(segments) if any(c in part for c in wildcards)), None)
    if first is None:
        return text, []
    base = "/".join(segments[:first]) + "/" if first else "."
    return base + mark + options, [part for part in segments[first:] if part]
