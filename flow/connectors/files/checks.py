"""Checks of the arguments that the file connectors share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from flow.connectors.source import ON_INVALID
from flow.errors import FlowBuildError, FlowTypeError, shorten

Schema: TypeAlias = "pa.Schema | Mapping[str, pa.DataType]"
"""Columns in order: a `pyarrow.Schema`, or a mapping of names to pyarrow types."""


def checked_schema(schema: object) -> Any:
    """A schema argument as a `pyarrow.Schema`, or ``None``."""
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


def check_count(name: str, value: object, unit: str) -> None:
    """Raise unless a parameter is a positive whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise FlowTypeError(
            f"{name} must be a whole number of {unit}, got {type(value).__name__} {shorten(value)}"
        )
    if value < 1:
        raise FlowBuildError(f"{name} must be at least 1 {unit.removesuffix('s')}, got {value}")


def check_flag(name: str, value: object) -> None:
    """Raise unless a parameter is a boolean."""
    if not isinstance(value, bool):
        raise FlowTypeError(
            f"{name} must be True or False, got {type(value).__name__} {shorten(value)}"
        )


def check_on_invalid(value: object) -> None:
    """Raise unless `value` is one of the ways to deal with what cannot be read."""
    check_choice("on_invalid", value, ON_INVALID)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise unless a parameter is one of a few words."""
    if value not in choices:
        listed = ", ".join(map(repr, choices))
        raise FlowBuildError(f"{name} must be one of {listed}, got {shorten(value)}")


def check_delimiter(delimiter: object) -> None:
    """Raise unless cells can be separated by this."""
    if not isinstance(delimiter, str):
        raise FlowTypeError(
            f"delimiter must be text, got {type(delimiter).__name__} {shorten(delimiter)}"
        )
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise FlowBuildError(
            "delimiter must be one ASCII character, neither a quote nor a line end, "
            f"got {shorten(delimiter)}"
        )
