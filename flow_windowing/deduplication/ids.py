"""Ids of values, which tell a repeated value from a new one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flow.columns.chunks import as_objects, rows_of
from flow.errors import RAISED, brief, shorten
from flow.fields import field_path
from flow.keyed.logic import RejectedValue


@dataclass(frozen=True)
class IdOf:
    """The id of a value.

    Attributes:
        getter: a function of the value, the path of a field, or ``None`` for the whole value.

    >>> IdOf("order.id")({"order": {"id": 7}})
    7
    """

    getter: Callable[[Any], Any] | str | None = None

    def __call__(self, value: Any) -> Hashable:
        """Return the id of a value in a form that can be hashed.

        Raises:
            RejectedValue: when the value has no id, or the id has no hash or differs from itself.
        """
        getter = self.getter
        try:
            if getter is None:
                found = value
            elif isinstance(getter, str):
                found = field_path(getter).value_in(value)
            else:
                found = getter(value)
            made = hashable(found)
        except RAISED as error:
            raise RejectedValue(value, f"{self._name} gave no id: {brief(error)}") from error
        if made != made:
            raise RejectedValue(
                value, f"{self._name} gave {shorten(found)}, which differs from itself"
            )
        return made

    @property
    def fields(self) -> frozenset[str] | None:
        """The fields of a record that hold the id; ``None`` if any field may."""
        return field_path(self.getter).record_fields if isinstance(self.getter, str) else None

    def column(self, values: pa.RecordBatch | list[Any]) -> pa.Array | list[Hashable] | None:
        """Return the ids of values; ``None`` if a value has no id, so that the caller finds it.

        Args:
            values: rows of an Arrow schema, or Python objects.

        Returns:
            Arrow large text or int64 for ids in a column of text or integers, otherwise a list.
        """
        try:
            if not isinstance(values, pa.RecordBatch):
                return [self(value) for value in values]
            column = None
            if isinstance(self.getter, str):
                column = field_path(self.getter).column_in(values)
            if column is None:
                return [self(value) for value in rows_of(values)]
            return _comparable(column)
        except RejectedValue:
            return None

    @property
    def _name(self) -> str:
        return "the whole value" if self.getter is None else f"id {shorten(self.getter)}"


def hashable(value: Any) -> Hashable:
    """Return a value that can be hashed, and equals those of equal values.

    Dicts, lists and sets, also inside of tuples, become tuples and frozen sets.

    >>> hashable({"a": [1]}) == hashable({"a": [1]}) != hashable({"a": (1,)})
    True

    Raises:
        TypeError: when another value without a hash is found.
    """
    try:
        hash(value)
    except TypeError:
        return _frozen(value)
    return value  # type: ignore[no-any-return]  # It has a hash.


def _frozen(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return "dict", frozenset((name, hashable(one)) for name, one in value.items())
    if isinstance(value, list):
        return "list", tuple(map(hashable, value))
    if isinstance(value, tuple):
        return tuple(map(hashable, value))
    if isinstance(value, AbstractSet):
        return frozenset(value)
    raise TypeError(f"{type(value).__name__} {shorten(value)} cannot be hashed")


def _comparable(column: pa.Array) -> pa.Array | list[Hashable]:
    """Return a column of ids in the type in which columns of ids are compared."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.large_string())
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return column.cast(pa.int64())
    ids = [hashable(one) for one in as_objects(column)]
    # A NaN differs from itself.
    if any(one != one for one in ids):
        raise RejectedValue(None, "an id differs from itself")
    return ids
