"""Arrow types with other leaf types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa


def with_leaves(kind: Any, change: Callable[[Any], Any]) -> Any:
    """Return a type with `change` applied to each leaf of its structs, lists and maps, in order.

    >>> texts = pa.list_(pa.struct([("a", pa.string()), ("n", pa.int64())]))
    >>> str(with_leaves(texts, lambda leaf: pa.binary() if leaf == pa.string() else leaf))
    'list<item: struct<a: binary, n: int64>>'
    """
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(with_leaves(field.type, change)) for field in kind])
    if pa.types.is_map(kind):
        key = with_leaves(kind.key_type, change)
        return pa.map_(key, kind.item_field.with_type(with_leaves(kind.item_type, change)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(with_leaves(kind.value_type, change)))
    return change(kind)
