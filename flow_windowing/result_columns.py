"""Columns of the streams of a windowing step, where they are known before a run.

They are the columns of the rows that `flow.connectors.sink.to_record` makes of results, metadata
and late values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from flow.columns.known_columns import (
    KnownColumns,
    StreamColumns,
    UnknownColumns,
    object_type,
)
from flow.instants import EPOCH
from flow_windowing.aggregates.aggregator import Aggregator, FieldAggregator
from flow_windowing.aggregates.folding import FoldingBuilder, Partials, aggregators_of
from flow_windowing.by_key.window_driver import WindowingConfig
from flow_windowing.rules.metadata import CLOSED, DOWN, Pane, PaneTiming, WindowMetadata
from flow_windowing.rules.triggers import AfterWatermark

_TIME = pa.timestamp("us", "UTC")
_IDS = pa.list_(pa.int64())


def columns_of_port(
    config: WindowingConfig, port: int, ups: Sequence[StreamColumns]
) -> StreamColumns:
    """Return the columns of a stream of a windowing step, or the reason why they are not known.

    Args:
        config: the step.
        port: the number of the stream.
        ups: the columns of the streams that the step reads.
    """
    if port == CLOSED:
        return _with_key(_window_columns(config))
    return _results(config, ups) if port == DOWN else _late_values(config, ups)


def _results(config: WindowingConfig, ups: Sequence[StreamColumns]) -> StreamColumns:
    folding = config.builder
    if not isinstance(folding, FoldingBuilder) or config.sides > 1:
        return UnknownColumns("the results of custom window logic and of joins have no known types")
    if isinstance(folding.aggregator, Partials):
        return UnknownColumns("accumulators have no known types")
    has_panes = isinstance(config.emit, AfterWatermark)
    columns = _window_columns(config, Pane(0, PaneTiming.ON_TIME) if has_panes else None)
    columns.append(pa.field("is_retraction", pa.bool_()))
    for alias, aggregator in aggregators_of(folding.aggregator).items():
        name = alias or "value"
        kind = aggregator.result_type(_field_type(aggregator, ups))
        if kind is None:
            return UnknownColumns(f"the type of the result {name!r} of {aggregator!r} is not known")
        columns.append(pa.field(name, kind))
    return _with_key(columns)


def _window_columns(config: WindowingConfig, pane: Pane | None = None) -> list[Any]:
    """Return the columns of `WindowMetadata.as_record`, which are those of an example."""
    time = None if config.timestamp is None else EPOCH
    example = WindowMetadata(0, EPOCH, EPOCH, frozenset({0}), time, pane)
    return list(pa.RecordBatch.from_pylist([example.as_record()]).schema)


def _late_values(config: WindowingConfig, ups: Sequence[StreamColumns]) -> StreamColumns:
    """Return the columns of `LateValue.as_record`; the side only for a join."""
    kinds = [_value_type(up) for up in ups]
    if any(kind is None or kind != kinds[0] for kind in kinds):
        return UnknownColumns("the late values are not records whose columns are known")
    columns = [
        pa.field("value", kinds[0]),
        pa.field("timestamp", _TIME),
        pa.field("watermark", _TIME),
        pa.field("late_by", pa.duration("us")),
        pa.field("window", pa.struct(_window_columns(config))),
        pa.field("reason", pa.string()),
        pa.field("window_ids", _IDS),
    ]
    return _with_key(columns if config.sides == 1 else [*columns, pa.field("side", pa.int64())])


def _value_type(up: StreamColumns) -> Any:
    """Return the type of a record in a column; ``None`` if it is not known."""
    if not isinstance(up, KnownColumns) or not up.are_records:
        return None
    return object_type(pa.struct(list(up.values)))


def _with_key(columns: list[Any]) -> KnownColumns:
    return KnownColumns(pa.schema(columns), has_key=True, are_records=False)


def _field_type(aggregator: Aggregator[Any, Any, Any], ups: Sequence[StreamColumns]) -> Any:
    """Return the type of the objects in the field that an aggregator reads, if it is known."""
    (up,) = ups
    field = aggregator.field_read
    kind = up.type_of(field) if isinstance(field, str) and isinstance(up, KnownColumns) else None
    kind = None if kind is None else object_type(kind)
    replaces = getattr(aggregator, "missing", None) not in (None, "skip", "fail")
    is_other = replaces and isinstance(aggregator, FieldAggregator) and not aggregator.filler(kind)
    return None if is_other else kind
