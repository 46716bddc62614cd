"""The kernels of the forms that aggregates declare, and the choice of a kernel for values."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from flow_windowing.aggregates.aggregator import (
    Aggregator,
    CountForm,
    EdgeForm,
    ExtremeForm,
    FieldAggregator,
    Form,
    MeanForm,
    SumForm,
    TotalForm,
    form_of,
)
from flow_windowing.columnar.aggregates.accumulators import Groups, NumberAccumulators
from flow_windowing.columnar.aggregates.extremes import (
    RealEdges,
    RealExtremes,
    WholeEdges,
    WholeExtremes,
)
from flow_windowing.columnar.aggregates.sums import (
    Counts,
    RealMeans,
    RealSums,
    WholeMeans,
    WholeTotals,
)


class _Kernels(NamedTuple):
    """The accumulators in columns of a form: for ints, for floats, and for other values."""

    whole: type[NumberAccumulators]
    real: type[NumberAccumulators] | None = None
    other: type[NumberAccumulators] | None = None


_KERNELS: dict[type[Form], _Kernels] = {
    CountForm: _Kernels(Counts, Counts, Counts),
    TotalForm: _Kernels(WholeTotals),
    SumForm: _Kernels(WholeTotals, RealSums),
    MeanForm: _Kernels(WholeMeans, RealMeans),
    ExtremeForm: _Kernels(WholeExtremes, RealExtremes),
    EdgeForm: _Kernels(WholeEdges, RealEdges),
}
FORM_OF_KIND: dict[str, type[NumberAccumulators]] = {
    kernel.kind: kernel for kernels in _KERNELS.values() for kernel in kernels if kernel is not None
}
"""The kernels by their kind in a segment."""


def has_kernel(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Return True if columns of numbers can hold the aggregate of records with number fields."""
    kind, field = type(form_of(aggregator)), aggregator.field_read
    return kind in _KERNELS and (isinstance(field, str) or (field is None and kind is CountForm))


def reads_a_field(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Return True if an aggregate reads one field of each value by its path, or nothing."""
    return has_kernel(aggregator) or (
        isinstance(aggregator, FieldAggregator) and aggregator.column_read is not None
    )


def is_order_free(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Return True if an aggregate ignores the order in which values enter; False if it may not."""
    return form_of(aggregator).ignores_order and (
        reads_a_field(aggregator) or not isinstance(aggregator, FieldAggregator)
    )


def kernel_for(
    aggregator: Aggregator[Any, Any, Any], groups: Groups
) -> type[NumberAccumulators] | None:
    """Return the kernel that adds groups of values; ``None`` if only objects can."""
    if not has_kernel(aggregator):
        return None
    kernels, field = _KERNELS[type(form_of(aggregator))], aggregator.field_read
    if kernels.whole.needs_order_of_arrival and not groups.is_in_arrival_order:
        return None
    if field is None:
        return kernels.whole
    column = groups.column(field)
    if column is None:
        return None
    if pa.types.is_integer(column.type):
        return kernels.whole
    return kernels.real if pa.types.is_floating(column.type) else kernels.other
