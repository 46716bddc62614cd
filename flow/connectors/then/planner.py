"""Planner of a history and of the live source after it.

An epoch reads one of the two. The offset says which, and has the position that the history has led
to, so that a run continues with the same start of the live source wherever it stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from typing_extensions import override

from flow.connectors.source import Json, Planner, Slice, Split
from flow.instants import Moment

Part: TypeAlias = Literal["history", "live"]
"""Part of the source."""


@dataclass(frozen=True)
class Stage:
    """Offset of the source.

    Attributes:
        part: the part that is being read.
        at: offset of the part; ``None`` before its first slice.
        partitions: number of source partitions of the history so far. The partitions of the live
            source are numbered from there on.
        position: position that the history has led to; ``None`` without a rule or a position.
    """

    part: Part = "history"
    at: Json | None = None
    partitions: int = 0
    position: Json | None = None

    def to_json(self) -> Json:
        """Return the offset as JSON that `from_json` reads."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, offset: Json | None) -> Stage:
        """Return the offset that `to_json` encoded; the first stage for ``None``."""
        return cls() if offset is None else cls(**offset)


@dataclass(frozen=True)
class Parts:
    """Access of the planner to the two sources.

    Attributes:
        history: returns the planner of the history.
        live: returns the planner of the live source, for a position of the history.
        position_after: returns the position after more splits of the history.
    """

    history: Callable[[], Planner]
    live: Callable[[Json | None], Planner]
    position_after: Callable[[Json | None, Iterable[Split]], Json | None]


class ThenPlanner(Planner):
    """Planner that reads a history to its end, and then the live source.

    The planner of each part is made when the run reaches the part, so the history may be deleted
    once the live source is being read.

    Event time continues without a gap. The partitions of the history's last slice stay behind until
    the first slice of the live source, and the inputs' clock stands still, so that time that passes
    at the switch moves no watermark.

    Args:
        parts: the two sources.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._history: Planner | None = None
        self._live: Planner | None = None
        self._first_live: int | None = None
        self._is_at_switch = False
        self._only_present = False
        self._reached_us: Mapping[int, int] = {}

    @override
    def next(self, start: Json | None) -> Slice | None:
        stage = Stage.from_json(start)
        self._is_at_switch = False
        planner = self._planner_of(stage)
        planned = planner.next(stage.at)
        if stage.part == "live":
            return None if planned is None else _live_slice(stage, planned)
        if planned is not None:
            return self._history_slice(planner, stage, planned)
        return self._switch(stage) if planner.finished(stage.at) else None

    @override
    def finished(self, start: Json | None) -> bool:
        stage = Stage.from_json(start)
        if not self._planner_of(stage).finished(stage.at):
            return False
        return stage.part == "live" or self._live_planner(stage).finished(None)

    @override
    def stop_at_present(self) -> None:
        self._only_present = True

    @override
    def release(self, oldest: Json, now_us: int) -> None:
        stage = Stage.from_json(oldest)
        planner = self._live if stage.part == "live" else self._history
        # The other part's log is not written. One that is not open in this run does not grow.
        if planner is not None and stage.at is not None:
            planner.release(stage.at, now_us)

    @override
    def read_until_us(self, now: Moment, behind: bool) -> int | None:
        planner = self._latest
        if planner is None or self._is_at_switch:
            return None
        return planner.read_until_us(now, behind)

    @override
    def hear(self, reached_us: Mapping[int, int]) -> None:
        self._reached_us = dict(reached_us)

    @override
    def name_of(self, partition: int) -> str:
        first = self._first_live
        if first is not None and partition >= first and self._live is not None:
            return self._live.name_of(partition - first)
        return (
            super().name_of(partition)
            if self._history is None
            else self._history.name_of(partition)
        )

    @override
    def in_doubt(self) -> bool:
        return self._latest is not None and self._latest.in_doubt()

    @override
    def behind(self, start: Json | None) -> Mapping[str, int]:
        stage = Stage.from_json(start)
        return self._planner_of(stage).behind(stage.at)

    @override
    def lag(self, start: Json | None) -> str:
        stage = Stage.from_json(start)
        text = self._planner_of(stage).lag(stage.at)
        return f"history: {text}" if text and stage.part == "history" else text

    @override
    def close(self) -> None:
        for planner in (self._history, self._live):
            if planner is not None:
                planner.close()

    @property
    def _latest(self) -> Planner | None:
        """The planner that was last asked for a slice."""
        return self._history if self._live is None or self._first_live is None else self._live

    def _planner_of(self, stage: Stage) -> Planner:
        """Return the planner of a stage's part, and pass it the progress of its partitions."""
        if stage.part == "live":
            self._first_live = stage.partitions
            planner, first = self._live_planner(stage), stage.partitions
        else:
            self._first_live = None
            if self._history is None:
                self._history = self._opened(self._parts.history())
            planner, first = self._history, 0
        reached_us, self._reached_us = self._reached_us, {}
        heard = {number - first: us for number, us in reached_us.items() if number >= first}
        if heard:
            planner.hear(heard)
        return planner

    def _live_planner(self, stage: Stage) -> Planner:
        if self._live is None:
            self._live = self._opened(self._parts.live(stage.position))
        return self._live

    def _opened(self, planner: Planner) -> Planner:
        if self._only_present:
            planner.stop_at_present()
        return planner

    def _history_slice(self, planner: Planner, stage: Stage, planned: Slice) -> Slice:
        behind = set(planned.behind)
        read = {split.partition for split in planned.splits}
        self._is_at_switch = planner.finished(planned.end)
        if self._is_at_switch and not behind:
            behind = read
        partitions = max([stage.partitions, *(number + 1 for number in behind | read)])
        position = self._parts.position_after(stage.position, planned.splits)
        end = replace(stage, at=planned.end, partitions=partitions, position=position)
        splits = [_split("history", split, 0) for split in planned.splits]
        return replace(
            planned, end=end.to_json(), splits=splits, behind=sorted(behind), reached=partitions
        )

    def _switch(self, stage: Stage) -> Slice | None:
        """Return the first slice of the live source.

        The slice is empty if the source has no data, so that the switch is logged all the same.
        """
        live = replace(stage, part="live", at=None)
        planner = self._planner_of(live)
        planned = planner.next(None)
        if planned is None and planner.in_doubt():
            return None
        return _live_slice(live, planned or Slice(None))


def _live_slice(stage: Stage, planned: Slice) -> Slice:
    first = stage.partitions
    return replace(
        planned,
        end=replace(stage, at=planned.end).to_json(),
        splits=[_split("live", split, first) for split in planned.splits],
        behind=[first + number for number in planned.behind],
        first=first + planned.first,
        reached=None if planned.reached is None else first + planned.reached,
    )


def _split(part: Part, split: Split, first: int) -> Split:
    return Split([part, split.partition, split.what], first + split.partition, split.order)
