"""Operators: functions that add a step to a flow. Use as ``import flow.operators as op``."""

from flow.checks import no_attribute
from flow.keyed.logic import (
    COUNTED,
    DISCARD,
    KEEP,
    Counted,
    Keep,
    Progress,
    RejectedValue,
    StampedValue,
    StatefulBatchLogic,
    StatefulLogic,
)
from flow.keyed.state import StateCounts
from flow.keyed.step import Capabilities, LogicBuilder
from flow.operators.async_calls import CallId, Retry, TTLCache, call_id, enrich_cached, map_async
from flow.operators.change_streams import Change, debezium
from flow.operators.edges import input, output, try_input
from flow.operators.folds import (
    collect,
    count_final,
    fold_final,
    max_final,
    min_final,
    reduce_final,
)
from flow.operators.key_join import join
from flow.operators.keyed_tables import (
    KeyedTable,
    filter_with,
    flat_map_with,
    lookup_table,
    map_with,
    table,
)
from flow.operators.stateful_steps import (
    ExpiringOut,
    stateful,
    stateful_batch,
    stateful_flat_map,
    stateful_map,
)
from flow.operators.stateless import (
    BranchOut,
    ItemError,
    TryOut,
    branch,
    filter,
    filter_map,
    filter_map_value,
    filter_value,
    flat_map,
    flat_map_value,
    flatten,
    inspect,
    key_on,
    key_rm,
    map,
    map_batches,
    map_value,
    map_window,
    merge,
    raises,
    records,
    redistribute,
    try_map,
)
from flow.operators.typed_records import try_typed, typed

__all__ = [
    "COUNTED",
    "DISCARD",
    "KEEP",
    "BranchOut",
    "CallId",
    "Capabilities",
    "Change",
    "Counted",
    "ExpiringOut",
    "ItemError",
    "Keep",
    "KeyedTable",
    "LogicBuilder",
    "Progress",
    "RejectedValue",
    "Retry",
    "StampedValue",
    "StateCounts",
    "StatefulBatchLogic",
    "StatefulLogic",
    "TTLCache",
    "TryOut",
    "branch",
    "call_id",
    "collect",
    "count_final",
    "debezium",
    "enrich_cached",
    "filter",
    "filter_map",
    "filter_map_value",
    "filter_value",
    "filter_with",
    "flat_map",
    "flat_map_value",
    "flat_map_with",
    "flatten",
    "fold_final",
    "input",
    "inspect",
    "join",
    "key_on",
    "key_rm",
    "lookup_table",
    "map",
    "map_async",
    "map_batches",
    "map_value",
    "map_window",
    "map_with",
    "max_final",
    "merge",
    "min_final",
    "output",
    "raises",
    "records",
    "redistribute",
    "reduce_final",
    "stateful",
    "stateful_batch",
    "stateful_flat_map",
    "stateful_map",
    "table",
    "try_input",
    "try_map",
    "try_typed",
    "typed",
]

_WINDOWS = "import flow_windowing as win, and use win."
_OF_WINDOWS = (
    "aggregate_window aggregate_window_all collect_window count_window fold_window join_asof "
    "join_interval join_window max_window min_window reduce_window top_n"
)
_ADVICE = {
    f"{_WINDOWS}fold_window, or win.aggregate_window": "window",
    f"{_WINDOWS}dedup(step_id, stream, clock, id, ttl=...), whose clock may be SystemClock()": (
        "dedup deduplicate distinct drop_duplicates unique"
    ),
    "use output(step_id, stream, sink)": "sink to to_topic",
    "use input(step_id, flow, source)": "source",
    "use map": "apply update",
    "use map_async(step_id, stream, fn, capacity=100)": "async_map async_io",
    "use map_batches(step_id, stream, fn)": "map_batch flat_map_batch map_partitions predict",
    "use records(step_id, stream)": "to_records",
    "use flat_map": "flatmap",
    "use key_on(step_id, stream, key)": "key_by group_by",
    "use merge": "union concat",
    "use branch": "split",
    "use inspect": "print",
    "use reduce_final, or win.reduce_window of flow_windowing": "reduce",
    "use fold_final, or win.fold_window of flow_windowing": "fold",
    "use count_final, or win.count_window of flow_windowing": "count",
    "use table(step_id, changes, key=...), and map_with(step_id, stream, table, function)": (
        "broadcast connect ktable"
    ),
    "use lookup_table(step_id, flow, source, key, refresh=...) and map_with, or enrich_cached": (
        "enrich lookup side_input join_lookup"
    ),
}
"""Advice on operators, and the names of other frameworks for which it is given."""
_ELSEWHERE = {name: advice for advice, names in _ADVICE.items() for name in names.split()}
_ELSEWHERE |= {name: f"{_WINDOWS}{name}" for name in _OF_WINDOWS.split()}


def __getattr__(name: str) -> object:
    raise no_attribute(__name__, name, __all__, _ELSEWHERE)


def __dir__() -> list[str]:
    return sorted(__all__)
