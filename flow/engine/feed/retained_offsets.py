"""Offsets in the log of the epochs that a checkpoint retains, from which a run can continue."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flow.connectors.source import Json, Planner
from flow.engine.feed.offsets import EpochOffset
from flow.engine.tables.versions import TableVersion
from flow.errors import CheckpointError

if TYPE_CHECKING:
    from flow.engine.checkpoint.checkpoint import Identity
    from flow.engine.checkpoint.storage import Storage

RELEASE_EPOCHS = 50
"""Epochs between two reads of the oldest retained epoch."""
_OWN_OFFSET = 2
"""Index of the line of the feed's offset in a file of Spark's offset log.

The version and the settings are on the lines before it.
"""


def oldest_offset(storage: Storage, identity: Identity) -> Json:
    """Return the feed's offset of the oldest epoch that a checkpoint retains.

    `rewind` needs the log of its target epoch, and Spark removes the logs of the oldest epochs
    first: so no run continues from an earlier offset.

    Returns:
        The offset as JSON; empty if unknown.
    """
    batches = _logged_batches(storage, identity)
    if not batches:
        return identity.start or {}
    try:
        offset = _own_offset(storage, identity, min(batches))
    except (CheckpointError, ValueError, IndexError):
        # Spark has just removed the file, or the file is damaged: a later call reads another.
        return {}
    return offset if isinstance(offset, dict) else {}


def oldest_offsets(storage: Storage, identity: Identity) -> Mapping[str, Json]:
    """Return the offset of each input in the oldest epoch that a checkpoint retains.

    Returns:
        Offsets by the input's name in offsets; empty if unknown.
    """
    return dict(oldest_offset(storage, identity).get("at", {}))


def oldest_table(storage: Storage, identity: Identity, name: str) -> TableVersion | None:
    """Return the version of a table in the oldest epoch that a checkpoint retains.

    Args:
        storage: the checkpoint's files.
        identity: the checkpoint's identity.
        name: the table's name in the checkpoint.

    Returns:
        The version; ``None`` if unknown.
    """
    found = oldest_offset(storage, identity).get("tables", {}).get(name)
    return None if found is None else TableVersion.from_json(found)


def logged_offset(storage: Storage, identity: Identity) -> Json:
    """Return the feed's offset in the newest log of an epoch; without logs, the first offset.

    Raises:
        CheckpointError: when the log cannot be read.
    """
    batches = _logged_batches(storage, identity)
    if not batches:
        return EpochOffset().to_json()
    try:
        return _own_offset(storage, identity, max(batches))
    except (ValueError, IndexError) as error:
        name = f"{storage.root}/{identity.spark}/offsets/{max(batches)}"
        raise CheckpointError(
            f"{name} is not a whole log of Spark: `python -m recovery verify` checks the checkpoint"
        ) from error


def _logged_batches(storage: Storage, identity: Identity) -> list[int]:
    """Return Spark's numbers of the epochs in its offset log."""
    names = storage.names(f"{identity.spark}/offsets")
    return [int(name) for name in names if name.isdecimal()]


def _own_offset(storage: Storage, identity: Identity, batch: int) -> Json:
    """Return the feed's offset in a file of Spark's offset log."""
    content = storage.read_bytes(f"{identity.spark}/offsets/{batch}")
    return json.loads(content.splitlines()[_OWN_OFFSET])


@dataclass
class Releases:
    """Schedule on which planners receive the oldest retained offsets.

    Attributes:
        oldest: returns these offsets by the inputs' names in offsets.
        planners: the planner of each input.
        offset_names: names of inputs in offsets, by step id, where the two differ.
    """

    oldest: Callable[[], Mapping[str, Json]]
    planners: Mapping[str, Planner]
    offset_names: Mapping[str, str]
    _epochs_left: int = 0

    def due(self) -> Mapping[str, Json]:
        """Return the oldest offset of each input every `RELEASE_EPOCHS` calls, else none."""
        self._epochs_left -= 1
        if self._epochs_left > 0:
            return {}
        self._epochs_left = RELEASE_EPOCHS
        oldest = self.oldest()
        offsets = {
            step_id: oldest.get(self.offset_names.get(step_id, step_id))
            for step_id in self.planners
        }
        return {step_id: offset for step_id, offset in offsets.items() if offset is not None}
