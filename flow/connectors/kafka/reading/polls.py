"""History of polls: up to which system time topics are read.

Brokers say at each poll where partitions end. A flow that comes to these ends has read all that had
arrived when it asked. That needs no timestamps of brokers, so it holds for topics whose messages
carry the time of their producers, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from flow.connectors.kafka.cluster import Ends, TopicPartition

MOST_POLLS = 64
"""Polls in the history, at most: the steps in which the time moves on in a long backlog."""


class Poll(NamedTuple):
    """Ends of partitions at a moment.

    Attributes:
        now_us: system time just before the brokers were asked, in microseconds.
        ends: the offset after the last message of each partition.
    """

    now_us: int
    ends: Ends


class PollHistory:
    """Polls whose ends the flow has not come to, in order of time."""

    def __init__(self) -> None:
        self._polls: list[Poll] = []
        self._read_until_us: int | None = None

    def __len__(self) -> int:
        return len(self._polls)

    def add(self, now_us: int, ends: Ends) -> None:
        """Add the poll of an epoch; a full history loses a poll between two that stay."""
        self._polls.append(Poll(now_us, ends))
        if len(self._polls) > MOST_POLLS:
            del self._polls[self._least_missed()]

    def read_until_us(self, offsets: Mapping[TopicPartition, int]) -> int | None:
        """Return the time of the last poll whose ends are reached, ``None`` before there is one.

        Args:
            offsets: the offset of each partition's next message, once the epoch is read.
        """
        for place in range(len(self._polls) - 1, -1, -1):
            now_us, ends = self._polls[place]
            if all(offsets.get(one, 0) >= end for one, end in ends.items()):
                self._read_until_us = now_us
                del self._polls[: place + 1]
                break
        return self._read_until_us

    def _least_missed(self) -> int:
        """Return the place of the poll that leaves the shortest gap, neither first nor last.

        So polls stay about equally far apart, and the oldest, which is reached next, stays.
        """
        polls = self._polls
        gaps = [polls[n + 1].now_us - polls[n - 1].now_us for n in range(1, len(polls) - 1)]
        return 1 + gaps.index(min(gaps))
