"""Which aggregates have a form in columns of numbers, and which."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flow.fields import field_path
from flow_windowing.aggregates.aggregator import Aggregator, FieldAggregator
from flow_windowing.aggregates.chosen import (
    Earliest,
    Edge,
    First,
    Last,
    Latest,
    Max,
    MaxK,
    MaxKUnique,
    Min,
    MinK,
    MinKUnique,
    TopK,
)
from flow_windowing.aggregates.numbers import Count, CountDistinct, Mean, Quantile, Sum
from flow_windowing.columnar.aggregates.chosen_figures import (
    RealEdges,
    RealExtremes,
    WholeEdges,
    WholeExtremes,
)
from flow_windowing.columnar.aggregates.number_figures import NumberFigures
from flow_windowing.columnar.aggregates.sum_figures import Counts, RealSums, WholeSums


class _Forms(NamedTuple):
    """The forms that an aggregate of numbers has."""

    whole: type[NumberFigures]
    real: type[NumberFigures]


_FORMS: dict[type[Aggregator[Any, Any, Any]], _Forms] = {
    Sum: _Forms(WholeSums, RealSums),
    Mean: _Forms(WholeSums, RealSums),
    Min: _Forms(WholeExtremes, RealExtremes),
    Max: _Forms(WholeExtremes, RealExtremes),
    First: _Forms(WholeEdges, RealEdges),
    Last: _Forms(WholeEdges, RealEdges),
    Earliest: _Forms(WholeEdges, RealEdges),
    Latest: _Forms(WholeEdges, RealEdges),
}
KINDS: dict[str, type[NumberFigures]] = {
    one.kind: one
    for one in (Counts, WholeSums, RealSums, WholeExtremes, RealExtremes, WholeEdges, RealEdges)
}


def has_columns(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Whether an aggregate of records can be worked out in columns of numbers."""
    kind = type(aggregator)
    field = getattr(aggregator, "field", None)
    return (kind is Count and field is None) or (
        (kind is Count or kind in _FORMS) and isinstance(field, str)
    )


def reads_a_field(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Whether all that an aggregate asks of a value is what it has in a field, or nothing."""
    if has_columns(aggregator):
        return True
    return (
        isinstance(aggregator, FieldAggregator)
        and isinstance(aggregator.field, str)
        and type(aggregator).add_at is FieldAggregator.add_at
    )


def comes_out_the_same(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Whether a built-in aggregate of a field is the same in whatever order values enter."""
    return has_columns(aggregator) or (
        type(aggregator) in _IN_ANY_ORDER and reads_a_field(aggregator)
    )


_IN_ANY_ORDER = (CountDistinct, Quantile, TopK, MaxK, MinK, MaxKUnique, MinKUnique)
"""Aggregates that go by value and arrival, never by the order in which values enter windows."""


def tells_equals_apart(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Whether it matters which of equal numbers, such as 0.0 and -0.0, or 1 and 1.0, came first."""
    return type(aggregator) in (Min, Max)


def goes_by_arrival(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Whether it needs the number of each value's arrival."""
    return isinstance(aggregator, Edge)


def form_for(
    aggregator: Aggregator[Any, Any, Any], values: pa.RecordBatch | list[Any]
) -> type[NumberFigures] | None:
    """The form in which an aggregate of these values can be worked out; ``None`` for none."""
    if type(aggregator) is Count:
        whole = aggregator.field is None
        return Counts if whole or isinstance(values, pa.RecordBatch) else None
    forms = _FORMS.get(type(aggregator))
    field = getattr(aggregator, "field", None)
    if forms is None or not isinstance(field, str) or not isinstance(values, pa.RecordBatch):
        return None
    column = field_path(field).column_in(values)
    if column is None:
        return None
    if pa.types.is_integer(column.type):
        return forms.whole
    return forms.real if pa.types.is_floating(column.type) else None


def from_states(
    form: type[NumberFigures], aggregator: Aggregator[Any, Any, Any], states: list[Any]
) -> NumberFigures | None:
    """States in a form of columns; ``None`` when one of them does not fit there."""
    rows = [form.row_of(aggregator, state) for state in states]
    if any(row is None for row in rows):
        return None
    columns = zip(*rows, strict=True) if rows else ([] for _ in form.types)
    return form(
        aggregator,
        [np.array(column, kind) for column, kind in zip(columns, form.types, strict=True)],
    )
