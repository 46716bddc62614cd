"""The fields that steps name, and the fields of the records that they read in a run.

`flow.fields.paths_named` finds the fields in the configuration. For each chunk that a keyed step
reads, a task records if a record has them; the driver warns of a field that no record has had.
Other steps fail at the first record that lacks a field.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from flow.columns.chunks import Chunk, Items, Pairs
from flow.columns.record_batches import has_text_key, view_of
from flow.engine.epoch.statistics import SeenFields, merge_seen
from flow.errors import printable
from flow.fields import FieldPath, field_path, is_known_to_lack, names_in, nearest

logger = logging.getLogger("flow")


def see_fields(seen: SeenFields, step_id: str, paths: frozenset[str], chunk: Chunk) -> None:
    """Record if the records of a chunk have fields that a step names.

    The first record decides about most fields. Records follow until one has the field, so that
    a chunk costs a look at each only if none has.
    """
    for path in paths:
        if seen.get((step_id, path), ()) is not None:
            names = _names_without(field_path(path), chunk)
            merge_seen(seen, {(step_id, path): names})


def _names_without(path: FieldPath, chunk: Chunk) -> tuple[str, ...] | None:
    """Return the fields of a chunk's first record; ``None`` if a record has the field."""
    if isinstance(chunk, (Items, Pairs)):
        records = chunk.values if isinstance(chunk, Pairs) else list(map(_record_of, chunk.items))
        return None if any(map(path.is_in, records)) else names_in(records[0])
    schema = chunk.batch.schema
    lacks = view_of(chunk.batch) is None and is_known_to_lack(schema, path.text)
    return names_in(schema) if lacks else None


def _record_of(item: Any) -> Any:
    """Return the value of a pair, or the item."""
    return item[1] if has_text_key(item) else item


def missing_fields(seen: SeenFields) -> Iterator[tuple[str, str]]:
    """Yield each step that names a field that no record has had, and the problem."""
    for (step_id, path), names in seen.items():
        if names is not None:
            yield (
                step_id,
                f"no record that it has read has the field {path!r}, which only an aggregate with "
                f"missing='skip' may name{nearest(path, names)}",
            )


class FieldWarnings:
    """Warnings of fields that no record has, once for each field, after the first records."""

    def __init__(self) -> None:
        self._known: SeenFields = {}

    def __call__(self, seen: SeenFields) -> None:
        """Warn of fields that the records of an epoch lack, of each field once in a run."""
        new = {name: names for name, names in seen.items() if name not in self._known}
        self._known |= new
        for step_id, problem in missing_fields(new):
            logger.warning("step %r: %s", step_id, printable(problem))
