"""The choice of the accumulators' form for an aggregate, and properties of aggregates."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from flow.fields import field_path
from flow_windowing.aggregates.aggregator import Aggregator, FieldAggregator
from flow_windowing.aggregates.approximate.distinct import ApproxCountDistinct
from flow_windowing.aggregates.approximate.quantile import ApproxQuantile
from flow_windowing.aggregates.edges import Earliest, Edge, First, Last, Latest
from flow_windowing.aggregates.extremes import Max, Min
from flow_windowing.aggregates.numbers import Count, CountDistinct, Mean, Quantile, Sum
from flow_windowing.aggregates.rankings import MaxK, MaxKUnique, MinK, MinKUnique, TopK
from flow_windowing.columnar.aggregates.edges import RealEdges, WholeEdges
from flow_windowing.columnar.aggregates.extremes import RealExtremes, WholeExtremes
from flow_windowing.columnar.aggregates.number_accumulators import NumberAccumulators
from flow_windowing.columnar.aggregates.sums import Counts, RealSums, WholeSums
from flow_windowing.columnar.values.records import Values


class _Forms(NamedTuple):
    """The forms of an aggregate for ints and for floats."""

    whole: type[NumberAccumulators]
    real: type[NumberAccumulators]


_SUMS = _Forms(WholeSums, RealSums)
_EXTREMES = _Forms(WholeExtremes, RealExtremes)
_EDGES = _Forms(WholeEdges, RealEdges)
_FORMS: dict[type[Aggregator[Any, Any, Any]], _Forms] = {
    Sum: _SUMS,
    Mean: _SUMS,
    Min: _EXTREMES,
    Max: _EXTREMES,
    First: _EDGES,
    Last: _EDGES,
    Earliest: _EDGES,
    Latest: _EDGES,
}
FORM_OF_KIND: dict[str, type[NumberAccumulators]] = {
    form.kind: form for form in (Counts, *_SUMS, *_EXTREMES, *_EDGES)
}
"""The forms by their kind in a segment."""


def has_columns(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Return True if columns of numbers can hold the aggregate of records with number fields."""
    kind = type(aggregator)
    field = aggregator.field_read
    return (kind is Count and field is None) or (
        (kind is Count or kind in _FORMS) and isinstance(field, str)
    )


def reads_a_field(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Return True if an aggregate reads one field of each value by its path, or nothing."""
    if has_columns(aggregator):
        return True
    return (
        isinstance(aggregator, FieldAggregator)
        and isinstance(aggregator.field, str)
        and type(aggregator).add_at is FieldAggregator.add_at
    )


def is_order_free(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Return True if a built-in aggregate of a field ignores the order in which values enter."""
    return has_columns(aggregator) or (
        type(aggregator) in _ORDER_FREE and reads_a_field(aggregator)
    )


_ORDER_FREE = (
    *(ApproxCountDistinct, ApproxQuantile, CountDistinct, Quantile, TopK),
    *(MaxK, MinK, MaxKUnique, MinKUnique),
)
"""Aggregates that depend on values and arrivals, never on the order of entering windows."""


def keeps_first_of_equals(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Return True if, of equal numbers such as 0.0 and -0.0, the first to arrive is the result."""
    return type(aggregator) in (Min, Max)


def needs_arrival_numbers(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Return True if an aggregate needs the arrival number of each value."""
    return isinstance(aggregator, Edge)


def form_for(
    aggregator: Aggregator[Any, Any, Any], values: Values
) -> type[NumberAccumulators] | None:
    """Return the form in columns for the aggregate of these values; ``None`` if there is none."""
    if type(aggregator) is Count:
        counts_all = aggregator.field is None
        return Counts if counts_all or isinstance(values, pa.RecordBatch) else None
    forms = _FORMS.get(type(aggregator))
    field = aggregator.field_read
    if forms is None or not isinstance(field, str) or not isinstance(values, pa.RecordBatch):
        return None
    column = field_path(field).column_in(values)
    if column is None:
        return None
    if pa.types.is_integer(column.type):
        return forms.whole
    return forms.real if pa.types.is_floating(column.type) else None
