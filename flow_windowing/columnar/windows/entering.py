"""Values on their way into windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, Mask
from flow.columns.chunks import pick, rows_of
from flow_windowing.aggregates.aggregator import Arrival
from flow_windowing.columnar.aggregates.figures import Groups
from flow_windowing.columnar.state.open_windows import OpenWindows, Rows, window_order
from flow_windowing.columnar.values.timestamps import Values
from flow_windowing.columnar.windows.updates import Update
from flow_windowing.rules.settings import Emit


class Entering(NamedTuple):
    """Values on their way into windows, key after key, in order of entering.

    Attributes:
        rows: which of the values at hand each is.
        places: the place of its key.
        times_us: its timestamp.
        numbers: its number in order of arrival.
        watermark_us: the watermark when it enters.
    """

    rows: Ints
    places: Ints
    times_us: Ints
    numbers: Ints
    watermark_us: Ints

    def take(self, chosen: Ints | Mask) -> Entering:
        """Some of them."""
        return Entering(*(column[chosen] for column in self))


class Newcomers(NamedTuple):
    """Values on their way into windows, with what there is to know of them.

    Attributes:
        entering: when each came.
        values: all values at hand.
        entered: the number of each one's entering.
        keeps_latest: whether the greatest timestamp in each window is asked for.
        in_arrival_order: whether they enter in the order in which they came.
        emit: when windows emit.
        updates: takes what windows emit as values enter: what each value makes of its windows, and
            what is taken back.
    """

    entering: Entering
    values: Values
    entered: Ints
    keeps_latest: bool
    in_arrival_order: bool
    emit: Emit
    updates: list[Update]

    def groups(self, at: Ints, starts: Ints) -> Groups:
        """Values, group after group, to be added to aggregates."""
        rows = self.entering.rows[at]
        return Groups(
            self.values,
            rows,
            starts,
            reader(self.values),
            self._arrivals,
            self.in_arrival_order,
        )

    def objects(self, at: Ints) -> tuple[list[Any], list[Arrival]]:
        """Some of the values as Python objects, and when they came."""
        entering = self.entering
        columns = (entering.times_us[at], entering.numbers[at], self.entered[at])
        arrivals = map(Arrival, *(column.tolist() for column in columns))
        return reader(self.values)(entering.rows[at]), list(arrivals)

    def note(
        self, windows: OpenWindows, rows: Ints, gathered: Gathered, turns: Ints | None = None
    ) -> None:
        """Note that windows have changed, and the greatest timestamp in each, where one asks.

        Args:
            windows: the open windows.
            rows: the rows of those that get values.
            gathered: the values by window.
            turns: the value at which each changed first; by default the first that it gets.
        """
        if windows.changed is not None:
            # Where several lots of values enter in an epoch they do so in order of time; then what
            # an earlier lot changed, and has not closed, each later one changes first as well.
            turns = gathered.at[gathered.starts] if turns is None else turns
            windows.changed[rows] = np.minimum(windows.changed[rows], turns)
        if self.keeps_latest and len(rows):
            times_us = self.entering.times_us[gathered.at]
            latest_us = np.maximum.reduceat(times_us, gathered.starts)
            windows.latest_us[rows] = np.maximum(windows.latest_us[rows], latest_us)

    def _arrivals(self) -> tuple[Ints, Ints, Ints]:
        """When the values came, by their rows among the values at hand."""
        entering = self.entering
        columns = []
        for column in (entering.times_us, entering.numbers, self.entered):
            by_row = np.zeros(len(self.values), np.int64)
            by_row[entering.rows] = column
            columns.append(by_row)
        return columns[0], columns[1], columns[2]


class Missing(NamedTuple):
    """What does not enter.

    Attributes:
        fallen: which values are in no window.
        late: which values miss windows that have closed.
        ids: the first of these windows.
        counts: how many from there on.
    """

    fallen: Ints
    late: Ints
    ids: Ints
    counts: Ints

    @classmethod
    def none(cls) -> Missing:
        """Everything enters."""
        nothing = np.empty(0, np.int64)
        return cls(nothing, nothing, nothing, nothing)


class Gathered(NamedTuple):
    """Values by the window that they enter.

    Attributes:
        windows: the windows that get values.
        at: the values, window after window, in order of entering.
        starts: where those of each window start.
    """

    windows: Rows
    at: Ints
    starts: Ints

    @property
    def counts(self) -> Ints:
        """How many values each window gets."""
        return np.diff(self.starts, append=len(self.at))


def gather(entering: Entering, at: Ints, ids: Ints) -> Gathered:
    """Bring values together by window.

    Args:
        entering: the values.
        at: which of them enter, in order of place; a value may enter several windows.
        ids: the window that each enters.
    """
    places = entering.places[at]
    order = window_order(places, ids)
    if order is not None:
        at, ids, places = at[order], ids[order], places[order]
    starts = run_starts_of(places, ids)
    return Gathered(Rows(places[starts], ids[starts]), at, starts)


def reader(values: Values) -> Callable[[Ints], list[Any]]:
    """What gives values, by row, as Python objects."""
    if isinstance(values, pa.RecordBatch):
        return lambda rows: rows_of(values.take(pa.array(rows)))
    return lambda rows: pick(values, rows)


def value_reader(values: Values) -> Callable[[int], Any]:
    """What gives one value, by row, as a Python object."""
    if isinstance(values, pa.RecordBatch):
        return lambda row: rows_of(values.slice(row, 1))[0]
    return values.__getitem__


def run_starts_of(places: Ints, ids: Ints) -> Ints:
    """Where each run of the same place and id starts."""
    change = (places[1:] != places[:-1]) | (ids[1:] != ids[:-1])
    return np.concatenate([np.zeros(min(len(ids), 1), np.int64), np.flatnonzero(change) + 1])
