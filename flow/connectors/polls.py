"""The history of polls of a source, which says up to which running time the source is read."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)

MOST_POLLS = 64
"""Greatest length of the history; in a long backlog, the time advances in as many steps."""


class PollHistory(Generic[P]):
    """Polls whose ends the flow has not reached, in order of time.

    At each poll a source returns the ends of its partitions: offsets of a topic, or the number of
    files that are listed. A flow that reaches these ends has read all data that had arrived by the
    time of the poll, so the history gives the running time up to which the source is read. This
    needs no timestamps of brokers or files.
    """

    def __init__(self) -> None:
        self._polls: list[tuple[int, Mapping[P, int]]] = []
        self._read_until_us: int | None = None

    def add(self, now_us: int, ends: Mapping[P, int]) -> None:
        """Add a poll; a full history drops a poll between two others.

        Args:
            now_us: running time just before the poll, in µs.
            ends: the end of each partition, exclusive.
        """
        if self._polls and self._polls[-1][0] >= now_us:
            self._polls.pop()  # The later poll has all data that arrived by that time.
        self._polls.append((now_us, ends))
        if len(self._polls) > MOST_POLLS:
            del self._polls[self._least_missed()]

    def read_until_us(self, offsets: Mapping[P, int]) -> int | None:
        """Return the time of the last poll whose ends are reached; ``None`` before the first.

        Args:
            offsets: the offset of each partition's next item after the epoch.
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
        times = [now_us for now_us, _ in self._polls]
        gaps = [after - before for before, after in zip(times, times[2:], strict=False)]
        return 1 + gaps.index(min(gaps))
