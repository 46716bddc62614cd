"""Windows over all keys: one result for each window of the whole stream.

The work is done in two levels: partial accumulators, merged window by window. Both levels agree on
the epoch in which a window closes. The first level's watermark is that of the stream, so it is the
same for all its keys, and windows follow from timestamps alone. So each window closes for all keys
in the same epoch, and the second level receives all partial accumulators of the window in that
epoch. It holds no state, has no clock, and calls nothing late.

A ranking of keys by their results is an aggregator too, so that keys are ranked in both levels.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from flow.checks import check_whole
from flow.columns.record_batches import view_of
from flow.dataflow import KeyedStream, add_step, flow_of
from flow.errors import FlowBuildError, shorten
from flow.instants import Moment
from flow.keyed.logic import DISCARD, Keep, RejectedValue, StatefulBatchLogic
from flow.keyed.step import KeyByKey, LogicBuilder, Lowering, Stateful
from flow.operators.stateless import Bucket, Combine, Rekey
from flow.operators.stateless import map as map_items
from flow_windowing.aggregates.aggregator import Aggregator, UnfitError, called
from flow_windowing.aggregates.folding import Partials
from flow_windowing.aggregates.numbers import Count
from flow_windowing.aggregates.value_order import compare
from flow_windowing.clocks.clock import Clock, SystemClock, check_clock
from flow_windowing.clocks.event_clock import EventClock
from flow_windowing.operators import (
    WindowOut,
    check_aggregator,
    check_timestamp,
    errors_of_step,
    fold_with,
    named_aggregates,
)
from flow_windowing.rules.metadata import WindowMetadata
from flow_windowing.rules.triggers import Timestamp
from flow_windowing.windowers.windower import Windower, check_windower

V = TypeVar("V")

BUCKETS = 64
"""The number of buckets: enough for all cores, few enough to merge for each window."""


def aggregate_window_all(
    step_id: str,
    up: KeyedStream[V],
    clock: Clock[V, Any],
    windower: Windower[Any],
    timestamp: Timestamp | None = None,
    **aggregates: Aggregator[V, Any, Any],
) -> WindowOut[V, dict[str, Any]]:
    """Compute aggregates of each window over all keys, emitted once, as a dict by name.

    The results are those of `aggregate_window` with one key for all values and
    ``EventClock(scope="stream")``. The work is done in two levels: buckets of keys aggregate their
    values in parallel, and their accumulators are merged as a window closes. The key of an item
    only decides its bucket; choose one with many values, such as a user's id. The key of all
    results is ``"all"``.

    Values that are equal to the aggregate, such as two values of `TopK` with equal counts, are
    sorted in a fixed way that is not the order of arrival.

    Args:
        step_id: the step's id, unique in the flow; late values are counted at
            ``<step_id>.partial``.
        up: the keyed stream to read.
        clock: the clock; of an `EventClock`, the watermark is that of the stream, as with
            ``scope="stream"``. A window closes for all keys at once.
        windower: a `TumblingWindower`, `SlidingWindower` or `CalendarWindower`, whose windows are
            the same for all keys.
        timestamp: the time in the metadata; see `fold_window`.
        aggregates: the aggregates by name, such as ``total=Sum("amount")``; not `First`, `Last`,
            `Collect` and `CollectUnique`, as no order of arrival spans keys.

    Raises:
        FlowBuildError, FlowTypeError: when an argument is invalid.

    Example:
        >>> from flow.testing import run_once
        >>> from flow_windowing import Count, CountDistinct, EventClock, TumblingWindower
        >>> clock, hours = EventClock("at", "1m"), TumblingWindower("1h")
        >>> out = run_once(
        ...     [("ann", {"at": 5, "page": "a"}), ("bob", {"at": 9, "page": "a"})],
        ...     lambda visits: aggregate_window_all(
        ...         "site", visits, clock, hours, n=Count(), pages=CountDistinct("page")
        ...     ).down,
        ... )
        >>> [(key, meta.open_time.hour, result) for key, (meta, result) in out]
        [('all', 0, {'n': 2, 'pages': 1})]
    """
    options = {"timestamp": timestamp}
    named = named_aggregates(step_id, "aggregate_window_all", aggregates, options)
    for name, one in aggregates.items():
        if not one.spans_keys:
            raise FlowBuildError(
                f"step {shorten(step_id)}: {name}: {type(one).__name__} goes by the order of "
                "arrival, which does not span keys: use Earliest or Latest, or give all items one "
                "key with op.key_on and use aggregate_window"
            )
    _check_arguments(step_id, up, windower, timestamp)
    buckets = add_step(f"{step_id}.bucket", Bucket(BUCKETS), up)[0]
    partials = fold_with(
        f"{step_id}.partial",
        buckets,
        _stream_clock(step_id, clock),
        windower,
        Partials(named.names, named.aggregators),
        None,
        "close",
        timestamp,
    )
    gathered = map_items(f"{step_id}.gather", partials.down, gather)
    late = add_step(f"{step_id}.rekey", Rekey(ALL_KEYS), partials.late)[0]
    down, closed = _merge(step_id, gathered, named, "aggregate_window_all")
    return WindowOut(down, late, closed)


def top_n(
    step_id: str,
    up: KeyedStream[V],
    clock: Clock[V, Any],
    windower: Windower[Any],
    n: int,
    by: Aggregator[V, Any, Any] | None = None,
    timestamp: Timestamp | None = None,
) -> WindowOut[V, list[tuple[str, Any]]]:
    """Rank the keys of each window by an aggregate of their values, and emit the first `n`.

    The value of a window is a list of ``(key, result)``, the greatest result first; keys with equal
    results are sorted by key. A key whose result is ``None`` has no rank. NaN is greater than any
    other number. The key of all rankings is ``"all"``.

    The work is done in two levels: windows of each key aggregate its values, and as a window
    closes, each task reduces its keys to the first `n` before one task merges these rankings.

    Args:
        step_id: the step's id, unique in the flow; late values are counted at ``<step_id>.by_key``.
        up: the keyed stream to read; its keys are ranked.
        clock: the clock; of an `EventClock`, the watermark is that of the stream, as with
            ``scope="stream"``. A window closes for all keys at once.
        windower: a `TumblingWindower`, `SlidingWindower` or `CalendarWindower`, whose windows are
            the same for all keys.
        n: the number of keys, at least 1.
        by: the aggregate by which keys are ranked; by default `Count`, the number of values.
        timestamp: the time in the metadata; see `fold_window`.

    Returns:
        The streams: ``down`` with the rankings, ``late`` with late values under their own keys, and
        ``closed``.

    Raises:
        FlowBuildError, FlowTypeError: when an argument is invalid.

    Example:
        >>> from flow.testing import run_once
        >>> from flow_windowing import EventClock, TumblingWindower
        >>> clock, hours = EventClock("at", "1m"), TumblingWindower("1h")
        >>> visits = [(page, {"at": 60}) for page in ["/", "/cart", "/", "/about"]]
        >>> out = run_once(visits, lambda s: top_n("top", s, clock, hours, 2).down)
        >>> [(key, ranking) for key, (_, ranking) in out]
        [('all', [('/', 2), ('/about', 1)])]
    """
    check_whole(f"step {shorten(step_id)}: n", n, 1)
    by = Count() if by is None else by
    check_aggregator(step_id, "by", by)
    _check_arguments(step_id, up, windower, timestamp)
    of_key = fold_with(
        f"{step_id}.by_key",
        up,
        _stream_clock(step_id, clock),
        windower,
        by,
        None,
        "close",
        timestamp,
    )
    ranking = TopKeys(n)
    combine = Combine(RankChunk(ranking), TopRows(n))
    ranked = add_step(f"{step_id}.rank", combine, of_key.down)[0]
    down, closed = _merge(step_id, ranked, ranking, "top_n")
    return WindowOut(down, of_key.late, closed)


def _merge(
    step_id: str, partials: KeyedStream[Any], aggregator: Aggregator[Any, Any, Any], kind: str
) -> tuple[KeyedStream[Any], KeyedStream[Any]]:
    """Add the step that merges partial accumulators; return results and closed windows."""
    operator = Stateful(MergeBuilder(aggregator), kind, emits=MergeBuilder.PORTS)
    down, closed = add_step(step_id, operator, partials)
    return down, closed


def _stream_clock(step_id: str, clock: Clock[Any, Any]) -> Clock[Any, Any]:
    """Return a clock whose watermark is the same for all keys.

    Raises:
        FlowTypeError: when `clock` is not a `Clock`.
        FlowBuildError: when its watermark is that of each key.
    """
    with errors_of_step(step_id):
        check_clock(clock)
    if isinstance(clock, EventClock):
        # A stream's watermark needs no state per key, so there is none to forget.
        return replace(clock, scope="stream", forget_after=None)
    if type(clock) is SystemClock or clock.progress is not None:
        return clock
    raise FlowBuildError(
        f"step {shorten(step_id)}: a window over all keys needs one watermark for all keys, and "
        f"{type(clock).__name__} has one for each: use EventClock or SystemClock, or give the "
        "clock a `progress`"
    )


def _check_arguments(step_id: str, up: object, windower: Any, timestamp: object) -> None:
    """Check arguments that the inner steps would refuse by their own names.

    Raises:
        FlowTypeError: when `up` is no stream, or `windower` is no `Windower`.
        FlowBuildError: when the windows of a key depend on its values, or `timestamp` is no rule.
    """
    flow_of(step_id, up)
    check_timestamp(step_id, timestamp)
    with errors_of_step(step_id):
        check_windower(windower)
    if not windower.follows_time_alone:
        raise FlowBuildError(
            f"step {shorten(step_id)}: the windows of {type(windower).__name__} differ from key to "
            "key: use TumblingWindower, SlidingWindower or CalendarWindower, or give all items one "
            "key with op.key_on and use aggregate_window"
        )


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
            window = _latest([partial.window for partial in partials])
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


def _latest(windows: list[WindowMetadata]) -> WindowMetadata:
    """Return the metadata with the greatest timestamp, of those of the parts of a window."""
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
        windows_of: dict[int, list[WindowMetadata]] = {}
        entries_of: dict[int, list[Entry]] = {}
        for key, (window, result) in zip(keys, values, strict=True):
            windows_of.setdefault(window.window_id, []).append(window)
            entries = entries_of.setdefault(window.window_id, [])
            if result is not None:
                entries.append((key, result))
        partials = [
            Partial("", _latest(windows_of[window_id]), self.ranking.ranked(entries))
            for window_id, entries in entries_of.items()
        ]
        return [ALL_KEYS] * len(partials), partials


@dataclass(frozen=True)
class TopRows:
    """The filter of rows that can be among the first `n` of their window, in columns."""

    n: int

    def __call__(self, keys: pa.Array, batch: pa.RecordBatch) -> pa.Array | None:
        """Return the indices of the first `n` rows of each window, by result and key.

        The row with the greatest timestamp of each window is among them, as it is the ranking's.

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
        starts, windows = np.flatnonzero(is_start), np.cumsum(is_start) - 1
        is_kept = np.arange(len(windows)) - starts[windows] < self.n
        if "timestamp" in columns:
            times = columns["timestamp"].take(order).to_numpy()
            last_of_windows = np.append(starts[1:], len(windows)) - 1
            is_kept[np.lexsort((times, windows))[last_of_windows]] = True
        return order.filter(pa.array(is_kept))


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
