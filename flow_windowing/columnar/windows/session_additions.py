"""Adding values to sessions, and sessions to one another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flow.columns.arrays import Ints, Mask, ranges, run_starts
from flow_windowing.columnar.aggregates.aggregated import Aggregated
from flow_windowing.columnar.aggregates.figures import FailedRow, Groups, Turn
from flow_windowing.columnar.state.open_windows import OpenWindows, Rows
from flow_windowing.columnar.state.spans import Spans
from flow_windowing.columnar.windows.entering import Gathered, Newcomers, gather
from flow_windowing.columnar.windows.session_turns import Played, SessionKey, SessionTurn


class Entrance(NamedTuple):
    """Where values go.

    Attributes:
        ids: the session that each value is part of in the end.
        enters: which of the values enter.
        plainly: which of the values go to a session that never was another one.
        sessions: the sessions that get values, in order of place and id.
        spans: their bounds.
        played: what happened to the values that do not go plainly.
    """

    ids: Ints
    enters: Mask
    plainly: Mask
    sessions: Rows
    spans: Spans
    played: Played


class Additions:
    """Adds values to sessions that are all open, and makes one of those that become one.

    An aggregate that comes to the same in any order gets all values of a session together, after
    what had been in the sessions that are part of it now. Any other gets those together that go
    plainly to one session, and is led through the turns of the rest.
    """

    def __init__(self, windows: OpenWindows, newcomers: Newcomers, entrance: Entrance) -> None:
        self._windows = windows
        self._newcomers = newcomers
        self._entrance = entrance
        part_of = entrance.played.part_of
        self._originals = list(part_of)
        self._targets = [entrance.played.end_of(one) for one in part_of]
        self._by = [value for _, value in part_of.values()]

    def add(self) -> None:
        """Do it."""
        windows, entrance = self._windows, self._entrance
        originals = rows_of_sessions(windows, self._originals)
        targets = rows_of_sessions(windows, self._targets)
        np.maximum.at(windows.latest_us, targets, windows.latest_us[originals])
        whole = self._gathered(entrance.enters)
        rows = windows.rows_of(whole.windows)
        plain, plain_rows = whole, rows
        if not entrance.plainly.all():
            plain = self._gathered(entrance.plainly)
            plain_rows = windows.rows_of(plain.windows)
        self._newcomers.note(windows, rows, whole, self._changed_at(whole, rows))
        of_whole = of_plain = self._newcomers.groups(whole.at, whole.starts)
        if plain is not whole:
            of_plain = self._newcomers.groups(plain.at, plain.starts)
        for figure in windows.figures:
            if figure.in_any_order:
                self._merge(figure, targets, originals)
                _add(figure, rows, of_whole)
            else:
                _add(figure, plain_rows, of_plain)
        self._replay([figure for figure in windows.figures if not figure.in_any_order])

    def _gathered(self, chosen: Mask) -> Gathered:
        at = np.flatnonzero(chosen)
        return gather(self._newcomers.entering, at, self._entrance.ids[at])

    def _changed_at(self, whole: Gathered, rows: Ints) -> Ints:
        """The value at which each session changed first, not counting those that it took in."""
        turns = whole.at[whole.starts]
        part_of = self._entrance.played.part_of
        first: dict[SessionKey, int] = {}
        for target, _, value in self._entrance.played.turns:
            if target not in part_of:
                first[target] = min(first.get(target, value), value)
        changed = np.searchsorted(rows, rows_of_sessions(self._windows, list(first)))
        turns[changed] = list(first.values())
        return turns

    def _merge(self, figure: Aggregated, targets: Ints, originals: Ints) -> None:
        """Merge sessions, as many at a time as can be without one coming twice."""
        order = np.argsort(targets, kind="stable")
        begins = run_starts(targets[order])
        counts = np.diff(begins, append=len(order))
        turn = ranges(np.zeros(len(counts), np.int64), counts)
        for number in range(int(counts.max(initial=0))):
            pairs = order[turn == number]
            try:
                figure.merge(targets[pairs], originals[pairs])
            except FailedRow as error:
                value = self._by[int(pairs[error.row])]
                raise FailedRow(self._row_of(value)) from error.__cause__

    def _replay(self, figures: list[Aggregated]) -> None:
        turns = self._entrance.played.turns
        if not figures or not turns:
            return
        at = np.flatnonzero(~self._entrance.plainly)
        by_rows = turns_by_row(self._windows, turns, at)
        values, arrivals = self._newcomers.objects(at)
        for figure in figures:
            try:
                figure.replay(by_rows, values, arrivals)
            except FailedRow as error:
                raise FailedRow(self._row_of(int(at[error.row]))) from error.__cause__

    def _row_of(self, value: int) -> int:
        return int(self._newcomers.entering.rows[value])


def rows_of_sessions(windows: OpenWindows, sessions: list[SessionKey]) -> Ints:
    """The rows of sessions, in whatever order these are."""
    places = np.array([one.place for one in sessions], np.int64)
    ids = np.array([one.id for one in sessions], np.int64)
    return windows.rows_of(Rows(places, ids))


def turns_by_row(windows: OpenWindows, turns: list[SessionTurn], at: Ints) -> list[Turn]:
    """Turns of sessions as turns of their rows, of values by their place in `at`."""
    targets = rows_of_sessions(windows, [turn.target for turn in turns]).tolist()
    taken_in = [turn.original or turn.target for turn in turns]
    originals = rows_of_sessions(windows, taken_in).tolist()
    number = dict(zip(at.tolist(), range(len(at)), strict=True))
    return [
        Turn(target, None if turn.original is None else original, number[turn.value])
        for turn, target, original in zip(turns, targets, originals, strict=True)
    ]


def _add(figure: Aggregated, rows: Ints, groups: Groups) -> None:
    if len(rows):
        figure.add(rows, groups)
