"""History of polls, which gives the system time up to which topics are read.

At each poll brokers return the ends of partitions. A flow that reaches these ends has read all
messages that had arrived by the time of the poll. This needs no timestamps of brokers, so it also
holds for topics whose messages carry the time of their producers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from flow.connectors.kafka.broker.cluster import Ends, TopicPartition

MOST_POLLS = 64
"""Greatest length of the history; in a long backlog, the time advances in as many steps."""


class Poll(NamedTuple):
    """Ends of partitions at one time.

    Attributes:
        now_us: system time just before the query, in µs since the Unix epoch.
        ends: offset after the last message of each partition.
    """

    now_us: int
    ends: Ends


class PollHistory:
    """Polls whose ends the flow has not reached, in order of time."""

    def __init__(self) -> None:
        self._polls: list[Poll] = []
        self._read_until_us: int | None = None

    def __len__(self) -> int:
        return len(self._polls)

    def add(self, now_us: int, ends: Ends) -> None:
        """Add the poll of an epoch; a full history drops a poll between two others."""
        self._polls.append(Poll(now_us, ends))
        if len(self._polls) > MOST_POLLS:
            del self._polls[self._least_missed()]

    def read_until_us(self, offsets: Mapping[TopicPartition, int]) -> int | None:
        """Return the time of the last poll whose ends are reached; ``None`` before the first.

        Args:
            offsets: offset of each partition's next message after the epoch.
        """
        for index in range(len(self._polls) - 1, -1, -1):
            now_us, ends = self._polls[index]
            if all(offsets.get(partition, 0) >= end for partition, end in ends.items()):
                self._read_until_us = now_us
                del self._polls[: index + 1]
                break
        return self._read_until_us

    def _least_missed(self) -> int:
        """Return the index of the poll whose removal leaves the shortest gap.

        This is never the first poll, which is reached next, nor the last. So polls stay about
        equally far apart.
        """
        polls = self._polls
        gaps = [polls[n + 1].now_us - polls[n - 1].now_us for n in range(1, len(polls) - 1)]
        return 1 + gaps.index(min(gaps))
