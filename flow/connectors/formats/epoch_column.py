"""Column that readers find in a directory of epochs, from the names of its folders."""

from __future__ import annotations

from collections.abc import Iterable

from flow.errors import SinkError

EPOCH_COLUMN = "epoch"
"""Name before the equals sign of each epoch's folder, which readers take for a column."""


def check_names(names: Iterable[object], step_id: str) -> None:
    """Raise a `SinkError` if a field has the name of the epoch column, in any case."""
    for name in names:
        if isinstance(name, str) and name.lower() == EPOCH_COLUMN:
            raise SinkError(
                f"step {step_id!r}: field {name!r} cannot be written: the directories of the "
                f"output make a column of the name {EPOCH_COLUMN!r}. Give the field another name"
            )
