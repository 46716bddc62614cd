"""Progress of the inputs in event time, by which the feed postpones inputs that are far ahead.

A checkpoint retains the progress after each epoch, so that a resumed run reads its inputs in the
same epochs as an uninterrupted run. This matters to steps whose results depend on the order in
which items of two inputs arrive, such as `op.join`::

    <checkpoint>/progress/<epoch>.json     {"reached": [["in", 0, 7000000]], "gained": {"in": 1000}}
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from flow.connectors.source import Json
from flow.engine.epoch.statistics import SourcePartition
from flow.errors import CheckpointError
from flow.instants import NEVER, NO_PROGRESS

if TYPE_CHECKING:
    from flow.engine.checkpoint.storage import Storage

FOLDER = "progress"
logger = logging.getLogger("flow")


@dataclass(frozen=True)
class InputProgress:
    """Progress of the inputs after an epoch.

    Attributes:
        reached: event time of each source partition, in µs.
        gained: how far each input advanced in the last epoch that read it, in µs.
    """

    reached: Mapping[SourcePartition, int] = field(default_factory=dict)
    gained: Mapping[str, int] = field(default_factory=dict)

    def after(
        self,
        reached: Mapping[SourcePartition, int],
        read: Collection[str],
        behind: Collection[SourcePartition],
    ) -> InputProgress:
        """Return the progress after one more epoch.

        Args:
            reached: event time of the partitions that the epoch has read and reports, in µs.
            read: the inputs that the epoch read.
            behind: the partitions that are behind after the epoch.
        """
        still_behind = {one: us for one, us in self.reached.items() if one in behind}
        now = InputProgress({**still_behind, **reached})
        before, least = self.least(behind), now.least(behind)
        gained = {
            name: least[name] - before[name] for name in read if name in before.keys() & least
        }
        return InputProgress(now.reached, {**self.gained, **gained})

    def least(self, behind: Iterable[SourcePartition]) -> dict[str, int]:
        """Return the least progress, in µs, of each input's partitions that are behind.

        An input with a partition that is behind and has no progress is left out.
        """
        least: dict[str, int] = {}
        for name, number in behind:
            us = self.reached.get((name, number), NO_PROGRESS)
            least[name] = min(least.get(name, NEVER), us)
        return {name: us for name, us in least.items() if us > NO_PROGRESS}

    def ahead(
        self, groups: Iterable[Iterable[str]], behind: Iterable[SourcePartition]
    ) -> frozenset[str]:
        """Return the inputs that are far ahead of another input.

        In a group, an input is far ahead if its lead over the last input exceeds what the last
        input gained in the epoch that read it. This bounds buffered values.

        Args:
            groups: the inputs of each step that compares their progress.
            behind: the partitions that are behind.
        """
        least = self.least(behind)
        return frozenset(chain.from_iterable(self._ahead(group, least) for group in groups))

    def _ahead(self, group: Iterable[str], least: Mapping[str, int]) -> Iterator[str]:
        known = {name: least[name] for name in group if name in least}
        if len(known) < 2:
            return
        last = min(known, key=known.__getitem__)
        lead_us = self.gained.get(last, 0)
        if lead_us > 0:
            yield from (name for name, us in known.items() if us > known[last] + lead_us)

    def to_json(self) -> Json:
        """Return the progress as JSON."""
        reached = [[*partition, us] for partition, us in sorted(self.reached.items())]
        return {"reached": reached, "gained": dict(self.gained)}

    @classmethod
    def from_json(cls, content: Json) -> InputProgress:
        """Return the progress in JSON made by `to_json`."""
        reached = {(str(name), int(number)): int(us) for name, number, us in content["reached"]}
        return cls(reached, {str(name): int(us) for name, us in content["gained"].items()})


@dataclass(frozen=True)
class ProgressLog:
    """The progress of inputs after each epoch that a checkpoint retains.

    Attributes:
        storage: the checkpoint's directory.
        kept_epochs: number of epochs to retain.
    """

    storage: Storage
    kept_epochs: int

    def read(self, epoch: int) -> InputProgress:
        """Return the progress after an epoch; no progress if the checkpoint has none.

        A damaged file causes a warning: without it a run has the same items, in another order.
        """
        name = _name(epoch)
        if epoch < 0 or not self.storage.exists(name):
            return InputProgress()
        try:
            return InputProgress.from_json(self.storage.read(name))
        except (CheckpointError, KeyError, TypeError, ValueError, AttributeError):
            logger.warning(
                "%s/%s is damaged: the next epoch may read inputs that an uninterrupted run would "
                "read later; no item is lost",
                self.storage.root,
                name,
            )
            return InputProgress()

    def write(self, epoch: int, progress: InputProgress) -> None:
        """Write the progress after an epoch, and remove the progress that is no longer retained.

        Raises:
            CheckpointError: when a file cannot be written.
        """
        self.storage.write(_name(epoch), progress.to_json())
        self.storage.remove(_name(epoch - self.kept_epochs - 1))

    def remove_before(self, epoch: int) -> None:
        """Remove the progress after epochs before one, such as those of a larger `kept_epochs`."""
        for name in self.storage.names(FOLDER):
            number = name.removesuffix(".json")
            if number.isdecimal() and int(number) < epoch:
                self.storage.remove(f"{FOLDER}/{name}")


def _name(epoch: int) -> str:
    return f"{FOLDER}/{epoch}.json"
