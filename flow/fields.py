"""Field paths, such as ``"details.started_at"``, and how they resolve in items and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
            KeyError: when the item has no such field, with the path and the missing name.
        """
        if isinstance(item, Mapping) and self.text in item:
            return item[self.text]
        found = item
        for part in self.parts:
            try:
                found = found[part] if isinstance(found, Mapping) else getattr(found, part)
            except (KeyError, AttributeError):
                raise KeyError(f"there is no field {part!r} (of {self.text!r})") from None
        return found

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
