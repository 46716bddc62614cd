"""The column that readers make of the names of the folders in a directory of epochs."""

from __future__ import annotations

from collections.abc import Iterable

from flow.errors import SinkError

EPOCH_COLUMN = "epoch"
"""Name of the column: the part of the name of an epoch's folder before the equals sign."""


def check_names(names: Iterable[object], step_id: str) -> None:
    """Raise a `SinkError` if a field has the name of the epoch column, in any case."""
    for name in names:
        if isinstance(name, str) and name.lower() == EPOCH_COLUMN:
            raise SinkError(
                f"step {step_id!r}: field {name!r} cannot be written: the directories of the "
                f"output make a column of the name {EPOCH_COLUMN!r}. Give the field another name"
            )
