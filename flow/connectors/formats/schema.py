"""Argument `schema` of sources and sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from flow.errors import FlowBuildError, FlowTypeError, shorten

Schema: TypeAlias = "pa.Schema | Mapping[str, pa.DataType]"
"""Columns in order: a `pyarrow.Schema`, or a mapping of names to pyarrow types."""


def as_schema(schema: object) -> Any:
    """Return the argument as a `pyarrow.Schema`; ``None`` if it is ``None``.

    Raises:
        FlowTypeError: it is neither a schema nor a mapping of names to pyarrow types.
        FlowBuildError: it has no columns, or a name twice.
    """
    if schema is None:
        return None
    if isinstance(schema, Mapping):
        for name, kind in schema.items():
            if not isinstance(name, str) or not isinstance(kind, pa.DataType):
                raise FlowTypeError(
                    "schema must map names to pyarrow types, such as {'delay': pa.int64()}, "
                    f"got {shorten(name)}: {shorten(kind)}"
                )
        schema = pa.schema(list(schema.items()))
    if not isinstance(schema, pa.Schema):
        raise FlowTypeError(
            "schema must be a pyarrow.Schema or a mapping of names to pyarrow types, "
            f"got {type(schema).__name__} {shorten(schema)}"
        )
    names = schema.names
    if not names or len(set(names)) < len(names):
        raise FlowBuildError(f"schema must have columns, each name once, got {shorten(names)}")
    return schema
