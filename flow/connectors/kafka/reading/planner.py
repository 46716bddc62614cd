"""Planning what each epoch reads of topics.

The offset of a source maps partitions to the offsets of their next messages: ``{"orders/0": 17}``.
A partition's place in it is its number as a source partition, so partitions are only ever added.

A range of offsets counts as read whether or not messages come of it: markers of transactions and
messages that were compacted away hold offsets, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from typing_extensions import override

from flow.connectors.kafka.cluster import Cluster, Ends, TopicPartition, Unreachable, matches
from flow.connectors.kafka.reading.losses import LossWatch, OnDataLoss
from flow.connectors.kafka.reading.polls import PollHistory
from flow.connectors.kafka.reading.positions import (
    EARLIEST,
    LATEST,
    Offsets,
    Position,
    milliseconds,
)
from flow.connectors.kafka.reading.weighing import Scales
from flow.connectors.source import Json, Planner, Slice, Split
from flow.errors import SourceError
from flow.leveling import Leveling

FIRST_SECONDS = 20.0
"""How long a run waits for a broker that has never answered it."""
LEAST_SPLIT = 20_000
"""Messages; reading fewer takes less time than starting a task."""
_MOST_LISTED = 3
"""Names that an error lists, at most."""

Answer = TypeVar("Answer")

logger = logging.getLogger("flow")


@dataclass(frozen=True)
class Reach:
    """What a planner is to read.

    Attributes:
        topics: the topics, by name.
        pattern: what the names of topics match, instead.
        start: where to start.
        end: where to end; ``None`` for never.
        per_epoch: how many messages an epoch reads, at most.
        on_data_loss: what to do when messages are gone.
        looking_seconds: how often to look for new partitions.
        patience_seconds: how long to wait for brokers that do not answer.
    """

    topics: tuple[str, ...]
    pattern: str | None
    start: Position
    end: Position | None
    per_epoch: int
    on_data_loss: OnDataLoss
    looking_seconds: float
    patience_seconds: float


class KafkaPlanner(Planner):
    """Plans epochs of at most so many messages over the partitions of topics.

    An epoch of a backlog is dealt out so that partitions come forward together in event time.

    Args:
        reach: what to read.
        cluster: the brokers.
        parallelism: how many tasks can read at once.
        clock: seconds that never go back.
        scales: what finds how many messages an epoch may hold, where that goes by their size.
    """

    def __init__(
        self,
        reach: Reach,
        cluster: Cluster,
        parallelism: int,
        clock: Callable[[], float] = time.monotonic,
        scales: Scales | None = None,
    ) -> None:
        self._reach = reach
        self._scales = scales
        self._cluster = cluster
        self._parallelism = max(1, parallelism)
        self._clock = clock
        self._until = reach.end
        self._losses = LossWatch(reach.on_data_loss, clock)
        self._fixed: Ends | None = None
        self._ends: Ends = {}
        self._certain_ends: Ends = {}
        self._after: Ends = {}
        self._polls = PollHistory()
        self._leveling = Leveling[TopicPartition]()
        self._reached_us: Mapping[int, int] = {}
        self._partitions: list[TopicPartition] = []
        self._looked_at = float("-inf")
        self._silent_since: float | None = None
        self._answered = False

    @override
    def stop_at_present(self) -> None:
        if self._until is None:
            self._until = LATEST

    @override
    def next(self, start: Json | None) -> Slice | None:
        return self._patiently(lambda: self._next(start))

    @override
    def read_until_us(self, now_us: int, behind: bool) -> int | None:
        if self.in_doubt():
            return None
        self._polls.add(now_us, self._ends)
        return self._polls.read_until_us(self._after)

    @override
    def hear(self, reached_us: Mapping[int, int]) -> None:
        self._reached_us = dict(reached_us)

    @override
    def name_of(self, partition: int) -> str:
        names = list(self._after)
        return str(names[partition]) if partition < len(names) else super().name_of(partition)

    @override
    def finished(self, start: Json | None) -> bool:
        if self._reach.end is None or self._losses.in_doubt:
            return False
        return bool(self._patiently(lambda: self._is_finished(start)))

    @override
    def in_doubt(self) -> bool:
        return self._silent_since is not None or self._losses.in_doubt

    @override
    def behind(self, start: Json | None) -> Mapping[str, int]:
        at = _decoded(start)
        return {str(one): max(0, end - at[one]) for one, end in self._ends.items() if one in at}

    def _patiently(self, question: Callable[[], Answer]) -> Answer | None:
        """Ask; while no broker answers there is no answer, for so long."""
        asked_at = self._clock()
        try:
            answer = question()
        except Unreachable as error:
            if self._silent_since is None:
                self._silent_since = asked_at
                if self._answered:
                    logger.warning("%s; waiting for it", error)
            waited = self._clock() - self._silent_since
            patience = self._reach.patience_seconds
            if waited < (patience if self._answered else min(FIRST_SECONDS, patience)):
                return None
            raise SourceError(f"{error}; waited {waited:.0f} s") from None
        if self._silent_since is not None and self._answered:
            logger.warning("Kafka answers again")
        self._silent_since, self._answered = None, True
        return answer

    def _next(self, start: Json | None) -> Slice | None:
        known = _decoded(start)
        self._level(known)
        at = {**known, **self._new(start, known)}
        latest = self._cluster.latest(at)
        self._ends = self._limited(latest, at)
        backlog = self._backlog(at)
        at |= self._losses.mended(at, latest, backlog, self._cluster.earliest)
        self._end_before_losses(at, latest)
        shares = self._shares(at)
        self._after = {one: offset + shares.get(one, 0) for one, offset in at.items()}
        behind = self._left()
        # With nothing to read, where to go on is worth an epoch if it is news.
        if not shares and start is not None and at == known:
            return None
        ends = {str(one): offset for one, offset in self._after.items()}
        return Slice(ends, list(self._splits(at, shares)), behind=behind)

    def _level(self, known: Ends) -> None:
        """Learn how far partitions have come in event time at the offsets that are known."""
        reached_us = {
            one: self._reached_us[number]
            for number, one in enumerate(known)
            if number in self._reached_us
        }
        self._leveling.hear(reached_us, known)
        self._reached_us = {}

    def _backlog(self, at: Ends) -> dict[TopicPartition, int]:
        """How many messages there are to read, of partitions that have any."""
        ends = self._ends
        return {one: ends[one] - at[one] for one in at if ends.get(one, 0) > at[one]}

    def _left(self) -> list[int]:
        """Return the partitions that are behind once the epoch is read.

        Of a partition in doubt the last certain end counts: one that is out of sight for seconds
        is still behind. A source with an end is behind until its end, though that is yet to come.
        """
        doubted = self._losses.doubted
        before = {one: end for one, end in self._certain_ends.items() if one in doubted}
        found = {one: end for one, end in self._ends.items() if one not in doubted}
        self._certain_ends = {**before, **found}
        ends = self._certain_ends
        if self._reach.end is not None and self._fixed is not None:
            ends = self._fixed
        return [
            number
            for number, (one, end) in enumerate(self._after.items())
            if ends.get(one, 0) > end
        ]

    def _shares(self, at: Ends) -> dict[TopicPartition, int]:
        """How many messages the next epoch reads of each partition that has any."""
        backlog, most = self._backlog(at), self._reach.per_epoch
        if self._scales is not None:
            most = min(most, self._scales.most(at, backlog))
        return self._leveling.shares(backlog, most)

    def _splits(self, at: Ends, shares: Mapping[TopicPartition, int]) -> Iterator[Split]:
        numbers = {one: number for number, one in enumerate(at)}
        pieces = max(1, self._parallelism // max(1, len(shares)))
        for one, share in shares.items():
            for order, (first, last) in enumerate(_cut(at[one], at[one] + share, pieces)):
                yield Split([one.topic, one.partition, first, last], numbers[one], order)

    def _new(self, start: Json | None, known: Ends) -> Ends:
        """Where to start with partitions that have not been met.

        Those that turn up after the flow has started are read from their beginning, and those that
        turn up after the end of a run that has one was fixed are for the next run.
        """
        now = self._clock()
        if now - self._looked_at >= self._reach.looking_seconds:
            self._partitions = self._cluster.partitions(self._reach.topics, self._reach.pattern)
            self._check_named()
            self._check_known(known)
            self._looked_at = now
        new = [
            one
            for one in self._partitions
            if one not in known and (self._fixed is None or one in self._fixed)
        ]
        return self._positions(self._reach.start if start is None else EARLIEST, new)

    def _check_named(self) -> None:
        """A topic that is named must be there at the start; later, that it is not is a loss."""
        missing = set(self._reach.topics) - {one.topic for one in self._partitions}
        if missing and not self._answered:
            raise SourceError(
                f"there is no topic {_listed(missing)} on the broker, or its user may not see it: "
                "create it first, or grant the right to describe it"
            )

    def _check_known(self, known: Ends) -> None:
        """What was read before must be read still: its partitions have a part in the watermark."""
        named, pattern = self._reach.topics, self._reach.pattern
        left = {
            one.topic
            for one in known
            if not (one.topic in named if pattern is None else matches(pattern, one.topic))
        }
        if left:
            raise SourceError(
                f"the checkpoint holds offsets of topic {_listed(left)}, which the source does not "
                "read any more: name it again, or give up the offsets of the step with "
                "RecoveryConfig(reset_steps=[...]) and say with start= where the others go on"
            )

    def _check_given(self, given: Offsets, partitions: Iterable[TopicPartition]) -> None:
        """Offsets that are given must be those of partitions that are there."""
        there = {str(one) for one in partitions}
        named = {f"{topic}/{number}" for topic, numbers in given.items() for number in numbers}
        if named - there:
            raise SourceError(
                f"offsets are given of {_listed(named - there)}, and the partitions that there are "
                f"are {_listed(there)}"
            )

    def _positions(self, position: Position, partitions: list[TopicPartition]) -> Ends:
        if not partitions:
            return {}
        if position == LATEST:
            return self._cluster.latest(partitions)
        if isinstance(position, datetime):
            return self._cluster.since(partitions, milliseconds(position))
        found = self._cluster.earliest(partitions)
        if isinstance(position, Mapping):
            self._check_given(position, found)
            return {
                one: position.get(one.topic, {}).get(one.partition, offset)
                for one, offset in found.items()
            }
        return found

    def _limited(self, latest: Ends, at: Ends) -> Ends:
        """How far to read at most: up to the run's end, if it has one."""
        if self._until is None:
            return latest
        if self._fixed is None:
            if isinstance(self._until, Mapping):
                self._check_given(self._until, at)
            self._fixed = self._end_of_run(latest)
        return {one: min(offset, self._fixed.get(one, at[one])) for one, offset in latest.items()}

    def _end_of_run(self, latest: Ends) -> Ends:
        if isinstance(self._until, Mapping):
            until = self._until
            return {
                one: until.get(one.topic, {}).get(one.partition, offset)
                for one, offset in latest.items()
            }
        if isinstance(self._until, datetime):
            return self._cluster.since(latest, milliseconds(self._until))
        return latest

    def _end_before_losses(self, at: Ends, latest: Ends) -> None:
        """Do not wait until the end of a partition is reached whose rest is lost."""
        fixed = self._fixed or {}
        for one in fixed.keys() & self._losses.lost:
            fixed[one] = min(fixed[one], latest.get(one, at[one]))

    def _is_finished(self, start: Json | None) -> bool:
        known = _decoded(start)
        if self._fixed is None:
            at = {**known, **self._new(start, known)}
            self._ends = self._limited(self._cluster.latest(at), at)
        ends = self._fixed or {}
        if start is None and ends:
            return False
        return all(known.get(one, 0) >= end for one, end in ends.items())


def _listed(names: Iterable[str]) -> str:
    first, *others = sorted(names)
    more = f" and {len(others) - _MOST_LISTED + 1} more" if len(others) >= _MOST_LISTED else ""
    return ", ".join(map(repr, [first, *others[: _MOST_LISTED - 1]])) + more


def _decoded(offset: Json | None) -> Ends:
    return {TopicPartition.of(name): int(number) for name, number in (offset or {}).items()}


def _cut(start: int, end: int, most: int) -> list[tuple[int, int]]:
    """Cut a range into at most so many of equal size, none of them small."""
    count = max(1, min(most, (end - start) // LEAST_SPLIT))
    size = end - start
    return [(start + size * n // count, start + size * (n + 1) // count) for n in range(count)]
