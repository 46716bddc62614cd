"""The accumulators of one aggregate in all open windows: numbers in columns, or objects.

The form that an aggregate declares has kernels, which are accumulators in columns for ints, floats
and other values; the first values choose one of them, or objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, Mask, ranges
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
from flow_windowing.columnar.aggregates.accumulators import (
    Accumulators,
    EncodedAccumulators,
    GroupRuns,
    Groups,
    NumberAccumulators,
    RowOperation,
    UnfitForColumns,
)
from flow_windowing.columnar.aggregates.extremes import (
    RealEdges,
    RealExtremes,
    WholeEdges,
    WholeExtremes,
)
from flow_windowing.columnar.aggregates.object_accumulators import ObjectAccumulators
from flow_windowing.columnar.aggregates.sums import (
    Counts,
    RealMeans,
    RealSums,
    WholeMeans,
    WholeTotals,
)
from flow_windowing.rules.window_logic import Arrival

R = TypeVar("R")


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
    if kind not in _KERNELS or aggregator.paths_read is None:
        return False
    return isinstance(field, str) or (field is None and kind is CountForm)


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
    kernels = _KERNELS[type(form_of(aggregator))]
    if kernels.whole.needs_order_of_arrival and not groups.is_in_arrival_order:
        return None
    if not aggregator.paths_read:
        return kernels.whole
    column = groups.column(aggregator)
    if column is None:
        return None
    if pa.types.is_integer(column.type):
        return kernels.whole
    return kernels.real if pa.types.is_floating(column.type) else kernels.other


class AccumulatorColumn:
    """Accumulators by row: in columns while values fit there, else as objects.

    The form is chosen by the first values.

    Attributes:
        is_order_free: True if the result does not depend on the order in which values are added
            and windows are merged.
    """

    def __init__(
        self,
        aggregator: Aggregator[Any, Any, Any],
        accumulators: Accumulators | None = None,
    ) -> None:
        self._aggregator = aggregator
        self.is_order_free = has_kernel(aggregator)
        if accumulators is None:
            accumulators = ObjectAccumulators.empty(aggregator, 0)
        self._accumulators = accumulators

    @classmethod
    def decode(
        cls, aggregator: Aggregator[Any, Any, Any], parts: Sequence[EncodedAccumulators]
    ) -> AccumulatorColumn:
        """Return the accumulators of several pieces of plain data, one after the other."""
        if not parts:
            return cls(aggregator)
        if len({part[0] for part in parts}) == 1:
            return cls(aggregator, _decode(aggregator, parts))
        pieces = [_decode(aggregator, [part]).states() for part in parts]
        states = [state for piece in pieces for state in piece]
        return cls(aggregator, ObjectAccumulators(aggregator, states))

    def __len__(self) -> int:
        return len(self._accumulators)

    def take(self, rows: Ints | Mask) -> AccumulatorColumn:
        """Return the accumulators of the given rows, in the given order."""
        return AccumulatorColumn(self._aggregator, self._accumulators.take(rows))

    def with_new_rows(self, count: int) -> AccumulatorColumn:
        """Return these accumulators followed by those of `count` windows without values."""
        return AccumulatorColumn(self._aggregator, self._accumulators.with_new_rows(count))

    def concat(self, other: AccumulatorColumn) -> AccumulatorColumn:
        """Return these accumulators followed by others."""
        if not len(other):
            return self
        if not len(self):
            return other
        parts = [column.encode(0, len(column)) for column in (self, other)]
        return AccumulatorColumn.decode(self._aggregator, parts)

    def add(self, rows: Ints, groups: Groups) -> None:
        """Add one group of values to each of the given rows, which are distinct."""
        self._accumulators = self._in_form(kernel_for(self._aggregator, groups))
        self._call(lambda accumulators: accumulators.add(rows, groups))

    def add_runs(self, rows: Ints, groups: Groups, runs: GroupRuns) -> bool:
        """Add a run of groups to each of the given rows, unless columns cannot hold the result.

        Returns:
            True if the values were added.
        """
        accumulators = self._accumulators = self._in_form(kernel_for(self._aggregator, groups))
        if not isinstance(accumulators, NumberAccumulators):
            return False
        try:
            accumulators.add_runs(rows, groups, runs)
        except UnfitForColumns:
            return False
        return True

    def add_each(self, rows: Ints, groups: Groups) -> pa.Array | list[Any]:
        """Add groups as `add` does, and return the result after each value, group after group."""
        self._accumulators = self._in_form(kernel_for(self._aggregator, groups))
        return self._call(lambda accumulators: accumulators.add_each(rows, groups))

    def merge(self, targets: Ints, originals: Ints) -> None:
        """Merge rows into other rows; no row occurs twice in both arrays together."""
        self._call(lambda accumulators: accumulators.merge(targets, originals))

    def add_runs_of(self, rows: Ints, others: AccumulatorColumn, starts: Ints) -> None:
        """Merge a run of other accumulators into each of the given rows, which are distinct.

        Args:
            rows: the rows.
            others: the accumulators, run after run, which are changed.
            starts: the index of the first accumulator of each run.
        """
        counts = np.diff(starts, append=len(others))
        within, reach = ranges(np.zeros_like(counts), counts), 1
        left = np.repeat(counts, counts) - within
        while reach < int(counts.max(initial=0)):
            targets = np.flatnonzero((within % (2 * reach) == 0) & (left > reach))
            others.merge(targets, targets + reach)
            reach *= 2
        form = type(others._accumulators)
        if issubclass(form, NumberAccumulators):
            self._accumulators = self._in_form(form)
        whole = self.concat(others.take(starts))
        whole.merge(rows, len(self) + np.arange(len(rows)))
        self._accumulators = whole.take(np.arange(len(self)))._accumulators

    def _call(self, change: Callable[[Accumulators], R]) -> R:
        """Change the accumulators, as objects if columns cannot hold the result."""
        try:
            return change(self._accumulators)
        except UnfitForColumns:
            self._accumulators = self._in_form(None)
            return change(self._accumulators)

    def apply(
        self, operations: Iterable[RowOperation], values: list[Any], arrivals: list[Arrival]
    ) -> None:
        """Add values and merge windows in order; see `ObjectAccumulators.apply`."""
        accumulators = self._accumulators = self._in_form(None)
        if not isinstance(accumulators, ObjectAccumulators):
            raise TypeError(f"expected ObjectAccumulators, got {type(accumulators).__name__}")
        accumulators.apply(operations, values, arrivals)

    def apply_each(
        self, operations: Sequence[RowOperation], values: list[Any], arrivals: list[Arrival]
    ) -> list[Any]:
        """Apply operations and return a result for each; see `ObjectAccumulators.apply_each`.

        Only the rows that occur in operations become objects; the others keep their form.
        """
        accumulators = self._accumulators
        rows = sorted({row for operation in operations for row in operation[:2] if row is not None})
        index_of_row = dict(zip(rows, range(len(rows)), strict=True))
        states = accumulators.take(np.array(rows, np.int64)).states()
        part = ObjectAccumulators(self._aggregator, states)
        of_part = [
            RowOperation(
                index_of_row[target], None if original is None else index_of_row[original], value
            )
            for target, original, value in operations
        ]
        results = part.apply_each(of_part, values, arrivals)
        self._accumulators = _replace_rows(accumulators, rows, part, self._aggregator)
        return results

    def results(self, rows: Ints) -> pa.Array | list[Any]:
        """Return the result of each of the given rows."""
        return self._accumulators.results(rows)

    def states(self) -> list[Any]:
        """Return the aggregator's own state for each row."""
        return self._accumulators.states()

    def map_lists(self, rows: Ints, change: Callable[[list[Any]], list[Any]]) -> Ints:
        """Change the lists of the given rows; see `ObjectAccumulators.map_lists`."""
        if not isinstance(self._accumulators, ObjectAccumulators):
            return np.empty(0, np.int64)
        return self._accumulators.map_lists(rows, change)

    def encode(self, begin: int, end: int) -> EncodedAccumulators:
        """Return the rows from `begin` to `end`, exclusive, as plain data."""
        return self._accumulators.encode(begin, end)

    def _in_form(self, form: type[NumberAccumulators] | None) -> Accumulators:
        """Return the accumulators in a form, or as objects if they do not fit or it is ``None``."""
        accumulators = self._accumulators
        if isinstance(accumulators, form or ObjectAccumulators):
            return accumulators
        if isinstance(accumulators, ObjectAccumulators) and form and accumulators.has_no_values():
            return form.empty(self._aggregator, len(accumulators))
        states = accumulators.states()
        fitting = None if form is None else form.from_states(self._aggregator, states)
        return ObjectAccumulators(self._aggregator, states) if fitting is None else fitting


def _replace_rows(
    accumulators: Accumulators,
    rows: list[int],
    part: ObjectAccumulators,
    aggregator: Aggregator[Any, Any, Any],
) -> Accumulators:
    """Return accumulators with the given rows replaced, in columns while the new ones fit there."""
    if isinstance(accumulators, NumberAccumulators):
        fitting = type(accumulators).from_states(aggregator, part.states())
        if fitting is not None:
            accumulators.replace_rows(rows, fitting)
            return accumulators
    states = accumulators.states()
    for row, state in zip(rows, part.states(), strict=True):
        states[row] = state
    return ObjectAccumulators(aggregator, states)


def _decode(
    aggregator: Aggregator[Any, Any, Any], parts: Sequence[EncodedAccumulators]
) -> Accumulators:
    kind = parts[0][0]
    if kind == ObjectAccumulators.kind:
        return ObjectAccumulators.decode(aggregator, parts)
    return FORM_OF_KIND[kind].decode(aggregator, parts)
