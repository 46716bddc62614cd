"""Windows as each value leaves them, for steps that emit after every value."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flow.engine.segmented import Ints, running_max


class Update(NamedTuple):
    """A lot of values in windows, window after window, with what each has made of its window.

    Attributes:
        turns: the number of each value among those that enter.
        places: the place of the key.
        ids: the window.
        bounds_us: when it opens and closes.
        latest_us: the greatest timestamp in it; all `-NEVER` where it is not asked for.
        figures: the figure of each aggregate.
    """

    turns: Ints
    places: Ints
    ids: Ints
    bounds_us: tuple[Ints, Ints]
    latest_us: Ints
    figures: list[pa.Array | list[Any]]

    def in_turn(self) -> Update:
        """The same in order of value; those of a value in order of window."""
        order = np.argsort(self.turns, kind="stable")
        open_us, close_us = self.bounds_us
        return Update(
            self.turns[order],
            self.places[order],
            self.ids[order],
            (open_us[order], close_us[order]),
            self.latest_us[order],
            [_taken(figure, order) for figure in self.figures],
        )


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
