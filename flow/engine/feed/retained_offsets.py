"""Offsets of the epochs that a checkpoint retains, from which a run can continue."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flow.connectors.source import Json, Planner
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


def oldest_offsets(storage: Storage, identity: Identity) -> Mapping[str, Json]:
    """Return the offset of each input in the oldest epoch that a checkpoint retains.

    `rewind` needs the log of its target epoch, and Spark removes the logs of the oldest epochs
    first: so no run continues from an earlier offset.

    Returns:
        Offsets by the input's name in offsets; empty if unknown.
    """
    logs = f"{identity.spark}/offsets"
    epochs = [int(name) for name in storage.names(logs) if name.isdecimal()]
    if not epochs:
        return dict((identity.start or {}).get("at", {}))
    try:
        line = storage.read_bytes(f"{logs}/{min(epochs)}").splitlines()[_OWN_OFFSET]
        return dict(json.loads(line[line.index(b"{") :]).get("at", {}))
    except (CheckpointError, ValueError, IndexError, AttributeError, TypeError):
        # Spark has just removed the file, or the file is damaged: a later call reads another.
        return {}


@dataclass
class Releases:
    """Schedule on which planners receive the oldest retained offsets.

    Attributes:
        oldest: returns these offsets by the inputs' names in offsets.
        planners: the planner of each input.
        kept_as: names of inputs in offsets, by step id, where the two differ.
    """

    oldest: Callable[[], Mapping[str, Json]]
    planners: Mapping[str, Planner]
    kept_as: Mapping[str, str]
    _epochs_left: int = 0

    def due(self) -> Mapping[str, Json]:
        """Return the oldest offset of each input every `RELEASE_EPOCHS` calls, else none."""
        self._epochs_left -= 1
        if self._epochs_left > 0:
            return {}
        self._epochs_left = RELEASE_EPOCHS
        oldest = self.oldest()
        offsets = {
            step_id: oldest.get(self.kept_as.get(step_id, step_id)) for step_id in self.planners
        }
        return {step_id: offset for step_id, offset in offsets.items() if offset is not None}
