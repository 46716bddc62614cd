"""Joins of several keyed streams on their key within windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flow.checks import check_choice
from flow.dataflow import KeyedStream
from flow.errors import FlowBuildError, shorten
from flow.operators.joins import EMIT_MODES, INSERT_MODES, EmitMode, InsertMode
from flow_windowing.aggregates.folding import FoldingBuilder
from flow_windowing.aggregates.sides import OneOfEachSide
from flow_windowing.clocks.clock import Clock
from flow_windowing.contract.logic import WindowLogic
from flow_windowing.join_logic import JoinBuilder
from flow_windowing.rules.timestamps import Timestamp
from flow_windowing.window_step import WindowOut, add_window, check_ordered
from flow_windowing.windowers.windower import Windower


def join_window(
    step_id: str,
    clock: Clock[Any, Any],
    windower: Windower[Any],
    *sides: KeyedStream[Any],
    insert_mode: InsertMode = "last",
    emit_mode: EmitMode = "final",
    ordered: bool | None = None,
    timestamp: Timestamp | None = None,
) -> WindowOut[Any, tuple[Any, ...]]:
    """Join the values of each window by key into tuples, with one entry for each side.

    Clock and windower get the plain values of all sides; a late value has the number of its side.

    Args:
        step_id: the step's id, unique in the flow.
        clock: the clock, such as an `EventClock`.
        windower: the windower, such as a `TumblingWindower`.
        sides: two or more keyed streams.
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
        ...     return join_window("j", SystemClock(), TumblingWindower("1h"), views, clicks).down
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
    if emit_mode == "final" and insert_mode != "product":
        one_each = OneOfEachSide(len(sides), insert_mode, by_timestamp)
        builder = FoldingBuilder(one_each, "close")
    else:
        builder = JoinBuilder(len(sides), insert_mode, emit_mode, by_timestamp)
    return add_window(step_id, sides, clock, windower, builder, by_timestamp, timestamp=timestamp)
