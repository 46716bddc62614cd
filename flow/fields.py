"""Field paths, such as ``"details.started_at"``, and how they resolve in items and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A path to a field: field names with dots between them.

    A mapping or a record batch with a field of the whole text's name is read by that field, so
    names that hold dots work.

    Attributes:
        text: the path as the user writes it.
        parts: the names between the dots.

    >>> FieldPath("details.started_at").value_in({"details": {"started_at": 5}})
    5
    """

    text: str
    parts: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.text.split(".")))

    @property
    def is_valid(self) -> bool:
        """True if no name in the path is empty."""
        return all(self.parts)

    @property
    def record_fields(self) -> frozenset[str]:
        """The fields of a record that may hold the value: the whole text, and the first name."""
        return frozenset((self.text, self.parts[0]))

    def value_in(self, item: Any) -> Any:
        """Read the field of an item: keys of mappings, attributes of any other object.

        Raises:
            KeyError: when the item has no such field, with the missing name and the nearest one.
        """
        found, missing = self._walk(item)
        if missing is not None:
            parent = field_path(self.text.rpartition(".")[0])
            is_none = parent.is_in(item) and parent.find(item) is None
            near = f": {parent.text!r} is None" if is_none else nearest(self.text, names_in(item))
            raise KeyError(f"there is no field {missing!r} (of {self.text!r}){near}")
        return found

    def find(self, item: Any) -> Any:
        """Read the field of an item as `value_in` does; ``None`` if the item has none."""
        return self._walk(item)[0]

    def is_in(self, item: Any) -> bool:
        """Return True if an item has the field."""
        return self._walk(item)[1] is None

    def _walk(self, item: Any) -> tuple[Any, str | None]:
        """Return the value of the field; or ``None``, and the first name that is missing."""
        if isinstance(item, Mapping) and self.text in item:
            return item[self.text], None
        found = item
        for part in self.parts:
            try:
                found = found[part] if isinstance(found, Mapping) else getattr(found, part)
            except (KeyError, AttributeError):
                return None, part
        return found, None

    def column_in(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Return the column of the field, also inside structs; ``None`` if the batch has none."""
        if self.text in batch.schema.names:
            return batch.column(self.text)
        first, *rest = self.parts
        if first not in batch.schema.names:
            return None
        column = batch.column(first)
        for name in rest:
            kind = column.type
            if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
                return None
            column = pc.struct_field(column, name)
        return column


field_path = lru_cache(maxsize=1_024)(FieldPath)
"""Make a `FieldPath`, parsed once for each text: for code that holds paths as text."""


def paths_named(config: Any, side: int = 0) -> frozenset[str]:
    """Return the paths of the fields that a step expects in the records of a stream it reads.

    The paths are the texts in arguments that a class of configuration declares by its attribute
    ``NAMES_FIELDS``, and by ``NAMES_RIGHT`` for the streams that a step reads after its first. Such
    an argument may be a configuration too.

    Args:
        config: a path, a configuration, or several of them.
        side: the index of the stream among those that the step reads.
    """
    if isinstance(config, str):
        return frozenset((config,))
    if isinstance(config, Mapping):
        config = tuple(config.values())
    if not isinstance(config, (tuple, frozenset)):
        names = getattr(config, "NAMES_FIELDS", ())
        names += getattr(config, "NAMES_RIGHT", ()) if side else ()
        config = [getattr(config, name) for name in names]
    return frozenset[str]().union(*(paths_named(part, side) for part in config))


def names_in(record: Any, prefix: str = "") -> tuple[str, ...]:
    """Return the paths of the fields of a record, or of the columns of an Arrow schema or struct.

    >>> names_in({"at": 5, "user": {"id": 1}})
    ('at', 'user', 'user.id')
    """
    if isinstance(record, (pa.Schema, pa.StructType)):
        parts = {field.name: field.type for field in record}
    elif isinstance(record, Mapping):
        parts = {name: part for name, part in record.items() if isinstance(name, str)}
    else:
        slots = getattr(record, "_fields", getattr(record, "__dataclass_fields__", ()))
        parts = dict.fromkeys(slots or getattr(record, "__dict__", ()))
    found = list[str]()
    for name, part in parts.items():
        found += [prefix + name]
        if isinstance(part, (Mapping, pa.StructType)):
            found += names_in(part, f"{prefix}{name}.")
    return tuple(found)


def is_known_to_lack(schema: pa.Schema, path: str) -> bool:
    """Return True if records with the columns of a schema do not have a field.

    A part of a value that is no struct may be an attribute of its Python object.
    """
    names, parent = names_in(schema), path
    while parent not in names and "." in parent:
        parent = parent.rpartition(".")[0]
    is_struct = any(name.startswith(f"{parent}.") for name in names)
    return parent not in names or (parent != path and is_struct)


_MOST_NAMES = 12
"""Greatest number of names that an error lists."""


@lru_cache(maxsize=1_024)
def nearest(path: str, names: tuple[str, ...]) -> str:
    """Return the end of an error about a missing field: the nearest name, or the names there are.

    >>> nearest("amuont", ("at", "amount"))
    ": is it 'amount'?"
    >>> nearest("x", ("at", "amount"))
    ": there are 'at', 'amount'"
    """
    parent = path.rpartition(".")[0]
    names = tuple(name for name in names if parent and name.startswith(f"{parent}.")) or names
    close = get_close_matches(path, names, n=1)
    if close:
        return f": is it {close[0]!r}?"
    listed = [*map(repr, names[:_MOST_NAMES]), *(["…"] if len(names) > _MOST_NAMES else [])]
    return f": there are {', '.join(listed)}" if names else ""
