"""Offsets of epochs: plain JSON, which Spark logs before an epoch runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flow.connectors.source import Json, Split
from flow.engine.epoch.context import Control
from flow.engine.steps.reading import Reading


@dataclass(frozen=True)
class EpochOffset:
    """Where an epoch ends, and all that is needed to run it again.

    Attributes:
        control: its system time, and whether the input ends with it; ``None`` before the first.
        at: the offset that each input has reached, by step.
        read: what it reads.
        seed: the directory of the state that it puts in place.
        again: what sets it apart from the one before where nothing else does. The clock may stand
            still, or be set back; and of a source that has come no further Spark asks nothing.
    """

    control: Control | None = None
    at: Mapping[str, Json] = field(default_factory=dict)
    read: tuple[tuple[str, Split], ...] = ()
    seed: str | None = None
    again: bool = False

    def to_json(self) -> Json:
        """The offset as JSON."""
        if self.control is None:
            return {"v": 1}
        offset = {
            "v": 1,
            **self.control.to_json(),
            "at": dict(self.at),
            "read": [[step, one.what, one.partition, one.order] for step, one in self.read],
        }
        if self.again:
            offset["again"] = True
        return offset if self.seed is None else {**offset, "seed": self.seed}

    @classmethod
    def from_json(cls, offset: Json) -> EpochOffset:
        """The offset in JSON made by `to_json`."""
        if "now" not in offset:
            return cls()
        control = Control.from_json(offset)
        read = tuple((step, Split(what, part, order)) for step, what, part, order in offset["read"])
        return cls(control, offset["at"], read, offset.get("seed"), offset.get("again", False))

    def readings(self) -> list[Reading]:
        """The tasks that read the epoch's input, in order of input, partition and place."""
        sources = None if self.control is None else self.control.sources
        numbers = {partition: number for number, partition in enumerate(sources or ())}
        return [
            Reading(step, split, origin, source=numbers.get((step, split.partition)))
            for origin, (step, split) in enumerate(self.read)
        ]


@dataclass(frozen=True)
class Origin:
    """Where a later generation of a checkpoint starts from.

    Attributes:
        start: where the generation before had come.
        begun: the epoch that it had begun and not finished: it is run again.
        seed: the directory of its state.
    """

    start: EpochOffset
    begun: EpochOffset | None
    seed: str


def newest_name(step_id: str, names: Iterable[str]) -> str:
    """The name that an input keeps its offset under: its id, or what the last reset made of it."""
    start = json.dumps([step_id])[:-1] + ","
    reset = {json.loads(one)[1]: one for one in names if one.startswith(start)}
    return reset[max(reset)] if reset else step_id
