"""Offsets of epochs: plain JSON, which Spark logs before an epoch runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flow.connectors.source import Json, Split
from flow.engine.epoch.context import Control
from flow.engine.steps.reading import Reading
from flow.format_version import VERSION, check_format


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

    def to_json(self) -> Json:
        """Return the offset as JSON."""
        if self.control is None:
            return {"v": VERSION}
        offset = {
            "v": VERSION,
            **self.control.to_json(),
            "at": dict(self.at),
            "read": [[step, one.what, one.partition, one.order] for step, one in self.read],
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
        read = tuple((step, Split(what, part, order)) for step, what, part, order in offset["read"])
        return cls(control, offset["at"], read, offset.get("seed"))

    def readings(self) -> list[Reading]:
        """Return the tasks that read the epoch's input, ordered by input, partition and split."""
        sources = None if self.control is None else self.control.sources
        numbers = {partition: number for number, partition in enumerate(sources or ())}
        return [
            Reading(step, split, origin, source=numbers.get((step, split.partition)))
            for origin, (step, split) in enumerate(self.read)
        ]


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
