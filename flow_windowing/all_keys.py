"""The second level of windows over all keys: partial accumulators, merged window by window.

Both levels agree on the epoch in which a window closes. The first level's watermark is that of the
stream, so it is the same for all its keys, and windows follow from timestamps alone. So each
window closes for all keys in the same epoch, and the second level receives all partial
accumulators of the window in that epoch. It holds no state, has no clock, and calls nothing late.

A ranking of keys by their results is an aggregator too, so that keys are ranked in both levels.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from flow.columns.record_batches import view_of
from flow.instants import Moment
from flow.keyed.logic import DISCARD, Keep, RejectedValue, StatefulBatchLogic
from flow.keyed.step import KeyByKey, LogicBuilder, Lowering
from flow_windowing.aggregates.aggregator import Aggregator, UnfitError, called
from flow_windowing.aggregates.value_order import compare
from flow_windowing.contract.metadata import WindowMetadata

DOWN, CLOSED = range(2)
"""The streams of the second level."""

ALL_KEYS = "all"
"""The key of results over all keys."""


class Partial(NamedTuple):
    """An accumulator of some of the values of a window.

    Attributes:
        source: the source of the accumulator; accumulators of a window are merged in order of it.
        window: the window.
        accumulator: the accumulator.
    """

    source: str
    window: WindowMetadata
    accumulator: Any


def gather(item: tuple[str, tuple[WindowMetadata, dict[str, Any]]]) -> tuple[str, Partial]:
    """Return the item of the second level, under the key of all keys, for an item of the first."""
    bucket, (window, accumulators) = item
    return ALL_KEYS, Partial(bucket, window, list(accumulators.values()))


@dataclass(frozen=True)
class MergeBuilder(LogicBuilder):
    """Builder of the logic that merges partial accumulators.

    Attributes:
        aggregator: the aggregator of the accumulators.
    """

    PORTS: ClassVar[tuple[str, str]] = ("down", "closed")

    aggregator: Aggregator[Any, Any, Any]

    @override
    def __call__(self, snapshot: None) -> MergeLogic:
        return MergeLogic(self.aggregator)

    @override
    def keeps_back(self, port: int) -> bool:
        return False

    @override
    def lower(self) -> Lowering:
        return KeyByKey("it merges a few accumulators a window")


class MergeLogic(StatefulBatchLogic[Partial, tuple[int, Any], None]):
    """Merges the partial accumulators of the windows that close in an epoch; holds no state."""

    detaches = True

    def __init__(self, aggregator: Aggregator[Any, Any, Any]) -> None:
        self._aggregator = aggregator

    @override
    def on_batch(
        self, values: list[Partial], moment: Moment
    ) -> tuple[Iterable[tuple[int, Any]], Keep]:
        partials_of: dict[int, list[Partial]] = {}
        for partial in values:
            partials_of.setdefault(partial.window.window_id, []).append(partial)
        output: list[tuple[int, Any]] = []
        for _, partials in sorted(partials_of.items()):
            window = _window_of(partials)
            output.append((DOWN, (window, self._result_of(partials))))
            output.append((CLOSED, window))
        return output, DISCARD

    @override
    def snapshot(self) -> None:
        return None

    def _result_of(self, partials: list[Partial]) -> Any:
        aggregator, ordered = self._aggregator, sorted(partials, key=itemgetter(0))
        merged = called(aggregator, "initialize")
        for partial in ordered:
            merged = called(aggregator, "merge", merged, partial.accumulator)
        return called(aggregator, "result", merged)


def _window_of(partials: list[Partial]) -> WindowMetadata:
    """Return the metadata of a window; its timestamp is the greatest of all partials."""
    windows = [partial.window for partial in partials]
    if windows[0].timestamp is None:
        return windows[0]
    return max(windows, key=attrgetter("timestamp"))


Entry: TypeAlias = tuple[str, Any]
"""A key and its result."""


@dataclass(frozen=True)
class TopKeys(Aggregator[Entry, list[Entry], list[Entry]]):
    """The `n` keys with the greatest results, ranked: by result, descending, equals by key.

    The state is the ranking. A key is in one entry, so a ranking of parts of the keys is exact.
    """

    n: int

    @override
    def initialize(self) -> list[Entry]:
        return []

    @override
    def add(self, state: list[Entry], value: Entry) -> list[Entry]:
        return self.merge(state, [value])

    @override
    def merge(self, state: list[Entry], other: list[Entry]) -> list[Entry]:
        return self.ranked([*state, *other])

    @override
    def result(self, state: list[Entry]) -> list[Entry]:
        return list(state)

    def ranked(self, entries: list[Entry]) -> list[Entry]:
        """Return the ranking of entries.

        Raises:
            RejectedValue: when two results have no order.
        """
        try:
            return heapq.nsmallest(self.n, entries, key=_rank)
        except UnfitError as error:
            problem = f"top_n ranks keys by their results, and {error.problem}"
            raise RejectedValue(error.found, problem) from error.__cause__


@dataclass(frozen=True)
class RankChunk:
    """The combiner that replaces results of keys by a ranking for each window."""

    ranking: TopKeys

    def __call__(
        self, keys: Sequence[str], values: list[tuple[WindowMetadata, Any]]
    ) -> tuple[list[str], list[Any]]:
        """Return a partial ranking for each window, under the key of all keys.

        A result of ``None``, such as a mean of nothing, has no rank.
        """
        entries_of: dict[WindowMetadata, list[Entry]] = {}
        for key, (window, result) in zip(keys, values, strict=True):
            entries = entries_of.setdefault(window, [])
            if result is not None:
                entries.append((key, result))
        partials = [
            Partial("", window, self.ranking.ranked(entries))
            for window, entries in entries_of.items()
        ]
        return [ALL_KEYS] * len(partials), partials


@dataclass(frozen=True)
class TopRows:
    """The filter of rows that can be among the first `n` of their window, in columns."""

    n: int

    def __call__(self, keys: pa.Array, batch: pa.RecordBatch) -> pa.Array | None:
        """Return the indices of the first `n` rows of each window, by result and key.

        Returns:
            ``None`` if the results are no column of numbers, or one of them is NaN or null.
        """
        view = view_of(batch)
        columns = {} if view is None else view.columns(batch)
        results = columns.get("value")
        if results is None or batch.num_rows <= self.n or not _is_ordered(results):
            return None
        names = keys.dictionary_decode() if pa.types.is_dictionary(keys.type) else keys
        ids = columns["window_id"]
        table = pa.table({"id": ids, "result": results, "key": names})
        order = pc.sort_indices(
            table, [("id", "ascending"), ("result", "descending"), ("key", "ascending")]
        )
        sorted_ids = ids.take(order).to_numpy()
        is_start = np.append(True, sorted_ids[1:] != sorted_ids[:-1])
        starts = np.flatnonzero(is_start)
        ranks = np.arange(len(sorted_ids)) - starts[np.cumsum(is_start) - 1]
        return order.filter(pa.array(ranks < self.n))


def _is_ordered(results: pa.Array) -> bool:
    """Return True if Arrow sorts the results as `compare` does."""
    if results.null_count:
        return False
    if pa.types.is_floating(results.type):
        return not pc.any(pc.is_nan(results)).as_py()
    return bool(pa.types.is_integer(results.type))


def _compare_entries(left: Entry, right: Entry) -> int:
    """Compare entries by result, descending; equal results by key, ascending."""
    by_result = compare(right[1], left[1])
    return by_result or (left[0] > right[0]) - (left[0] < right[0])


_rank = cmp_to_key(_compare_entries)
