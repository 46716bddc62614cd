"""Progress within an epoch as a function of the position: step functions that never decrease."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flow.columns.chunks import Positions
from flow.instants import NEVER

MOST_EVALUATIONS = 1 << 22
"""The most values that `Least` compares. With more, it takes the least at fewer positions, so that
the least grows at a later position than it should, never at an earlier one."""


class Track:
    """A value that grows at positions of an epoch.

    Invariants: `positions` and `values` are sorted. `values[0]` applies from the epoch's start,
    `values[n + 1]` from `positions[n]` on, so `values` has one element more than `positions`.
    """

    def __init__(self, start_us: int, positions: Positions, values: Positions) -> None:
        order = np.argsort(positions, kind="stable")
        reached = np.maximum.accumulate(np.concatenate([[start_us], values[order]]))
        grown = np.flatnonzero(np.diff(reached))
        self.positions: Positions = positions[order][grown]
        self.values: Positions = np.concatenate([reached[:1], reached[grown + 1]])

    @property
    def start_us(self) -> int:
        """The value at the epoch's start."""
        return int(self.values[0])

    @property
    def end_us(self) -> int:
        """The value after all items of the epoch."""
        return int(self.values[-1])

    def up_to(self, pos: Positions) -> Positions:
        """Return the value at each position, including growth at the position itself."""
        return self.values[np.searchsorted(self.positions, pos, "right")]

    def before(self, pos: Positions) -> Positions:
        """Return the value at each position, without growth at the position itself."""
        return self.values[np.searchsorted(self.positions, pos, "left")]

    def ending(self, last: int) -> Track:
        """Return the track with the value `NEVER` from position `last` on."""
        return Track(
            self.start_us, np.append(self.positions, last), np.append(self.values[1:], NEVER)
        )


class Least:
    """The least value of several tracks at each position, with or without one of the tracks."""

    def __init__(self, tracks: Sequence[Track]) -> None:
        events = np.unique(np.concatenate([track.positions for track in tracks]))
        stride = -(-len(events) * len(tracks) // MOST_EVALUATIONS)
        self._events = events if stride <= 1 else events[::stride]
        self._least = np.full(len(self._events) + 1, NEVER, np.int64)
        self._second = self._least.copy()
        self._owner = np.full(len(self._least), -1)
        for number, track in enumerate(tracks):
            self._add(number, np.append(track.values[:1], track.up_to(self._events)))

    def _add(self, number: int, reached: Positions) -> None:
        less = reached < self._least
        self._second = np.where(less, self._least, np.minimum(self._second, reached))
        self._owner[less] = number
        self._least[less] = reached[less]

    def without(self, number: Positions | int, pos: Positions) -> Positions:
        """Return the least value of all tracks but one; `NEVER` if there is no other track.

        Args:
            number: the number of the track to leave out, or a number for each position, int64,
                shape (positions,); -1 for none.
            pos: the positions.
        """
        at = np.searchsorted(self._events, pos, "right")
        return np.where(self._owner[at] == number, self._second[at], self._least[at])
