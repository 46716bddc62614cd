"""Place of a table in a lakehouse, and the types and arguments of its connectors."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from flow.checks import wrong_type
from flow.columns.arrow_types import COMMON_TYPES, is_instant, with_leaves
from flow.connectors.files.filesystems import without_credentials
from flow.errors import FlowError, FlowTypeError, SinkError, shorten

_SHOWN = 300
"""Characters of an error of the storage, at most."""


class LakePlace(ABC):
    """Place of a table.

    Attributes:
        error: class of the errors that `explained` raises.
    """

    error: type[FlowError]

    @abstractmethod
    def open(self) -> Any:
        """Return the newest version of the table; ``None`` if there is no table."""

    def close(self, table: Any) -> None:  # noqa: B027  (most tables hold no resources)
        """Release the resources of a table."""

    @abstractmethod
    def secrets(self) -> Collection[str]:
        """Return texts that no error may show."""

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """Open the table for a block; ``None`` if there is no table."""
        table = self.open()
        try:
            yield table
        finally:
            if table is not None:
                self.close(table)

    @contextlib.contextmanager
    def explained(self, problem: str) -> Iterator[None]:
        """Raise the exceptions of the block as `error`, without secrets."""
        try:
            yield
        except FlowError:
            raise
        except Exception as cause:
            text = " ".join(str(cause).split())[:_SHOWN]
            for secret in self.secrets():
                text = text.replace(secret, "***") if len(secret) > 3 else text
            raise self.error(f"{problem}: {without_credentials(text)}") from None


def as_options(name: str, options: object) -> dict[str, str]:
    """Return an argument that maps names to texts as a dict."""
    if not isinstance(options, Mapping):
        raise wrong_type(f"{name} must map names to texts", options)
    for option, value in options.items():
        if not isinstance(option, str) or not isinstance(value, str):
            raise FlowTypeError(f"{name} must map names to texts, got {shorten(option)}")
    return dict(options)


def with_hidden_options(self: Any) -> str:
    """Return the `repr` of a connector, without credentials and the values of its options."""
    arguments: list[str] = []
    for one in sorted(fields(self), key=lambda field: bool(field.kw_only)):
        value = getattr(self, one.name)
        if not one.init or (one.kw_only and value in (one.default, {})):
            continue
        shown = dict.fromkeys(value, "***") if isinstance(value, dict) else value
        text = without_credentials(repr(shown)) if isinstance(value, str) else repr(shown)
        arguments.append(f"{one.name}={text}" if one.kw_only else text)
    return f"{type(self).__name__}({', '.join(arguments)})"


TABLE_TYPES = {
    **COMMON_TYPES,
    pa.uint64(): pa.decimal128(38, 0),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}
"""For types that table formats lack, types that hold the same values."""


@dataclass(frozen=True)
class StoredTypes:
    """Types of the columns of a table format.

    Attributes:
        name: name of the format.
        others: for types that the format lacks, types that hold the same values.
        has_clock_times: True if the format has a type for times of day.
    """

    name: str
    others: Mapping[Any, Any]
    has_clock_times: bool = False

    def storable(self, schema: pa.Schema, step_id: str) -> pa.Schema:
        """Return columns with the types of the format that hold the same values.

        Raises:
            SinkError: the format has no such type.
        """

        def stored(kind: Any) -> Any:
            types = pa.types
            if types.is_dictionary(kind):
                return stored(kind.value_type)
            if types.is_timestamp(kind):
                return pa.timestamp("us", "UTC" if is_instant(kind) else None)
            if types.is_time(kind) and self.has_clock_times:
                return pa.time64("us")
            if types.is_time(kind) or types.is_duration(kind):
                raise SinkError(
                    f"step {step_id!r}: {self.name} has no type for {kind}, of a field among "
                    f"{shorten(schema.names)}: map it to text or to a number before the output"
                )
            return self.others.get(kind, kind)

        return pa.schema([one.with_type(with_leaves(one.type, stored)) for one in schema])
