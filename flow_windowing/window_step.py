"""Windowing steps in a flow, and their streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from flow.checks import check_choice, check_flag
from flow.dataflow import KeyedStream, add_step
from flow.errors import FlowBuildError, FlowTypeError, shorten
from flow.keyed.step import Stateful
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.aggregates.folding import DiscardingBuilder, FoldingBuilder
from flow_windowing.clocks.clock import Clock
from flow_windowing.contract.logic import WindowLogic
from flow_windowing.contract.metadata import LateValue, WindowMetadata
from flow_windowing.contract.panes import AfterWatermark, Early, Late, Trigger
from flow_windowing.lowering import DriverBuilder
from flow_windowing.rules.settings import PORTS, Emission, Emit, Timestamp
from flow_windowing.windowers.windower import Windower

V = TypeVar("V")
W = TypeVar("W")

EMITS = ("close", "epoch", "update")
TIMESTAMPS = ("open", "close", "last")


class WindowOut(NamedTuple, Generic[V, W]):
    """The streams of a windowing operator.

    Attributes:
        down: ``(key, (WindowMetadata, value))``: the values that windows emit.
        late: ``(key, LateValue)``: the values that missed a window.
        closed: ``(key, WindowMetadata)``: each window, as it closes.
    """

    down: KeyedStream[tuple[WindowMetadata, W]]
    late: KeyedStream[LateValue[V]]
    closed: KeyedStream[WindowMetadata]


def fold_with(
    step_id: str,
    up: KeyedStream[Any],
    clock: Clock[Any, Any],
    windower: Windower[Any],
    aggregator: Aggregator[Any, Any, Any],
    ordered: bool | None,
    emit: Emit | Trigger,
    timestamp: Timestamp | None,
) -> WindowOut[Any, Any]:
    """Add a windowing step that emits an aggregate of each window."""
    emission = _emission_of(step_id, emit, windower)
    is_discarding = isinstance(emission, AfterWatermark) and not emission.accumulate
    make = DiscardingBuilder if is_discarding else FoldingBuilder
    builder = make(aggregator, emission)
    return add_window(step_id, (up,), clock, windower, builder, ordered, emission, timestamp)


def _emission_of(step_id: str, emit: Emit | Trigger, windower: Windower[Any]) -> Emission:
    """Return the argument `emit` of a step, with `Early` and `Late` as an `AfterWatermark`.

    Raises:
        FlowBuildError: when `emit` is no time of emission, or has a rule for late panes although
            the windower has no grace.
    """
    if isinstance(emit, Early):
        return AfterWatermark(early=emit)
    trigger = AfterWatermark(late=emit) if isinstance(emit, Late) else emit
    if not isinstance(trigger, AfterWatermark):
        try:
            check_choice(f"step {shorten(step_id)}: emit", trigger, EMITS)
        except FlowBuildError as error:
            raise FlowBuildError(f"{error}; or a trigger such as Early(every='10s')") from None
        return trigger
    # `add_window` checks the type of the windower.
    if trigger.late is not None and not getattr(windower, "grace_us", 1):
        raise FlowBuildError(
            f"step {shorten(step_id)}: emit has {trigger.late!r}, but no value enters a window "
            f"after its on-time pane: give the windower a grace, got {windower!r}"
        )
    return trigger


def add_window(
    step_id: str,
    ups: tuple[KeyedStream[Any], ...],
    clock: Clock[Any, Any],
    windower: Windower[Any],
    builder: Callable[[Any], WindowLogic[Any, Any, Any]],
    ordered: bool | None,
    emit: Emission = "close",
    timestamp: Timestamp | None = None,
) -> WindowOut[Any, Any]:
    """Add a windowing step."""
    check_timestamp(step_id, timestamp)
    check_ordered(step_id, ordered)
    if ordered is None:
        ordered = depends_on_order(builder)
    try:
        driver = DriverBuilder(clock, windower, builder, ordered, len(ups), emit, timestamp)
    except FlowTypeError as error:
        raise FlowTypeError(f"step {shorten(step_id)}: {error}") from None
    operator = Stateful(driver, "window", sides=len(ups), emits=PORTS)
    return WindowOut(*add_step(step_id, operator, *ups))


def check_timestamp(step_id: str, timestamp: object) -> None:
    """Raise a `FlowBuildError` unless `timestamp` is a rule of timestamps or ``None``."""
    if timestamp is not None:
        check_choice(f"step {shorten(step_id)}: timestamp", timestamp, TIMESTAMPS)


def check_ordered(step_id: str, ordered: object) -> None:
    """Raise a `FlowTypeError` unless `ordered` is True, False or ``None``."""
    if ordered is not None:
        check_flag(f"step {shorten(step_id)}: ordered", ordered)


def depends_on_order(builder: Callable[[Any], WindowLogic[Any, Any, Any]]) -> bool:
    """Return True if results of a window may depend on the order in which values enter it."""
    return not isinstance(builder, FoldingBuilder) or builder.aggregator.depends_on_order
