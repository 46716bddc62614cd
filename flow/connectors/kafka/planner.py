"""Planner of the ranges of topics that each epoch reads, and the detection of lost messages.

The source's offset maps each partition to the offset of its next message: ``{"orders/0": 17}``. The
number of a source partition is its position in this mapping, so partitions are only ever added.

A range of offsets counts as read even if it yields no messages, as transaction markers and
compacted messages hold offsets, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from typing_extensions import override

from flow.connectors.kafka.cluster import (
    EARLIEST,
    LATEST,
    Cluster,
    Ends,
    Offsets,
    Position,
    TopicPartition,
    Unreachable,
    milliseconds,
    reads_topic,
)
from flow.connectors.kafka.ranges import DOUBT_SECONDS, OnDataLoss, Scales
from flow.connectors.leveling import Leveling
from flow.connectors.polls import PollHistory
from flow.connectors.source import Json, Planner, Slice, Split
from flow.errors import SourceError
from flow.instants import Moment

FIRST_SECONDS = 20.0
"""Time that a run waits for brokers that have never answered it."""

LEAST_SPLIT = 20_000
"""Least number of messages in a split: reading fewer takes less time than starting a task."""

_MOST_LISTED = 3
"""Greatest number of names that an error lists."""

Answer = TypeVar("Answer")

logger = logging.getLogger("flow")


@dataclass(frozen=True)
class Reach:
    """Part of topics that a planner reads.

    Attributes:
        topics: names of the topics.
        pattern: regular expression for names of topics, in place of `topics`.
        start: position to start at.
        end: position to end at; ``None`` for never.
        per_epoch: greatest number of messages in an epoch.
        on_data_loss: action when messages are lost.
        looking_seconds: interval of looking for new partitions.
        patience_seconds: time to wait for brokers that do not answer.
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
    """Planner of epochs with a limited number of messages over the partitions of topics.

    The shares of partitions in an epoch of a backlog bring them forward together in event time.

    Args:
        reach: part of the topics to read.
        cluster: the brokers.
        parallelism: number of tasks that can read at the same time.
        clock: monotonic clock, in seconds.
        scales: estimate of the number of messages that fit an epoch, if `reach` gives none.
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
        self._run_ends: Ends | None = None
        self._ends: Ends = {}
        self._certain_ends: Ends = {}
        self._after: Ends = {}
        self._polls = PollHistory[TopicPartition]()
        self._leveling = Leveling[TopicPartition]()
        self._reached_us: Mapping[int, int] = {}
        self._partitions: list[TopicPartition] = []
        self._discovered_at = float("-inf")
        self._silent_since: float | None = None
        self._silent = ""
        self._answered = False

    @override
    def stop_at_present(self) -> None:
        if self._until is None:
            self._until = LATEST

    @override
    def next(self, start: Json | None) -> Slice | None:
        return self._patiently(lambda: self._next(start))

    @override
    def read_until_us(self, now: Moment, behind: bool) -> int | None:
        if self.in_doubt():
            return None
        self._polls.add(now.running_us, self._ends)
        return self._polls.read_until_us(self._after)

    @override
    def report_progress(self, reached_us: Mapping[int, int]) -> None:
        self._reached_us = dict(reached_us)

    @override
    def name_of(self, partition: int) -> str:
        names = list(self._after)
        return str(names[partition]) if partition < len(names) else super().name_of(partition)

    @override
    def finished(self, start: Json | None) -> bool:
        if self._reach.end is None or self.in_doubt():
            return False
        return bool(self._patiently(lambda: self._is_finished(start)))

    @override
    def in_doubt(self) -> bool:
        return self._silent_since is not None or bool(self._losses.doubted)

    @override
    def behind(self, start: Json | None) -> Mapping[str, int]:
        offsets = _decode(start)
        return {
            str(partition): max(0, end - offsets[partition])
            for partition, end in self._ends.items()
            if partition in offsets
        }

    def _patiently(self, question: Callable[[], Answer]) -> Answer | None:
        """Return the answer to a query; ``None`` while no broker answers, for a limited time."""
        asked_at = self._clock()
        try:
            answer = question()
        except Unreachable as error:
            if self._silent_since is None:
                self._silent_since, self._silent = asked_at, error.system
                if self._answered:
                    logger.warning("%s; waiting for it", error)
            waited = self._clock() - self._silent_since
            patience = self._reach.patience_seconds
            if waited < (patience if self._answered else min(FIRST_SECONDS, patience)):
                return None
            raise SourceError(f"{error}; waited {waited:.0f} s") from None
        if self._silent_since is not None and self._answered:
            logger.warning("%s answers again", self._silent)
        self._silent_since, self._answered = None, True
        return answer

    def _next(self, start: Json | None) -> Slice | None:
        known = _decode(start)
        self._learn_pace(known)
        offsets = {**known, **self._new_offsets(start, known)}
        latest = self._cluster.latest(offsets)
        self._ends = self._limit_to_end(latest, offsets)
        backlog = self._unread(offsets)
        offsets |= self._losses.offsets_after_losses(
            offsets, latest, backlog, self._cluster.earliest
        )
        self._move_ends_before_losses(offsets, latest)
        shares = self._shares(offsets)
        self._after = {
            partition: offset + shares.get(partition, 0) for partition, offset in offsets.items()
        }
        behind = self._numbers_behind()
        # New offsets are logged even if the epoch reads no messages.
        if not shares and start is not None and offsets == known:
            return None
        ends = {str(partition): offset for partition, offset in self._after.items()}
        return Slice(ends, list(self._splits(offsets, shares)), behind=behind)

    def _learn_pace(self, known: Ends) -> None:
        """Learn how far partitions have advanced in event time, given their offsets."""
        reached_us = {
            partition: self._reached_us[number]
            for number, partition in enumerate(known)
            if number in self._reached_us
        }
        self._leveling.learn_pace(reached_us, known)
        self._reached_us = {}

    def _unread(self, offsets: Ends) -> dict[TopicPartition, int]:
        """Return the number of messages to read, positive, by partition."""
        ends = self._ends
        return {
            partition: ends[partition] - offsets[partition]
            for partition in offsets
            if ends.get(partition, 0) > offsets[partition]
        }

    def _numbers_behind(self) -> list[int]:
        """Return the numbers of the partitions that are behind after the epoch.

        For a partition in doubt, the last certain end counts: a partition that is missing for
        seconds is still behind. A source with an end is behind until its end, even if the end is in
        the future.
        """
        doubted = self._losses.doubted
        before = {one: end for one, end in self._certain_ends.items() if one in doubted}
        found = {one: end for one, end in self._ends.items() if one not in doubted}
        ends = self._certain_ends = {**before, **found}
        if self._reach.end is not None and self._run_ends is not None:
            ends = self._run_ends
        after = enumerate(self._after.items())
        return [number for number, (one, offset) in after if ends.get(one, 0) > offset]

    def _shares(self, offsets: Ends) -> dict[TopicPartition, int]:
        """Return the number of messages that the next epoch reads, positive, by partition."""
        backlog, most = self._unread(offsets), self._reach.per_epoch
        if self._scales is not None:
            most = min(most, self._scales.most(offsets, backlog))
        return self._leveling.shares(backlog, most)

    def _splits(self, offsets: Ends, shares: Mapping[TopicPartition, int]) -> Iterator[Split]:
        numbers = {partition: number for number, partition in enumerate(offsets)}
        pieces = max(1, self._parallelism // max(1, len(shares)))
        for partition, share in shares.items():
            first = offsets[partition]
            for order, piece in enumerate(_cut(first, first + share, pieces)):
                yield Split([*partition, *piece], numbers[partition], order)

    def _new_offsets(self, start: Json | None, known: Ends) -> Ends:
        """Return the first offsets of new partitions.

        Partitions that appear after the start of the flow are read from their beginning. If the
        run has an end, partitions that appear after it was determined are left to the next run.
        """
        now = self._clock()
        if now - self._discovered_at >= self._reach.looking_seconds:
            self._partitions = self._cluster.partitions(self._reach.topics, self._reach.pattern)
            self._check_topics_exist()
            self._check_topics_read(known)
            self._discovered_at = now
        new = [
            partition
            for partition in self._partitions
            if partition not in known and (self._run_ends is None or partition in self._run_ends)
        ]
        return self._offsets_at(self._reach.start if start is None else EARLIEST, new)

    def _check_topics_exist(self) -> None:
        """Raise a `SourceError` if a topic is missing at the start; later this is a loss."""
        missing = set(self._reach.topics) - {partition.topic for partition in self._partitions}
        if missing and not self._answered:
            raise SourceError(
                f"there is no topic {_shorten_names(missing)} on the broker, or its user may not "
                "see it: create it first, or grant the right to describe it"
            )

    def _check_topics_read(self, known: Ends) -> None:
        """Raise a `SourceError` if a topic is no longer read, as it would hold the watermark."""
        named, pattern = self._reach.topics, self._reach.pattern
        topics = {partition.topic for partition in known}
        left = {topic for topic in topics if not reads_topic(topic, named, pattern)}
        if left:
            raise SourceError(
                f"the checkpoint holds offsets of topic {_shorten_names(left)}, which the source "
                "no longer reads: add the topic again, or drop the offsets of the step with "
                "RecoveryConfig(reset_steps=[...]) and start the others at an offset with start="
            )

    def _check_offsets_given(self, given: Offsets, partitions: Iterable[TopicPartition]) -> None:
        """Raise a `SourceError` if offsets are given for a partition that does not exist."""
        existing = {str(partition) for partition in partitions}
        named = {f"{topic}/{number}" for topic, numbers in given.items() for number in numbers}
        if named - existing:
            raise SourceError(
                f"offsets are given for {_shorten_names(named - existing)}, but the partitions "
                f"that exist are {_shorten_names(existing)}"
            )

    def _offsets_at(self, position: Position, partitions: list[TopicPartition]) -> Ends:
        if not partitions:
            return {}
        if position == LATEST:
            return self._cluster.latest(partitions)
        if isinstance(position, datetime):
            starts = self._cluster.since(partitions, milliseconds(position))
            earliest = self._cluster.earliest(starts)
            self._losses.warn_of_deleted(starts, earliest, position.isoformat())
            return starts
        found = self._cluster.earliest(partitions)
        if isinstance(position, Mapping):
            self._check_offsets_given(position, found)
            return _replaced(found, position)
        return found

    def _limit_to_end(self, latest: Ends, offsets: Ends) -> Ends:
        """Return the offsets up to which to read: the latest, or the run's end if earlier."""
        if self._until is None:
            return latest
        if self._run_ends is None:
            if isinstance(self._until, Mapping):
                self._check_offsets_given(self._until, offsets)
            self._run_ends = self._ends_of_run(latest)
        return {
            partition: min(offset, self._run_ends.get(partition, offsets[partition]))
            for partition, offset in latest.items()
        }

    def _ends_of_run(self, latest: Ends) -> Ends:
        if isinstance(self._until, Mapping):
            return _replaced(latest, self._until)
        if isinstance(self._until, datetime):
            return self._cluster.since(latest, milliseconds(self._until))
        return latest

    def _move_ends_before_losses(self, offsets: Ends, latest: Ends) -> None:
        """Move the run's ends before lost messages, so that the run does not wait for them."""
        fixed = self._run_ends or {}
        for partition in fixed.keys() & self._losses.lost:
            fixed[partition] = min(fixed[partition], latest.get(partition, offsets[partition]))

    def _is_finished(self, start: Json | None) -> bool:
        known = _decode(start)
        if self._run_ends is None:
            offsets = {**known, **self._new_offsets(start, known)}
            self._ends = self._limit_to_end(self._cluster.latest(offsets), offsets)
        ends = self._run_ends or {}
        if start is None and ends:
            return False
        return all(known.get(partition, 0) >= end for partition, end in ends.items())


def _shorten_names(names: Iterable[str]) -> str:
    first, *others = sorted(names)
    more = f" and {len(others) - _MOST_LISTED + 1} more" if len(others) >= _MOST_LISTED else ""
    return ", ".join(map(repr, [first, *others[: _MOST_LISTED - 1]])) + more


def _replaced(ends: Ends, given: Offsets) -> Ends:
    """Return offsets with those that are given in their place."""
    return {
        partition: given.get(partition.topic, {}).get(partition.partition, offset)
        for partition, offset in ends.items()
    }


def _decode(offset: Json | None) -> Ends:
    return {TopicPartition.of(name): int(number) for name, number in (offset or {}).items()}


def _cut(start: int, end: int, most: int) -> list[tuple[int, int]]:
    """Cut a range into at most `most` ranges of equal size, of `LEAST_SPLIT` messages each."""
    count = max(1, min(most, (end - start) // LEAST_SPLIT))
    size = end - start
    return [(start + size * n // count, start + size * (n + 1) // count) for n in range(count)]


_REMEDY = (
    "on_data_loss='warn' continues with what is left; to start elsewhere, reset the step with "
    "RecoveryConfig(reset_steps=[...])"
)


class LossWatch:
    """Comparison of the flow's offsets with those of the brokers.

    Args:
        on_data_loss: action for a loss.
        clock: monotonic clock, in seconds.

    Attributes:
        lost: partitions that are missing or too short beyond doubt.
    """

    def __init__(
        self, on_data_loss: OnDataLoss, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._on_data_loss = on_data_loss
        self._clock = clock
        self._doubted: dict[TopicPartition, float] = {}
        self._warned: set[str] = set()
        self.lost: set[TopicPartition] = set()

    @property
    def doubted(self) -> set[TopicPartition]:
        """Partitions that have seemed missing or too short for less than `DOUBT_SECONDS`."""
        return {partition for partition in self._doubted if not self._is_certain(partition)}

    def offsets_after_losses(
        self,
        offsets: Ends,
        latest: Ends,
        to_read: Mapping[TopicPartition, int],
        earliest: Callable[[list[TopicPartition]], Ends],
    ) -> Ends:
        """Return the offsets of partitions that must continue elsewhere after a loss.

        Args:
            offsets: the flow's offsets.
            latest: end offsets of the partitions that exist.
            to_read: number of messages to read now, by partition.
            earliest: function that returns the first offsets of partitions.

        Raises:
            SourceError: messages are lost, and `on_data_loss` is ``"fail"``.
        """
        shrunk = self._shrunk(offsets, latest)
        begins = earliest(list(dict.fromkeys([*to_read, *shrunk])))
        moved: Ends = {}
        for partition, first in begins.items():
            if partition in shrunk:
                moved[partition] = first
            elif first > offsets[partition]:
                self._report(
                    f"messages {offsets[partition]:,} to {first - 1:,} of {partition} were "
                    "deleted on the broker before the flow read them"
                )
                moved[partition] = first
        return moved

    def warn_of_deleted(self, starts: Ends, earliest: Ends, time: str) -> None:
        """Warn of partitions whose messages before the start of the flow were deleted.

        A warning, for the broker does not tell the times of deleted messages.

        Args:
            starts: offsets of the first messages at or after a time.
            earliest: offsets of the first messages that the broker still has.
            time: the time, for the warning.
        """
        cut = [partition for partition, first in earliest.items() if starts[partition] <= first > 0]
        if cut:
            more = f" and {len(cut) - 1} more" if len(cut) > 1 else ""
            logger.warning(
                "messages before %s of %s%s were deleted on the broker, and may include messages "
                "since start=%s; continuing with what is left",
                f"{earliest[cut[0]]:,}",
                cut[0],
                more,
                time,
            )

    def _shrunk(self, offsets: Ends, latest: Ends) -> list[TopicPartition]:
        """Return the partitions that end before the flow's offset, beyond doubt."""
        shrunk: list[TopicPartition] = []
        for partition, offset in offsets.items():
            end = latest.get(partition)
            if end is not None and end >= offset:
                self._doubted.pop(partition, None)
                self.lost.discard(partition)
                continue
            if not self._is_certain(partition):
                continue
            self.lost.add(partition)
            if end is None:
                self._report(f"{partition} is not on the broker any more")
            else:
                self._report(
                    f"{partition} ends at {end:,}, and the flow has read up to {offset:,}: the "
                    "topic was created again, or its last messages were lost"
                )
                shrunk.append(partition)
        return shrunk

    def _is_certain(self, partition: TopicPartition) -> bool:
        since = self._doubted.setdefault(partition, self._clock())
        return self._clock() - since >= DOUBT_SECONDS

    def _report(self, loss: str) -> None:
        if self._on_data_loss == "fail":
            raise SourceError(f"{loss} ({_REMEDY})")
        if loss not in self._warned:
            self._warned.add(loss)
            logger.warning("%s; continuing with what is left", loss)
