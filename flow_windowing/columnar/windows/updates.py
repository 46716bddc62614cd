"""What windows emit before they close, and what sessions take back of that."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, Mask, running_max
from flow_windowing.columnar.state.spans import Merged


class Update(NamedTuple):
    """What windows have come to at some time, to be emitted or taken back.

    Attributes:
        turns: what orders each among all that its key emits.
        places: the place of the key.
        ids: the window.
        bounds_us: when it opens and closes.
        latest_us: the greatest timestamp in it; all `-NEVER` where it is not asked for.
        figures: the figure of each aggregate.
        merged: what has become part of it; ``None`` where windows do not become one.
        taken_back: whether it is what the window has emitted last, and is taken back; ``None``
            where nothing is.
    """

    turns: Ints
    places: Ints
    ids: Ints
    bounds_us: tuple[Ints, Ints]
    latest_us: Ints
    figures: list[pa.Array | list[Any]]
    merged: Merged | None = None
    taken_back: Mask | None = None

    def take(self, rows: Ints) -> Update:
        """Some of it, in the order given."""
        open_us, close_us = self.bounds_us
        return Update(
            self.turns[rows],
            self.places[rows],
            self.ids[rows],
            (open_us[rows], close_us[rows]),
            self.latest_us[rows],
            [_taken(figure, rows) for figure in self.figures],
            None if self.merged is None else self.merged[rows],
            None if self.taken_back is None else self.taken_back[rows],
        )

    def in_turn(self) -> Update:
        """The same in order of turn; those of a turn as they are."""
        return self.take(np.argsort(self.turns, kind="stable"))


def greatest_so_far(before: Ints, values: Ints, counts: Ints) -> Ints:
    """The greatest of what was there before and of each group's values up to each.

    Args:
        before: what was there before, for each group.
        values: the values, group after group.
        counts: how many each group has.

    >>> greatest_so_far(np.array([2, 9]), np.array([1, 3, 8]), np.array([2, 1])).tolist()
    [2, 3, 9]
    """
    groups = np.repeat(np.arange(len(counts)), counts)
    return np.maximum(running_max(values, groups), before[groups])


def _taken(figure: pa.Array | list[Any], order: Ints) -> pa.Array | list[Any]:
    if isinstance(figure, pa.Array):
        return figure.take(pa.array(order))
    return [figure[at] for at in order.tolist()]
