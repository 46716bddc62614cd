"""Offsets of epochs, which Spark logs before an epoch runs, and those that a checkpoint retains."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flow.connectors.source import Json, Split
from flow.engine.epoch.context import Control, fronts_along
from flow.engine.steps.reading import Reading
from flow.engine.tables.table_files import TableVersion
from flow.errors import CheckpointError
from flow.format_version import VERSION, check_format

if TYPE_CHECKING:
    from flow.engine.checkpoint.identity import Identity
    from flow.engine.checkpoint.storage import Storage


@dataclass(frozen=True)
class EpochOffset:
    """End of an epoch, with everything that a replay needs.

    No two offsets are equal: Spark plans no epoch if a source's offset is unchanged.

    Attributes:
        control: system time, the epoch's number, and True if the input ends; ``None`` before the
            first epoch.
        at: offset of each input after the epoch, by the input's name in offsets.
        read: splits that the epoch reads, each with its input's step id.
        seed: directory of the state that the epoch restores; ``None`` if it restores none.
    """

    control: Control | None = None
    at: Mapping[str, Json] = field(default_factory=dict)
    read: tuple[tuple[str, Split], ...] = ()
    seed: str | None = None

    @property
    def ends_input(self) -> bool:
        """True if the epoch ends the input."""
        return self.control is not None and self.control.end_of_input

    def to_json(self) -> Json:
        """Return the offset as JSON."""
        if self.control is None:
            return {"v": VERSION}
        offset = {
            "v": VERSION,
            **self.control.to_json(),
            "at": dict(self.at),
            "read": [[step, *_parts_of(one)] for step, one in self.read],
        }
        return offset if self.seed is None else {**offset, "seed": self.seed}

    @classmethod
    def from_json(cls, offset: Json) -> EpochOffset:
        """Return the offset in JSON made by `to_json`; that before the first epoch if empty.

        Raises:
            CheckpointError: when the offset has another format.
        """
        if offset:
            check_format("the offset of an epoch", offset.get("v"))
        if "now" not in offset:
            return cls()
        control = Control.from_json(offset)
        read = tuple((step, Split(*parts)) for step, *parts in offset["read"])
        return cls(control, offset["at"], read, offset.get("seed"))

    def readings(self) -> list[Reading]:
        """Return the tasks that read the epoch's input, ordered by input, partition and split."""
        numbers = {} if self.control is None else self.control.source_numbers
        fronts = fronts_along({} if self.control is None else self.control.fronts, self.read)
        return [
            Reading(step, split, origin, 0, numbers.get((step, split.partition)), fronts_us)
            for origin, ((step, split), fronts_us) in enumerate(
                zip(self.read, fronts, strict=False)
            )
        ]


def _parts_of(split: Split) -> list[Json]:
    """Return the arguments of `Split`, without a greatest timestamp that is not known."""
    parts: list[Json] = [split.what, split.partition, split.order]
    return parts if split.peak_us is None else [*parts, split.peak_us]


@dataclass(frozen=True)
class Origin:
    """Start of a later generation of a checkpoint.

    Attributes:
        start: last offset of the generation before.
        begun: interrupted epoch of the generation before, to be replayed, if any.
        seed: directory of the state of the generation before.
    """

    start: EpochOffset
    begun: EpochOffset | None
    seed: str


def newest_name(step_id: str, names: Iterable[str]) -> str:
    """Return the name of an input's offset: the step id, or the name since its last reset."""
    start = json.dumps([step_id])[:-1] + ","
    name_of_reset = {json.loads(name)[1]: name for name in names if name.startswith(start)}
    return name_of_reset[max(name_of_reset)] if name_of_reset else step_id


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
    epochs = identity.epochs(storage, "offsets")
    if not epochs:
        return identity.start or {}
    try:
        offset = _own_offset(storage, identity, epochs[0])
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
    epochs = identity.epochs(storage, "offsets")
    if not epochs:
        return EpochOffset().to_json()
    try:
        return _own_offset(storage, identity, epochs[-1])
    except (ValueError, IndexError) as error:
        name = f"{storage.root}/{identity.log_file('offsets', epochs[-1])}"
        raise CheckpointError(
            f"{name} is not a whole log of Spark: `python -m recovery verify` checks the checkpoint"
        ) from error


def _own_offset(storage: Storage, identity: Identity, epoch: int) -> Json:
    """Return the feed's offset in a file of Spark's offset log."""
    content = storage.read_bytes(identity.log_file("offsets", epoch))
    return json.loads(content.splitlines()[_OWN_OFFSET])


def foreign_offsets(storage: Storage, identity: Identity, epoch: int) -> list[bytes]:
    """Return the offset of each of Spark's sources after an epoch, as Spark logs it."""
    name = identity.log_file("offsets", epoch)
    lines = storage.read_bytes(name).splitlines() if storage.exists(name) else []
    return [line for line in lines[_OWN_OFFSET + 1 :] if line != b"-"]
