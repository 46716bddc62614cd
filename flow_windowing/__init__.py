"""Windowing: clocks, windowers, and operators. Use as ``import flow_windowing as win``."""

# ruff: noqa: E402  (a file of the user that hides the package `flow` is named before its imports)

from importlib.util import find_spec as _find_spec

_FOUND = _find_spec("flow")
if _FOUND is not None and _FOUND.submodule_search_locations is None:
    raise ImportError(
        f"{_FOUND.origin} hides the package 'flow', which is installed: rename that file, or run "
        "the program in another folder",
        name="flow",
        path=_FOUND.origin,
    )

from flow.checks import no_attribute
from flow.instants import NEVER
from flow_windowing.aggregates.aggregator import Aggregator, aggregate
from flow_windowing.aggregates.collections import Collect, CollectUnique
from flow_windowing.aggregates.distinct_sketch import ApproxCountDistinct
from flow_windowing.aggregates.distributions import ApproxQuantile, Quantile, StdDev
from flow_windowing.aggregates.extreme_values import Earliest, First, Last, Latest, Max, Min
from flow_windowing.aggregates.numbers import Count, CountDistinct, Mean, Sum
from flow_windowing.aggregates.rankings import ApproxTopK, MaxK, MaxKUnique, MinK, MinKUnique, TopK
from flow_windowing.all_keys import aggregate_window_all, top_n
from flow_windowing.clocks.clock import (
    Clock,
    ClockLogic,
    DatetimeClockLogic,
    DroppedValue,
    Reading,
    SystemClock,
)
from flow_windowing.clocks.event_clock import EventClock
from flow_windowing.deduplication.operator import DedupOut, dedup
from flow_windowing.joins import join_asof, join_interval, join_window
from flow_windowing.operators import (
    WindowOut,
    aggregate_window,
    collect_window,
    count_window,
    fold_window,
    max_window,
    mean_window,
    min_window,
    reduce_window,
    sum_window,
    window,
)
from flow_windowing.rules.metadata import (
    JoinedPair,
    LateReason,
    LateValue,
    Pane,
    PaneTiming,
    Retracted,
    WindowMetadata,
)
from flow_windowing.rules.triggers import AfterWatermark, Early, Late
from flow_windowing.rules.watermark import NO_WATERMARK
from flow_windowing.rules.window_logic import Arrival, EpochWindowLogic, WindowLogic
from flow_windowing.timed_state import TimedStateOut, stateful_flat_map, stateful_map
from flow_windowing.windowers.aligned import SlidingWindower, TumblingWindower
from flow_windowing.windowers.calendar import CalendarWindower
from flow_windowing.windowers.counts import CountWindower
from flow_windowing.windowers.event_sliding import EventSlidingWindower
from flow_windowing.windowers.session_windower import SessionWindower
from flow_windowing.windowers.windower import (
    AssignedWindows,
    DatetimeWindower,
    FilledWindow,
    IndexedLogic,
    Windower,
    WindowerLogic,
)

__all__ = [
    "NEVER",
    "NO_WATERMARK",
    "AfterWatermark",
    "Aggregator",
    "ApproxCountDistinct",
    "ApproxQuantile",
    "ApproxTopK",
    "Arrival",
    "AssignedWindows",
    "CalendarWindower",
    "Clock",
    "ClockLogic",
    "Collect",
    "CollectUnique",
    "Count",
    "CountDistinct",
    "CountWindower",
    "DatetimeClockLogic",
    "DatetimeWindower",
    "DedupOut",
    "DroppedValue",
    "Earliest",
    "Early",
    "EpochWindowLogic",
    "EventClock",
    "EventSlidingWindower",
    "FilledWindow",
    "First",
    "IndexedLogic",
    "JoinedPair",
    "Last",
    "Late",
    "LateReason",
    "LateValue",
    "Latest",
    "Max",
    "MaxK",
    "MaxKUnique",
    "Mean",
    "Min",
    "MinK",
    "MinKUnique",
    "Pane",
    "PaneTiming",
    "Quantile",
    "Reading",
    "Retracted",
    "SessionWindower",
    "SlidingWindower",
    "StdDev",
    "Sum",
    "SystemClock",
    "TimedStateOut",
    "TopK",
    "TumblingWindower",
    "WindowLogic",
    "WindowMetadata",
    "WindowOut",
    "Windower",
    "WindowerLogic",
    "aggregate",
    "aggregate_window",
    "aggregate_window_all",
    "collect_window",
    "count_window",
    "dedup",
    "fold_window",
    "join_asof",
    "join_interval",
    "join_window",
    "max_window",
    "mean_window",
    "min_window",
    "reduce_window",
    "stateful_flat_map",
    "stateful_map",
    "sum_window",
    "top_n",
    "window",
]

_ADVICE = {
    "use SlidingWindower(length=, offset=)": "HoppingWindower HoppingWindow SlidingWindow",
    "use TumblingWindower(length=)": "TumblingWindow",
    "use SessionWindower(gap=)": "SessionWindow",
    "use CountWindower(count), or op.fold_final for the whole input": "GlobalWindow",
    "use Mean": "Avg Average",
    "use mean_window": "avg_window",
    "use CountDistinct, or CollectUnique for the values": "Distinct",
    "use dedup(step_id, stream, clock, id, ttl=...)": "deduplicate distinct drop_duplicates",
    "use Early(count=), or Late(count=) after the watermark": "AfterCount",
    "use Early(every=), or Late(every=) after the watermark": "AfterProcessingTime",
    "use Early(every=, count=), which fires at the earlier of the two": "AfterAny",
    "leave it out: Early and Late fire again and again": "Repeatedly",
    "use emit='close', or Late(count=1) for each value in the grace": "DefaultTrigger",
    "use AfterWatermark(early=, accumulate=)": "AccumulationMode",
    "use WindowMetadata.pane, a Pane": "PaneInfo",
    "import flow.operators as op, and use op.map_window": "map_window",
    "import flow.operators as op, and use op.records(step_id, out.down)": (
        "records window_records as_records"
    ),
    "use aggregate_window_all(step_id, stream, clock, windower, total=Sum(...))": "window_all",
    "use top_n(step_id, stream, clock, windower, n, by=...)": "top_k top_n_window",
    "use join_interval": "interval_join",
    "use join_asof(step_id, left, right, clock, tolerance=...)": "asof_join",
    "import it from recovery": "RecoveryConfig",
}
"""Advice on names, and the names of other libraries for which it is given."""
_ELSEWHERE = {name: advice for advice, names in _ADVICE.items() for name in names.split()}


def __getattr__(name: str) -> object:
    raise no_attribute(__name__, name, __all__, _ELSEWHERE)


def __dir__() -> list[str]:
    return sorted(__all__)
