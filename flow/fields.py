"""Paths of fields, such as ``"details.started_at"``, into mappings and objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def get_path(item: Any, path: str) -> Any:
    """Read a field of an item: keys of mappings, attributes of anything else.

    A mapping that has the whole path as one key is read by it, so names that hold dots work.

    Args:
        item: a mapping or an object.
        path: field names with dots between them.

    Raises:
        KeyError: when there is no such field, with the path and the part that is missing.

    >>> get_path({"details": {"started_at": 5}}, "details.started_at")
    5
    """
    if isinstance(item, Mapping) and path in item:
        return item[path]
    found = item
    for part in path.split("."):
        try:
            found = found[part] if isinstance(found, Mapping) else getattr(found, part)
        except (KeyError, AttributeError):
            raise KeyError(f"there is no field {part!r} (of {path!r})") from None
    return found
