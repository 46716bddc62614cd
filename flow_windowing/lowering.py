"""Lowering of windowing and deduplicating steps: over columns, or key by key, and the reason.

No other module imports both paths, but for the builder of interval joins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any, ClassVar

from typing_extensions import override

from flow.columns.known_columns import StreamColumns
from flow.fields import field_path
from flow.instants import NEVER, Moment
from flow.keyed.state import MOVED, BlockReader, kind_of
from flow.keyed.step import Capabilities, KeyByKey, Lowering, OverColumns, TimedResults
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.aggregates.folding import (
    AllOfEachSide,
    FoldingBuilder,
    NamedAggregates,
    Partials,
    aggregators_of,
    by_side,
    map_lists,
    result_now,
)
from flow_windowing.by_key.pane_driver import PaneDriver
from flow_windowing.by_key.window_driver import WindowDriver, WindowingConfig
from flow_windowing.clocks.clock import ClockedBuilder
from flow_windowing.columnar.admission.shard_clocks import shard_clock_of
from flow_windowing.columnar.aggregates.accumulator_column import (
    has_kernel,
    is_order_free,
    reads_a_field,
)
from flow_windowing.columnar.state.segments import SegmentContent, without_blocks
from flow_windowing.columnar.state.snapshots import snapshots_of_content
from flow_windowing.columnar.step.preaggregation import WindowPreaggregation
from flow_windowing.columnar.step.window_shard import ShardWindows
from flow_windowing.columnar.windows.count_windows import CountWindows
from flow_windowing.columnar.windows.indexed_windows import AlignedWindows, CalendarWindows
from flow_windowing.columnar.windows.session_windows import SessionWindows
from flow_windowing.columnar.windows.window_view import ResultColumn
from flow_windowing.columnar.windows.windowing import Windowing, WindowPlan
from flow_windowing.join_logic import JoinBuilder
from flow_windowing.result_columns import columns_of_port
from flow_windowing.rules.key_state import (
    DriverState,
    WaitQueue,
    counts_of,
    read_snapshot,
    unpack_list,
)
from flow_windowing.rules.metadata import LATE
from flow_windowing.rules.triggers import AfterWatermark, settings_of
from flow_windowing.windowers.aligned import SlidingWindower, TumblingWindower
from flow_windowing.windowers.calendar import CalendarWindower
from flow_windowing.windowers.counts import CountWindower
from flow_windowing.windowers.session_windower import SessionWindower
from flow_windowing.windowers.windower import Windower

_GREATEST_OVERLAP = 64
"""Greatest number of count windows that hold one value in a step that runs over columns. With more
windows, the pairs of value and window take too much memory."""


@dataclass(frozen=True)
class DriverBuilder(WindowingConfig, ClockedBuilder):
    """Builder of a windowing step: makes the driver of each key, and lowers the step."""

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("clock", "builder")

    @override
    def __call__(self, snapshot: DriverState | None) -> WindowDriver:
        if isinstance(self.emit, AfterWatermark):
            return PaneDriver(self, self.emit, snapshot)
        return WindowDriver(self, snapshot)

    @property
    @override
    def capabilities(self) -> Capabilities:
        return super().capabilities._replace(
            settings=settings_of(self.emit, self.clock, self.windower),
            counter=counts_of,
            results=self._results() if self.clock.follows_inputs else None,
        )

    def _results(self) -> TimedResults:
        """Return the times of the results of a step in event time."""
        timestamp, windower = self.result_timestamp, self.windower
        leave_early = not (self._emits_at_close and windower.closes_by_time)
        stays_us = windower.stays_us(timestamp)
        if leave_early:  # The close of a window may be its length ahead of a value.
            stays_us = -windower.lengths_us[1] if timestamp == "close" else 0
        return TimedResults(
            self.reach_us, stays_us, leave_early, rule=f"{timestamp} {self.reach_us}"
        )

    @property
    def _emits_at_close(self) -> bool:
        """True if windows are known to emit nothing before they close."""
        return isinstance(self.builder, FoldingBuilder) and self.emit == "close"

    @override
    def lower(self) -> Lowering:
        plan = plan_of(self)
        if isinstance(plan, KeyByKey):
            return plan
        # A late value is the record itself.
        fields = fields_of(plan)
        return OverColumns(
            partial(ShardWindows, plan),
            fields,
            frozenset({LATE}),
            preaggregation=WindowPreaggregation.of(plan),
        )

    @override
    def columns(self, port: int, ups: Sequence[StreamColumns]) -> StreamColumns:
        return columns_of_port(self, port, ups)

    @override
    def snapshots_in(
        self, content: bytes, take: BlockReader
    ) -> Iterable[tuple[str, DriverState, int]]:
        if kind_of(content) == MOVED:
            return [("", read_snapshot(content), NEVER)]
        return snapshots_of_content(without_blocks(SegmentContent.decode(content), take))

    @override
    def whole(self, snapshot: DriverState, read: BlockReader) -> DriverState:
        return snapshot.whole(read)

    @override
    def view(self, snapshot: DriverState, moment: Moment) -> dict[str, Any]:
        windower = self.windower.build(snapshot.windower)
        queue, buffered = WaitQueue(snapshot.waiting), list[Any]()
        while queue:
            buffered.append(queue.pop().value)
        return {
            "watermark": self.watermark(snapshot, moment),
            "windows": {
                windower.metadata(window_id): self._value_of(state)
                for window_id, state in sorted(snapshot.windows.items())
            },
            "buffered": buffered,
        }

    def _value_of(self, state: Any) -> Any:
        """Return the value of an open window: its result so far, else its logic's snapshot."""
        if not isinstance(self.builder, FoldingBuilder):
            return state
        aggregator = self.builder.aggregator
        whole = map_lists(aggregator, state[0], unpack_list)
        if isinstance(aggregator, AllOfEachSide):  # Its result is much longer.
            return by_side(whole, aggregator.sides)
        return result_now(aggregator, whole)


def plan_of(config: WindowingConfig) -> WindowPlan | KeyByKey:
    """Return the columnar plan of a windowing step, or the reason for running key by key."""
    windowing, folding = windowing_of(config.windower), config.builder
    if isinstance(config.emit, AfterWatermark):
        return KeyByKey("`emit` is a trigger, and panes have no columnar form")
    if isinstance(windowing, KeyByKey):
        return windowing
    if not isinstance(folding, FoldingBuilder):
        return KeyByKey(f"{_name_of(folding)} is called for each window and value")
    if folding.emit != config.emit:
        return KeyByKey(f"the window emits at {folding.emit!r}, the step at {config.emit!r}")
    aggregators = aggregators_of(folding.aggregator)
    ignores_order = config.emit == "close" and not windowing.is_order_dependent
    ignores_order &= all(map(is_order_free, aggregators.values()))
    waits = config.ordered and not ignores_order
    if waits and windowing.closes_by_time and not windowing.is_late_at_once:
        return KeyByKey("`ordered=True` with `grace`")
    if config.ordered and windowing.has_gaps:
        return KeyByKey("`ordered=True` with windows that leave gaps")
    return WindowPlan(
        shard_clock_of(config.clock),
        windowing,
        tuple(aggregators.values()),
        tuple(ResultColumn(name, _empty_value(one)) for name, one in aggregators.items()),
        isinstance(folding.aggregator, NamedAggregates),
        waits,
        config.timestamp,
        config.emit,
        config.sides,
        isinstance(folding.aggregator, Partials),
        config.reach_us,
    )


_FORMS: Mapping[type[Windower[Any]], Callable[[Any], Windowing]] = {
    TumblingWindower: AlignedWindows,
    SlidingWindower: AlignedWindows,
    CalendarWindower: CalendarWindows,
    SessionWindower: SessionWindows,
    CountWindower: CountWindows,
}


def windowing_of(windower: Windower[Any]) -> Windowing | KeyByKey:
    """Return the columnar form of a windower, or the reason why it has none."""
    form = _FORMS.get(type(windower))  # A subclass has none, as its windows may differ.
    if form is None:
        return KeyByKey(f"{type(windower).__name__} has no columnar form")
    most = _GREATEST_OVERLAP
    if isinstance(windower, CountWindower) and windower.count > most * windower.step_count:
        return KeyByKey(f"each value is in more than {most} count windows")
    return form(windower)


def fields_of(plan: WindowPlan) -> frozenset[str] | None:
    """Return the fields of records that a step reads; ``None`` if it may read any field."""
    fields = plan.clock.fields
    for aggregator in plan.aggregators:
        paths = aggregator.paths_read
        if fields is None or paths is None or not reads_a_field(aggregator):
            return None
        fields = fields.union(*(field_path(path).record_fields for path in paths))
    return fields


def _empty_value(aggregator: Aggregator[Any, Any, Any]) -> Any:
    """Return the result that nulls in a column of results represent."""
    return aggregator.empty_result() if has_kernel(aggregator) else None


def _name_of(builder: object) -> str:
    if isinstance(builder, JoinBuilder):
        return (
            f"a join with insert_mode={builder.insert_mode!r} and emit_mode={builder.emit_mode!r}"
        )
    return builder.__name__ if isinstance(builder, (type, FunctionType)) else type(builder).__name__
