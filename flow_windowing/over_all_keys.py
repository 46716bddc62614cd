"""Windowing operators over all keys: one result for each window of the whole stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from flow.checks import check_whole
from flow.dataflow import KeyedStream, add_step, flow_of
from flow.errors import FlowBuildError, FlowTypeError, shorten
from flow.keyed.step import Stateful
from flow.operators.stateless import Bucket, Combine, Rekey
from flow.operators.stateless import map as map_items
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.aggregates.folding import Partials
from flow_windowing.aggregates.numbers import Count
from flow_windowing.all_keys import ALL_KEYS, MergeBuilder, RankChunk, TopKeys, TopRows, gather
from flow_windowing.clocks.clock import Clock, SystemClock, check_clock
from flow_windowing.clocks.event_clock import EventClock
from flow_windowing.operators import check_aggregator, named_aggregates
from flow_windowing.rules.settings import Timestamp
from flow_windowing.window_step import WindowOut, check_timestamp, fold_with
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
    try:
        check_clock(clock)
    except FlowTypeError as error:
        raise FlowTypeError(f"step {shorten(step_id)}: {error}") from None
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
    try:
        check_windower(windower)
    except FlowTypeError as error:
        raise FlowTypeError(f"step {shorten(step_id)}: {error}") from None
    if not windower.follows_time_alone:
        raise FlowBuildError(
            f"step {shorten(step_id)}: the windows of {type(windower).__name__} differ from key to "
            "key: use TumblingWindower, SlidingWindower or CalendarWindower, or give all items one "
            "key with op.key_on and use aggregate_window"
        )
