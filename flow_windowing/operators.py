"""Windowing operators, which aggregate the values of windows. Use as ``import flow_windowing``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, get_args

from flow.checks import check_choice, check_flag, wrong_type
from flow.dataflow import KeyedStream, Stream, add_step, check_callable
from flow.errors import DurationError, FlowBuildError, FlowTypeError, shorten
from flow.keyed.step import Stateful
from flow.operators.folds import Greater, Lesser
from flow.operators.stateless import key_on
from flow_windowing.aggregates.aggregator import Aggregator, Field
from flow_windowing.aggregates.collections import COLLECTORS
from flow_windowing.aggregates.folding import (
    DiscardingBuilder,
    Fold,
    FoldingBuilder,
    NamedAggregates,
    Reduce,
)
from flow_windowing.aggregates.numbers import Count, Mean, Sum
from flow_windowing.clocks.clock import Clock
from flow_windowing.lowering import DriverBuilder
from flow_windowing.rules.metadata import PORTS, RESULT_COLUMNS, LateValue, WindowMetadata
from flow_windowing.rules.triggers import (
    AfterWatermark,
    Early,
    Emission,
    Emit,
    Late,
    Timestamp,
    Trigger,
)
from flow_windowing.rules.window_logic import WindowLogic
from flow_windowing.windowers.windower import Windower

V = TypeVar("V")


W = TypeVar("W")


S = TypeVar("S")


X = TypeVar("X")
Added = TypeVar("Added")
P = ParamSpec("P")


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
    builder = (DiscardingBuilder if is_discarding else FoldingBuilder)(aggregator, emission)
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
            check_choice(f"step {shorten(step_id)}: emit", trigger, get_args(Emit))
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
        # Custom logic may depend on the order in which values enter its window.
        ordered = not isinstance(builder, FoldingBuilder) or builder.aggregator.depends_on_order
    with errors_of_step(step_id):
        driver = DriverBuilder(clock, windower, builder, ordered, len(ups), emit, timestamp)
    operator = Stateful(driver, "window", sides=len(ups), emits=PORTS)
    return WindowOut(*add_step(step_id, operator, *ups))


@contextmanager
def errors_of_step(step_id: str, argument: str = "") -> Iterator[None]:
    """Name the step, and an argument of the operator, in errors of arguments in the block."""
    try:
        yield
    except (FlowTypeError, FlowBuildError, DurationError) as error:
        raise type(error)(f"step {shorten(step_id)}: {argument}{error}") from None


def check_timestamp(step_id: str, timestamp: object) -> None:
    """Raise a `FlowBuildError` unless `timestamp` is a rule of timestamps or ``None``."""
    if timestamp is not None:
        check_choice(f"step {shorten(step_id)}: timestamp", timestamp, get_args(Timestamp))


def check_ordered(step_id: str, ordered: object) -> None:
    """Raise a `FlowTypeError` unless `ordered` is True, False or ``None``."""
    if ordered is not None:
        check_flag(f"step {shorten(step_id)}: ordered", ordered)


def window(
    step_id: str,
    up: KeyedStream[V],
    clock: Clock[V, Any],
    windower: Windower[Any],
    builder: Callable[[S | None], WindowLogic[V, W, S]],
    ordered: bool | None = None,
    *,
    timestamp: Timestamp | None = None,
) -> WindowOut[V, W]:
    """Run a custom `WindowLogic` for each window of each key.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        clock: the clock, such as an `EventClock`.
        windower: the windower, such as a `TumblingWindower`.
        builder: called with a window's snapshot, or ``None`` for a new window; returns its logic.
        ordered: ``True``: values enter windows in timestamp order, as the watermark passes them,
            equal timestamps in order of arrival; ``False``: in order of arrival, at once. By
            default, in every operator, ``True`` if the results of the step may depend on that
            order, as with custom logic, a fold or a list, and ``False`` if not, as with a sum.
        timestamp: the time in ``WindowMetadata.timestamp``, for sinks that need one: the window's
            ``"open"`` or ``"close"`` time, or ``"last"``, its greatest timestamp.

    Example:
        >>> from flow.testing import run_once
        >>> from flow_windowing import SystemClock, TumblingWindower
        >>> class Shout(WindowLogic):
        ...     def __init__(self, state):
        ...         pass
        ...
        ...     def on_value(self, value):
        ...         return [value.upper()]
        ...
        ...     def on_close(self):
        ...         return ["over"]
        ...
        ...     def snapshot(self):
        ...         return ()
        >>> hours = TumblingWindower("1h")
        >>> out = run_once(
        ...     [("a", "hey")], lambda s: window("shout", s, SystemClock(), hours, Shout).down
        ... )
        >>> [value for _, (_, value) in out]
        ['HEY', 'over']
    """
    check_callable(step_id, "builder", builder)
    return add_window(step_id, (up,), clock, windower, builder, ordered, timestamp=timestamp)


def fold_window(
    step_id: str,
    up: KeyedStream[V],
    clock: Clock[V, Any],
    windower: Windower[Any],
    builder: Callable[[], S],
    folder: Callable[[S, V], S],
    merger: Callable[[S, S], S] | None = None,
    ordered: bool | None = None,
    *,
    emit: Emit | Trigger = "close",
    timestamp: Timestamp | None = None,
) -> WindowOut[V, S]:
    """Fold the values of each window into one value.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        clock: the clock, such as an `EventClock`.
        windower: the windower, such as a `TumblingWindower`.
        builder: returns the initial value.
        folder: called with the current fold and the next value; returns the new fold.
        merger: called with the folds of two windows that merge, the earlier window's first; returns
            the fold of both. Required for windowers that merge windows, such as
            `SessionWindower`.
        ordered: as in `window`. Sessions that merge do not keep the order of arrival: the merger
            combines two folds, and the value that joins the sessions is folded last. With
            ``ordered=False`` session values 10, 20, 11, 21, 15 with a gap of 5 fold as 10, 11, 20,
            21, 15.
        emit: ``"close"``: once, when the window closes; ``"update"``: after every value, and not
            when it closes; ``"epoch"``: once in each epoch in which the window has changed, and
            when it closes; a trigger, such as ``Early(every="10s")`` or an `AfterWatermark`: in
            panes. A session that merges into another after it has emitted also emits `Retracted`.
        timestamp: the time in ``WindowMetadata.timestamp``, for sinks that need one: the window's
            ``"open"`` or ``"close"`` time, or ``"last"``, its greatest timestamp.

    Raises:
        FlowBuildError, FlowTypeError: when an argument is invalid.

    Example:
        >>> from flow.testing import run_once
        >>> from flow_windowing import EventClock, TumblingWindower
        >>> clock, hours = EventClock(lambda seconds: seconds, "0s"), TumblingWindower("1h")
        >>> out = run_once(
        ...     [("a", 10), ("a", 20), ("a", 4000)],
        ...     lambda s: fold_window("n", s, clock, hours, int, lambda n, _: n + 1).down,
        ... )
        >>> [(key, meta.open_time.hour, count) for key, (meta, count) in out]
        [('a', 0, 2), ('a', 1, 1)]
    """
    check_callable(step_id, "builder", builder)
    check_callable(step_id, "folder", folder)
    if merger is not None:
        check_callable(step_id, "merger", merger)
    elif getattr(windower, "merges", False):  # `add_window` checks the type of the windower.
        raise FlowBuildError(
            f"step {shorten(step_id)}: merger is needed, as {type(windower).__name__} merges "
            "windows: pass a function that returns the fold of two folds"
        )
    fold = Fold(builder, folder, merger, copies=emit != "close")
    return fold_with(step_id, up, clock, windower, fold, ordered, emit, timestamp)


def reduce_window(
    step_id: str,
    up: KeyedStream[V],
    clock: Clock[V, Any],
    windower: Windower[Any],
    reducer: Callable[[V, V], V],
    ordered: bool | None = None,
    *,
    emit: Emit | Trigger = "close",
    timestamp: Timestamp | None = None,
) -> WindowOut[V, V]:
    """Reduce the values of each window to one value, two at a time.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        clock: the clock, such as an `EventClock`.
        windower: the windower, such as a `TumblingWindower`.
        reducer: called with the current result and the next value, or with the results of two
            windows that merge, the earlier window's first; returns the new result. It must not
            change its arguments: a value may be in several windows.
        ordered: as in `window`; see `fold_window` for the order in sessions that merge.
        emit: when windows emit; see `fold_window`.
        timestamp: the time in the metadata; see `fold_window`.

    Example:
        >>> from flow.testing import run_once
        >>> from flow_windowing import CountWindower, SystemClock
        >>> clock, twos, add = SystemClock(), CountWindower(2), int.__add__
        >>> out = run_once(
        ...     [("a", 1), ("a", 2)], lambda s: reduce_window("sum", s, clock, twos, add).down
        ... )
        >>> [value for _, (_, value) in out]
        [3]
    """
    check_callable(step_id, "reducer", reducer)
    reduce = Reduce(reducer, copies=emit != "close")
    return fold_with(step_id, up, clock, windower, reduce, ordered, emit, timestamp)


def collect_window(
    step_id: str,
    up: KeyedStream[Any],
    clock: Clock[Any, Any],
    windower: Windower[Any],
    into: type[list[Any]] | type[set[Any]] | type[dict[Any, Any]] = list,
    ordered: bool | None = None,
    *,
    emit: Emit | Trigger = "close",
    timestamp: Timestamp | None = None,
) -> WindowOut[Any, Any]:
    """Collect the values of each window.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        clock: the clock, such as an `EventClock`.
        windower: the windower, such as a `TumblingWindower`.
        into: `list`, `set`, or `dict`; for a dict, values are ``(key, value)`` pairs, and the last
            value of a key is held.
        ordered: as in `window`.
        emit: when windows emit; see `fold_window`.
        timestamp: the time in the metadata; see `fold_window`.

    Example:
        >>> from flow.testing import run_once
        >>> from flow_windowing import EventClock, TumblingWindower
        >>> clock, hours = EventClock(lambda seconds: seconds, "1m"), TumblingWindower("1h")
        >>> out = run_once(
        ...     [("a", 20), ("a", 10)], lambda s: collect_window("all", s, clock, hours).down
        ... )
        >>> [(key, values) for key, (_, values) in out]
        [('a', [10, 20])]
    """
    chosen: object = into
    collector = COLLECTORS.get(chosen) if isinstance(chosen, type) else None
    if collector is None:
        raise FlowBuildError(
            f"step {shorten(step_id)}: into must be list, set or dict, got {shorten(into)}"
        )
    return fold_with(step_id, up, clock, windower, collector, ordered, emit, timestamp)


def count_window(
    step_id: str,
    up: Stream[X],
    clock: Clock[X, Any],
    windower: Windower[Any],
    key: str | list[str] | tuple[str, ...] | Callable[[X], str],
    *,
    emit: Emit | Trigger = "close",
    timestamp: Timestamp | None = None,
) -> WindowOut[X, int]:
    """Count the items of each key in each window.

    Args:
        step_id: the step's id, unique in the flow; the keying before it is ``<step_id>.key``.
        up: the stream to read, without keys.
        clock: the clock, such as an `EventClock`.
        windower: the windower, such as a `TumblingWindower`.
        key: a function that returns an item's key, or the path or paths of the fields that make
            it, see `flow.operators.key_on`.
        emit: when windows emit; see `fold_window`.
        timestamp: the time in the metadata; see `fold_window`.

    Example:
        >>> from flow.testing import run_once
        >>> from flow_windowing import SystemClock, TumblingWindower
        >>> clock, hours = SystemClock(), TumblingWindower("1h")
        >>> out = run_once(
        ...     ["a", "b", "a"], lambda s: count_window("n", s, clock, hours, lambda x: x).down
        ... )
        >>> sorted((key, count) for key, (_, count) in out)
        [('a', 2), ('b', 1)]
    """
    keyed = key_on(f"{step_id}.key", up, key)
    return fold_with(step_id, keyed, clock, windower, Count(), None, emit, timestamp)


def max_window(
    step_id: str,
    up: KeyedStream[V],
    clock: Clock[V, Any],
    windower: Windower[Any],
    by: Callable[[V], Any] | None = None,
    *,
    emit: Emit | Trigger = "close",
    timestamp: Timestamp | None = None,
) -> WindowOut[V, V]:
    """Emit the greatest value of each window, the first of equal values.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        clock: the clock, such as an `EventClock`.
        windower: the windower, such as a `TumblingWindower`.
        by: returns the part of a value to compare; by default values are compared.
        emit: when windows emit; see `fold_window`.
        timestamp: the time in the metadata; see `fold_window`.

    Example:
        >>> from flow.testing import run_once
        >>> from flow_windowing import SystemClock, TumblingWindower
        >>> clock, hours = SystemClock(), TumblingWindower("1h")
        >>> out = run_once([("a", 1), ("a", 3)], lambda s: max_window("m", s, clock, hours).down)
        >>> [value for _, (_, value) in out]
        [3]
    """
    if by is not None:
        check_callable(step_id, "by", by)
    return reduce_window(
        step_id, up, clock, windower, Greater(by), False, emit=emit, timestamp=timestamp
    )


def min_window(
    step_id: str,
    up: KeyedStream[V],
    clock: Clock[V, Any],
    windower: Windower[Any],
    by: Callable[[V], Any] | None = None,
    *,
    emit: Emit | Trigger = "close",
    timestamp: Timestamp | None = None,
) -> WindowOut[V, V]:
    """Emit the least value of each window, the first of equal values; arguments as `max_window`.

    >>> from flow.testing import run_once
    >>> from flow_windowing import SystemClock, TumblingWindower
    >>> clock, hours = SystemClock(), TumblingWindower("1h")
    >>> out = run_once([("a", 1), ("a", 3)], lambda s: min_window("m", s, clock, hours).down)
    >>> [value for _, (_, value) in out]
    [1]
    """
    if by is not None:
        check_callable(step_id, "by", by)
    return reduce_window(
        step_id, up, clock, windower, Lesser(by), False, emit=emit, timestamp=timestamp
    )


def _refusing_of(operator: Callable[P, Added]) -> Callable[P, Added]:
    """Return an operator that refuses the argument `of`, which other operators call `by`."""

    @wraps(operator)
    def checked(*arguments: P.args, **options: P.kwargs) -> Added:
        if "of" in options:
            step_id = arguments[0] if arguments else options.get("step_id")
            raise FlowTypeError(
                f"step {shorten(step_id)}: {operator.__name__} has no argument 'of': use by=, a "
                "function of a value or the path of a field"
            )
        return operator(*arguments, **options)

    return checked


@_refusing_of
def sum_window(
    step_id: str,
    up: KeyedStream[V],
    clock: Clock[V, Any],
    windower: Windower[Any],
    by: Field = None,
    *,
    emit: Emit | Trigger = "close",
    timestamp: Timestamp | None = None,
) -> WindowOut[V, Any]:
    """Emit the sum of each window.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        clock: the clock, such as an `EventClock`.
        windower: the windower, such as a `TumblingWindower`.
        by: the part of a value to add: a field's path, a function, or by default the value itself.
        emit: when windows emit; see `fold_window`.
        timestamp: the time in the metadata; see `fold_window`.

    Example:
        >>> from flow.testing import run_once
        >>> from flow_windowing import SystemClock, TumblingWindower
        >>> clock, hours = SystemClock(), TumblingWindower("1h")
        >>> out = run_once([("a", 1), ("a", 3)], lambda s: sum_window("m", s, clock, hours).down)
        >>> [value for _, (_, value) in out]
        [4]
    """
    with errors_of_step(step_id, "by: "):
        total = Sum(by)
    return fold_with(step_id, up, clock, windower, total, None, emit, timestamp)


@_refusing_of
def mean_window(
    step_id: str,
    up: KeyedStream[V],
    clock: Clock[V, Any],
    windower: Windower[Any],
    by: Field = None,
    *,
    emit: Emit | Trigger = "close",
    timestamp: Timestamp | None = None,
) -> WindowOut[V, Any]:
    """Emit the mean of each window, ``None`` without numbers; see `sum_window` for arguments.

    >>> from flow.testing import run_once
    >>> from flow_windowing import SystemClock, TumblingWindower
    >>> clock, hours = SystemClock(), TumblingWindower("1h")
    >>> out = run_once([("a", 1), ("a", 2)], lambda s: mean_window("m", s, clock, hours).down)
    >>> [value for _, (_, value) in out]
    [1.5]
    """
    with errors_of_step(step_id, "by: "):
        mean = Mean(by)
    return fold_with(step_id, up, clock, windower, mean, None, emit, timestamp)


def aggregate_window(
    step_id: str,
    up: KeyedStream[V],
    clock: Clock[V, Any],
    windower: Windower[Any],
    ordered: bool | None = None,
    emit: Emit | Trigger = "close",
    timestamp: Timestamp | None = None,
    **aggregates: Aggregator[V, Any, Any],
) -> WindowOut[V, dict[str, Any]]:
    """Compute several aggregates of each window, emitted as a dict by name.

    Args:
        step_id: the step's id, unique in the flow.
        up: the keyed stream to read.
        clock: the clock, such as an `EventClock`.
        windower: the windower, such as a `TumblingWindower`.
        ordered: as in `window`. The default is ``True`` if an aggregate depends on the order, such
            as `Collect` and `CollectUnique`, else ``False``; see `Aggregator.depends_on_order`.
        emit: when windows emit; see `fold_window`.
        timestamp: the time in the metadata; see `fold_window`.
        aggregates: the aggregates by name, such as ``total=Sum("amount")``.

    Raises:
        FlowBuildError, FlowTypeError: when an argument is invalid.

    Example:
        >>> from flow.testing import run_once
        >>> from flow_windowing import Count, Sum, SystemClock, TumblingWindower
        >>> def hourly(stream):
        ...     hours = TumblingWindower("1h")
        ...     return aggregate_window(
        ...         "hourly", stream, SystemClock(), hours, n=Count(), total=Sum("amount")
        ...     ).down
        >>> out = run_once([("a", {"amount": 2}), ("a", {"amount": 3})], hourly)
        >>> [value for _, (_, value) in out]
        [{'n': 2, 'total': 5}]
    """
    options = {"ordered": ordered, "emit": emit, "timestamp": timestamp}
    named = named_aggregates(step_id, "aggregate_window", aggregates, options)
    return fold_with(step_id, up, clock, windower, named, ordered, emit, timestamp)


def named_aggregates(
    step_id: str,
    operator: str,
    aggregates: Mapping[str, Aggregator[Any, Any, Any]],
    options: Mapping[str, object],
) -> NamedAggregates:
    """Return the aggregates of a step, after a check of each.

    Args:
        step_id: the step.
        operator: the name of the operator.
        aggregates: the aggregates by name.
        options: the operator's other arguments by name, which no aggregate can have.
    """
    for name, given in options.items():
        if isinstance(given, Aggregator):
            raise FlowBuildError(
                f"step {shorten(step_id)}: {name!r} is an argument of {operator}, so no "
                f"aggregate can be called that: give {shorten(given)} another name"
            )
    if not aggregates:
        raise FlowBuildError(
            f"step {shorten(step_id)}: {operator} needs at least one aggregate, "
            'e.g. total=Sum("amount")'
        )
    for name, one in aggregates.items():
        check_aggregator(step_id, name, one)
        if name in RESULT_COLUMNS:
            raise FlowBuildError(
                f"step {shorten(step_id)}: {name!r} is a column of every result as a record, so no "
                f"aggregate can be called that: give {shorten(one)} another name"
            )
    return NamedAggregates(tuple(aggregates), tuple(aggregates.values()))


def check_aggregator(step_id: str, name: str, aggregator: object) -> None:
    """Raise a `FlowTypeError` that names step and aggregate unless it is an `Aggregator`."""
    if isinstance(aggregator, Aggregator):
        return
    example = ""
    if isinstance(aggregator, type) and issubclass(aggregator, Aggregator):
        example = f": write {aggregator.__name__}()"
    rule = f"step {shorten(step_id)}: {name} must be an Aggregator such as Sum('amount')"
    raise wrong_type(rule, aggregator, example)
