"""One aggregate of many windows, in whichever form fits what has come so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, Mask
from flow_windowing.aggregates.aggregator import Aggregator, Arrival
from flow_windowing.columnar.aggregates.figures import (
    Figures,
    Groups,
    NotInColumns,
    ObjectFigures,
    Packed,
    Turn,
)
from flow_windowing.columnar.aggregates.forms import (
    KINDS,
    form_for,
    from_states,
    has_columns,
    tells_equals_apart,
)
from flow_windowing.columnar.aggregates.number_figures import NumberFigures

if TYPE_CHECKING:
    from flow_windowing.columnar.windows.panes import Panes


class Aggregated:
    """The states of an aggregate, by row: in columns while they fit there, else as objects.

    Until the first value comes, no form is chosen: all that is known is how many rows there are.

    Attributes:
        in_any_order: whether it comes to the same in whatever order values and windows are joined.
    """

    def __init__(
        self, aggregator: Aggregator[Any, Any, Any], figures: Figures | None = None, fresh: int = 0
    ) -> None:
        self._aggregator = aggregator
        self.in_any_order = has_columns(aggregator)
        self._figures = figures
        self._fresh = fresh

    @classmethod
    def unpacked(cls, aggregator: Aggregator[Any, Any, Any], parts: Sequence[Packed]) -> Aggregated:
        """What several pieces of plain data hold, one after the other."""
        if not parts:
            return cls(aggregator)
        if len({part[0] for part in parts}) == 1:
            return cls(aggregator, _unpacked(aggregator, parts))
        pieces = [_unpacked(aggregator, [part]).states() for part in parts]
        states = [state for piece in pieces for state in piece]
        return cls(aggregator, ObjectFigures(aggregator, states))

    def __len__(self) -> int:
        return self._fresh if self._figures is None else len(self._figures)

    def take(self, rows: Ints | Mask) -> Aggregated:
        """Those of some rows, in the order given."""
        if self._figures is None:
            return Aggregated(self._aggregator, None, len(np.arange(self._fresh)[rows]))
        return Aggregated(self._aggregator, self._figures.take(rows))

    def extended(self, count: int) -> Aggregated:
        """These, followed by so many windows that have had no value."""
        if self._figures is None:
            return Aggregated(self._aggregator, None, self._fresh + count)
        return Aggregated(self._aggregator, self._figures.extended(count))

    def followed_by(self, other: Aggregated) -> Aggregated:
        """These, and others after them."""
        if not len(other):
            return self
        if not len(self):
            return other
        parts = [one.packed(0, len(one)) for one in (self, other)]
        return Aggregated.unpacked(self._aggregator, parts)

    def add(self, rows: Ints, groups: Groups) -> None:
        """Add a group of values to each of some rows, no row twice."""
        self._figures = self._in_form(self._form_for(groups))
        try:
            self._figures.add(rows, groups)
        except NotInColumns:
            self._figures = self._in_form(None)
            self._figures.add(rows, groups)

    def add_panes(self, rows: Ints, groups: Groups, panes: Panes) -> bool:
        """Add the values of panes to the windows in some rows, or say that columns cannot do so."""
        figures = self._figures = self._in_form(self._form_for(groups))
        if not isinstance(figures, NumberFigures):
            return False
        try:
            figures.add_panes(rows, groups, panes)
        except NotInColumns:
            return False
        return True

    def add_each(self, rows: Ints, groups: Groups) -> pa.Array | list[Any]:
        """`add`, and the figure after each value, in order of group and value."""
        self._figures = self._in_form(self._form_for(groups))
        try:
            return self._figures.add_each(rows, groups)
        except NotInColumns:
            self._figures = self._in_form(None)
            return self._figures.add_each(rows, groups)

    def merge(self, targets: Ints, originals: Ints) -> None:
        """Let each of some rows take in what another has, no row twice among all of them."""
        if self._figures is None:
            return
        try:
            self._figures.merge(targets, originals)
        except NotInColumns:
            self._figures = self._in_form(None)
            self._figures.merge(targets, originals)

    def replay(self, turns: Iterable[Turn], values: list[Any], arrivals: list[Arrival]) -> None:
        """Add values and merge windows in turn; see `ObjectFigures.replay`."""
        figures = self._figures = self._in_form(None)
        if not isinstance(figures, ObjectFigures):
            raise TypeError(f"figures as objects are no {type(figures).__name__}")
        figures.replay(turns, values, arrivals)

    def replay_each(
        self, turns: Sequence[Turn], values: list[Any], arrivals: list[Arrival]
    ) -> list[Any]:
        """`replay`, and a figure for each turn; see `ObjectFigures.replay_each`."""
        figures = self._known()
        rows = sorted({row for turn in turns for row in turn[:2] if row is not None})
        number = dict(zip(rows, range(len(rows)), strict=True))
        part = ObjectFigures(self._aggregator, figures.take(np.array(rows, np.int64)).states())
        among = [
            Turn(number[target], None if original is None else number[original], value)
            for target, original, value in turns
        ]
        made = part.replay_each(among, values, arrivals)
        self._figures = _with(figures, rows, part, self._aggregator)
        return made

    def results(self, rows: Ints) -> pa.Array | list[Any]:
        """The figure in each of some rows."""
        return self._known().results(rows)

    def states(self) -> list[Any]:
        """The aggregator's own state for each row."""
        return self._known().states()

    def packed(self, begin: int, end: int) -> Packed:
        """The rows from `begin` to `end` as plain data."""
        return self._known().packed(begin, end)

    def _form_for(self, groups: Groups) -> type[NumberFigures] | None:
        """The form in which values can be added; ``None`` for as objects."""
        if not groups.in_arrival_order and tells_equals_apart(self._aggregator):
            return None  # Columns do not keep when a number came.
        return form_for(self._aggregator, groups.values)

    def _known(self) -> Figures:
        """The figures, as objects where no form has been chosen."""
        figures = self._figures
        return self._in_form(None) if figures is None else figures

    def _in_form(self, form: type[NumberFigures] | None) -> Figures:
        """The figures in a form, or as objects, when they do not fit there or there is none."""
        figures = self._figures
        if figures is None:
            return (form or ObjectFigures).empty(self._aggregator, self._fresh)
        if isinstance(figures, form or ObjectFigures):
            return figures
        states = figures.states()
        fitting = None if form is None else from_states(form, self._aggregator, states)
        return ObjectFigures(self._aggregator, states) if fitting is None else fitting


def _with(
    figures: Figures, rows: list[int], part: ObjectFigures, aggregator: Aggregator[Any, Any, Any]
) -> Figures:
    """Figures of which some rows are others."""
    if isinstance(figures, NumberFigures):
        fitting = from_states(type(figures), aggregator, part.states())
        if fitting is not None:
            figures.put(rows, fitting)
            return figures
    states = figures.states()
    for row, state in zip(rows, part.states(), strict=True):
        states[row] = state
    return ObjectFigures(aggregator, states)


def _unpacked(aggregator: Aggregator[Any, Any, Any], parts: Sequence[Packed]) -> Figures:
    kind = parts[0][0]
    if kind == ObjectFigures.kind:
        return ObjectFigures.unpacked(aggregator, parts)
    return KINDS[kind].unpacked(aggregator, parts)
