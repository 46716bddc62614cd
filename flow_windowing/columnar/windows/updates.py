"""Updates: results that windows emit before they close, and retractions of such results."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, Mask, running_max
from flow_windowing.columnar.state.spans import MergedIds


class Update(NamedTuple):
    """Results of windows to emit or to retract, one result a row.

    Attributes:
        order: the rank of each row within the output of its key.
        slots: the slot of each row's key.
        ids: the id of each row's window.
        bounds_us: the open and the close time of each window, int64 µs.
        latest_us: the greatest timestamp in each window; all `-NEVER` if it is not needed.
        results: the results of each aggregate.
        merged_ids: the ids of the windows merged into each; ``None`` if windows do not merge.
        is_retraction: True for a row that retracts the window's last result; ``None`` if no row
            does.
    """

    order: Ints
    slots: Ints
    ids: Ints
    bounds_us: tuple[Ints, Ints]
    latest_us: Ints
    results: list[pa.Array | list[Any]]
    merged_ids: MergedIds | None = None
    is_retraction: Mask | None = None

    def take(self, rows: Ints) -> Update:
        """Return the given rows, in the given order."""
        open_us, close_us = self.bounds_us
        return Update(
            self.order[rows],
            self.slots[rows],
            self.ids[rows],
            (open_us[rows], close_us[rows]),
            self.latest_us[rows],
            [_take(column, rows) for column in self.results],
            None if self.merged_ids is None else self.merged_ids[rows],
            None if self.is_retraction is None else self.is_retraction[rows],
        )

    def sort(self) -> Update:
        """Return the rows sorted by `order`; the sort is stable."""
        return self.take(np.argsort(self.order, kind="stable"))


def greatest_so_far(before: Ints, values: Ints, counts: Ints) -> Ints:
    """Return the running maximum of each group's values, starting from the group's `before`.

    Args:
        before: the maximum before the values, one for each group.
        values: the values, group after group.
        counts: the number of values in each group.

    >>> greatest_so_far(np.array([2, 9]), np.array([1, 3, 8]), np.array([2, 1])).tolist()
    [2, 3, 9]
    """
    groups = np.repeat(np.arange(len(counts)), counts)
    return np.maximum(running_max(values, groups), before[groups])


def _take(column: pa.Array | list[Any], rows: Ints) -> pa.Array | list[Any]:
    if isinstance(column, pa.Array):
        return column.take(pa.array(rows))
    return [column[row] for row in rows.tolist()]
