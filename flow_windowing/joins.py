"""Joins of keyed streams on their key: within windows, within an interval of time, as of a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from flow.checks import check_choice, wrong_type
from flow.dataflow import KeyedStream, Stream, add_step
from flow.durations import Duration
from flow.errors import FlowBuildError, shorten
from flow.keyed.step import Stateful
from flow.operators.key_join import EMIT_MODES, INSERT_MODES, EmitMode, InsertMode
from flow_windowing.aggregates.folding import AllOfEachSide, FoldingBuilder, OneOfEachSide
from flow_windowing.clocks.clock import Clock
from flow_windowing.join_logic import JoinBuilder
from flow_windowing.operators import WindowOut, add_window, check_ordered, errors_of_step
from flow_windowing.rules.metadata import PORTS, JoinedPair
from flow_windowing.rules.triggers import Timestamp
from flow_windowing.rules.window_logic import WindowLogic
from flow_windowing.time_joins import asof_matching as asof
from flow_windowing.time_joins.asof_join import AsofJoin
from flow_windowing.time_joins.asof_matching import AsofEmit, Direction
from flow_windowing.time_joins.interval_join import IntervalJoin
from flow_windowing.time_joins.interval_matching import How
from flow_windowing.time_joins.join_shard import TimeJoinBuilder
from flow_windowing.windowers.windower import Windower


def join_window(
    step_id: str,
    *sides: KeyedStream[Any],
    clock: Clock[Any, Any],
    windower: Windower[Any],
    insert_mode: InsertMode = "last",
    emit_mode: EmitMode = "final",
    ordered: bool | None = None,
    timestamp: Timestamp | None = None,
) -> WindowOut[Any, tuple[Any, ...]]:
    """Join the values of each window by key into tuples, with one entry for each side.

    Clock and windower get the plain values of all sides; a late value has the number of its side.

    Args:
        step_id: the step's id, unique in the flow.
        sides: two or more keyed streams.
        clock: the clock, such as an `EventClock`.
        windower: the windower, such as a `TumblingWindower`.
        insert_mode: the values of a side that take part: the ``"first"``, the ``"last"``, or, for
            ``"product"``, all, in every combination.
        emit_mode: when to emit: ``"final"``, as the window closes, with ``None`` for a side without
            a value; ``"complete"``, once every side has a value, after which the window starts
            over; ``"running"``, after every value, with ``None`` for a side without a value.
        ordered: as in `window`. By default values enter in timestamp order, and first and last are
            by timestamp; with ``False`` by arrival.
        timestamp: the time in ``WindowMetadata.timestamp``; see `fold_window`.

    Raises:
        FlowBuildError, FlowTypeError: when an argument is invalid.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> from flow_windowing import SystemClock, TumblingWindower
        >>> def joined(views):
        ...     clicks = op.filter_value("clicks", views, lambda n: n > 1)
        ...     hours = TumblingWindower("1h")
        ...     return join_window("j", views, clicks, clock=SystemClock(), windower=hours).down
        >>> out = run_once([("a", 1), ("b", 2)], joined)
        >>> sorted((key, pair) for key, (_, pair) in out)
        [('a', (1, None)), ('b', (2, 2))]
    """
    check_choice(f"step {shorten(step_id)}: insert_mode", insert_mode, INSERT_MODES)
    check_choice(f"step {shorten(step_id)}: emit_mode", emit_mode, EMIT_MODES)
    if len(sides) < 2:
        raise FlowBuildError(
            f"step {shorten(step_id)}: a join needs two or more streams, got {len(sides)}"
        )
    check_ordered(step_id, ordered)
    by_timestamp = ordered is not False
    builder: Callable[[Any], WindowLogic[Any, Any, Any]]
    if emit_mode != "final":
        builder = JoinBuilder(len(sides), insert_mode, emit_mode, by_timestamp)
    elif insert_mode == "product":
        builder = FoldingBuilder(AllOfEachSide(len(sides), by_timestamp), "close")
    else:
        builder = FoldingBuilder(OneOfEachSide(len(sides), insert_mode, by_timestamp), "close")
    return add_window(step_id, sides, clock, windower, builder, by_timestamp, timestamp=timestamp)


def join_interval(
    step_id: str,
    left: KeyedStream[Any],
    right: KeyedStream[Any],
    clock: Clock[Any, Any],
    before: Duration,
    after: Duration,
    how: How = "inner",
    grace: Duration | None = None,
) -> WindowOut[Any, JoinedPair[Any, Any]]:
    """Join values of two streams by key whose timestamps are close to one another.

    A left and a right value match if ``left - before <= right <= left + after``, both bounds
    inclusive. Each pair leaves once, as its second value arrives, whichever comes first; several
    partners of a value leave by timestamp, those of one timestamp by arrival. A value is retained
    until the watermark is past the last time at which a partner could come, plus the grace.

    The window of a pair is the interval of its left value, and its id is the left timestamp in µs;
    ``WindowMetadata.timestamp`` is the greater of the two timestamps. The window of a right value
    without a partner is the interval in which a left value would have matched. The clock gets the
    plain values of both sides.

    Args:
        step_id: the step's id, unique in the flow.
        left: the left stream.
        right: the right stream.
        clock: the clock, such as an `EventClock`.
        before: the time before a left value at which partners begin. It may be negative, if
            partners only come later: ``before="-1m", after="5m"``.
        after: the time after a left value at which partners end. It may be negative, if partners
            only come earlier. ``before + after`` must not be negative.
        how: ``"inner"``: only pairs; ``"left"``, ``"right"`` or ``"outer"``: also each value of the
            left, of the right or of both streams that had no partner, with ``None`` in the other
            place, once it expires.
        grace: the time for which a value behind the watermark is still on time; by default none.

    Returns:
        ``down`` has ``(key, (WindowMetadata, JoinedPair))``; ``late`` the values that came
        behind the watermark and its grace, each with the number of its side; ``closed`` the window
        of each left value, as the value expires.

    Raises:
        FlowBuildError, FlowTypeError, DurationError: when an argument is invalid.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> from flow_windowing import EventClock
        >>> def joined(orders):
        ...     paid = op.map_value("paid", orders, lambda at: at + 60)
        ...     clock = EventClock(lambda at: at, "0s")
        ...     return join_interval("j", orders, paid, clock, before="0s", after="1m").down
        >>> [(key, *pair) for key, (_, pair) in run_once([("a", 0)], joined)]
        [('a', 0, 60)]
    """
    build = partial(IntervalJoin, clock, before, after, how, grace)
    return _join_by_time(step_id, "join_interval", left, right, build)


def join_asof(
    step_id: str,
    left: KeyedStream[Any],
    right: KeyedStream[Any],
    clock: Clock[Any, Any],
    tolerance: Duration | None,
    direction: Direction = "backward",
    how: asof.How = "left",
    emit: AsofEmit = "close",
    right_value: Callable[[Any], Any] | str | None = None,
) -> WindowOut[Any, JoinedPair[Any, Any]]:
    """Join each left value with the right value of its key that is valid at its time.

    The partner of a left value is the last right value at or before it, at most `tolerance` away;
    see `direction`. Of right values with one timestamp the last to arrive counts. A right value of
    ``None`` deletes: a left value that finds it has no partner.

    Each left value leaves exactly once, in the order of timestamps, when the watermark is past all
    times at which a right value on time would change its partner. So the output does not depend on
    the order of arrival. A key keeps the right value that is valid at the watermark, later right
    values, and the left values that wait.

    The window of an item is the interval in which the left value has partners; its id is the left
    timestamp in µs, and ``WindowMetadata.timestamp`` the left timestamp. The clock gets the plain
    values of both sides.

    Args:
        step_id: the step's id, unique in the flow.
        left: the left stream.
        right: the right stream.
        clock: the clock, such as an `EventClock`.
        tolerance: the greatest distance of a partner, inclusive, not negative. With ``None`` any
            distance will do, and a key keeps its last right value for good.
        direction: ``"backward"``: the last right value at or before the left value;
            ``"forward"``: the first one at or after it; ``"nearest"``: the one of these two that is
            nearer, of two as near the earlier one.
        how: ``"left"``: all left values leave, with ``None`` in the other place if they have no
            partner; ``"inner"``: only pairs leave.
        emit: ``"close"``, or ``"now"``: each left value leaves as it arrives, with its partner
            among the right values that have arrived before it; so the output depends on the order
            of arrival, and a right value that comes later changes no pair.
        right_value: a function of a right value, or the path of a field, that returns what is
            paired; ``None`` deletes. By default the right value itself.

    Returns:
        ``down`` has ``(key, (WindowMetadata, JoinedPair))``; ``late`` the values that came
        behind the watermark, each with the number of its side; ``closed`` the window of each left
        value, as the value leaves.

    Raises:
        FlowBuildError, FlowTypeError, DurationError: when an argument is invalid.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import run_once
        >>> from flow_windowing import EventClock
        >>> def joined(trades):
        ...     quotes = op.map_value("quotes", trades, lambda at: at // 10 * 10)
        ...     clock = EventClock(lambda at: at, "1m")
        ...     return join_asof("j", trades, quotes, clock, tolerance="5s").down
        >>> [(key, *pair) for key, (_, pair) in run_once([("a", 12), ("a", 27)], joined)]
        [('a', 12, 10), ('a', 27, None)]
    """
    build = partial(AsofJoin, clock, tolerance, direction, how, emit, right_value)
    return _join_by_time(step_id, "join_asof", left, right, build)


def _join_by_time(
    step_id: str,
    name: str,
    left: KeyedStream[Any],
    right: KeyedStream[Any],
    build: Callable[[], TimeJoinBuilder],
) -> WindowOut[Any, JoinedPair[Any, Any]]:
    """Add a join of two streams by time; errors of the builder are raised with the step's id."""
    for side, up in (("left", left), ("right", right)):
        if not isinstance(up, Stream):
            raise wrong_type(f"step {shorten(step_id)}: {side} must be a stream", up)
    with errors_of_step(step_id):
        builder = build()
    operator = Stateful(builder, name, sides=2, emits=PORTS)
    return WindowOut(*add_step(step_id, operator, left, right))
