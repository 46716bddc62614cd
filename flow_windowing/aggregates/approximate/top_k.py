"""The approximate most frequent values, by a bounded number of counts.

This is the summary of J. Misra and D. Gries (Finding repeated elements, Science of Computer
Programming 2(2), 1982), whose counts are reduced many at a time, and merged as P. K. Agarwal et al.
describe (Mergeable summaries, PODS 2012). The counts follow from the sequence of values. The
frequent-items sketch of Apache DataSketches merges in the order of a hash table, which changes as a
sketch is written and read: with it a resumed flow could have another result.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from flow.checks import check_whole
from flow.errors import FlowBuildError
from flow_windowing.aggregates.rankings import TopK
from flow_windowing.contract.arrival import Arrival

Counts = dict[Any, tuple[int, int, Any]]
"""The count, the first arrival number and the first of equal values, by key of the value."""


@dataclass(frozen=True, repr=False)
class ApproxTopK(TopK):
    """The `k` most frequent values, in a list, in bounded memory.

    Exact up to `counters` different values. With more, the count of a value is too small by at most
    ``n / (counters + 1)`` for `n` values, and never too great (P. K. Agarwal et al., Mergeable
    summaries, PODS 2012). So a value is in the result if its count exceeds that of all but k - 1
    values by more than this, such as 0.1 % of all values by default. The bound holds for merged
    windows too, and the result is the same whatever the epochs.

    The result depends on the order of values, so `ordered` is true by default. Equally frequent
    values are sorted by their first arrival. Equal values, such as 1, 1.0 and True, count as one
    value. Without values the result is ``[]``. Memory: at most twice `counters` values.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself. A
            value must have a hash: make a tuple of a list to count it.
        k: the number of values, at least 1; required.
        counters: the number of values that are counted, at least `k`.

    >>> from flow_windowing import aggregate
    >>> aggregate(ApproxTopK(k=2), ["a", "b", "c", "b", "c", "d"])
    ['b', 'c']
    """

    depends_on_order = True

    counters: int = 1000

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("ApproxTopK: counters", self.counters, 1)
        if self.counters < self.k:
            raise FlowBuildError(
                f"ApproxTopK: counters must be at least k={self.k}, got {self.counters}"
            )

    @override
    def _take(self, state: Counts, found: Any, at: Arrival) -> Counts:
        return self._reduced(super()._take(state, found, at))

    @override
    def _join(self, state: Counts, other: Counts) -> Counts:
        return self._reduced(super()._join(state, other))

    def _reduced(self, state: Counts) -> Counts:
        """Subtract a number from all counts, and drop those that reach zero, if there are too many.

        The number is subtracted from `counters` + 1 counts at least, so all subtracted numbers
        together are at most the number of values by `counters` + 1.
        """
        if len(state) <= 2 * self.counters:
            return state
        counts = (count for count, _, _ in state.values())
        *_, least = heapq.nlargest(self.counters + 1, counts)
        return {
            key: (count - least, number, value)
            for key, (count, number, value) in state.items()
            if count > least
        }
