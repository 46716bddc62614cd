"""Offsets that a run may still go on from: those of the epochs that a checkpoint keeps."""

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
"""Epochs between two looks at what the checkpoint keeps."""
_OWN_OFFSET = 2
"""Line of the flow's own offset in what Spark logs of an epoch, after the version and settings."""


def oldest_offsets(storage: Storage, identity: Identity) -> Mapping[str, Json]:
    """Return the offset of each input in the oldest epoch that a checkpoint keeps.

    `rewind` sets a checkpoint back to an epoch whose log is there, and Spark removes the logs of
    the oldest epochs first: nothing goes on from an offset before these.

    Returns:
        Offsets by the name under which an input keeps them; none where that is not known.
    """
    logs = f"{identity.spark}/offsets"
    epochs = [int(name) for name in storage.names(logs) if name.isdecimal()]
    if not epochs:
        return dict((identity.start or {}).get("at", {}))
    try:
        line = storage.read_bytes(f"{logs}/{min(epochs)}").splitlines()[_OWN_OFFSET]
        return dict(json.loads(line[line.index(b"{") :]).get("at", {}))
    except (CheckpointError, ValueError, IndexError, AttributeError, TypeError):
        return {}  # Spark has just removed it, or it was damaged: a later look will do


@dataclass
class Releases:
    """Tells planners, now and then, the oldest offsets that the checkpoint keeps.

    Attributes:
        oldest: returns these offsets, by the names under which inputs keep them.
        planners: the planner of each input.
        kept_as: the names under which inputs keep their offsets, where these are not their ids.
    """

    oldest: Callable[[], Mapping[str, Json]]
    planners: Mapping[str, Planner]
    kept_as: Mapping[str, str]
    _wait: int = 0

    def due(self) -> Mapping[str, Json]:
        """Return the oldest offset of each input if it is time to say so; called once an epoch."""
        self._wait -= 1
        if self._wait > 0:
            return {}
        self._wait = RELEASE_EPOCHS
        oldest = self.oldest()
        kept = {
            step_id: oldest.get(self.kept_as.get(step_id, step_id)) for step_id in self.planners
        }
        return {step_id: offset for step_id, offset in kept.items() if offset is not None}
