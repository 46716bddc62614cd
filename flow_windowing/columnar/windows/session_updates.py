"""What sessions emit before they close, and take back once they are part of another."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flow_windowing.columnar.aggregates.figures import FailedRow
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.state.spans import merged_of
from flow_windowing.columnar.state.windower_states import Bounds
from flow_windowing.columnar.windows.entering import Entering, Newcomers
from flow_windowing.columnar.windows.session_additions import (
    Entrance,
    rows_of_sessions,
    turns_by_row,
)
from flow_windowing.columnar.windows.session_turns import Played, SessionKey, SessionTurn
from flow_windowing.columnar.windows.updates import Update


def taken_back(windows: OpenWindows, entering: Entering, played: Played) -> list[Update]:
    """What sessions take back that have emitted, and are about to become part of others.

    Its turn is the watermark at which that happens. What they have emitted is what they have come
    to: where several lots of values enter in an epoch they do so in order of time, and no value is
    near a session that an earlier lot has changed, and near one before it as well.
    """
    if windows.shown is None or not played.part_of:
        return []
    rows = rows_of_sessions(windows, list(played.part_of))
    values = np.array([value for _, value in played.part_of.values()], np.int64)
    shown = np.flatnonzero(windows.shown[rows])
    shown = shown[np.argsort(values[shown], kind="stable")]
    if not len(shown):
        return []
    rows, turns = rows[shown], entering.watermark_us[values[shown]]
    spans = windows.known_spans()
    update = Update(
        turns,
        windows.places[rows],
        windows.ids[rows],
        (spans.first_us[rows], spans.last_us[rows]),
        windows.latest_us[rows],
        [figure.results(rows) for figure in windows.figures],
        spans.merged[rows],
        np.ones(len(rows), np.bool_),
    )
    return [update]


class _Step(NamedTuple):
    """Something that a session emits.

    Attributes:
        turn: the number of the turn at which it does.
        session: which session.
        bounds: its bounds then.
        back: whether it is taken back.
    """

    turn: int
    session: SessionKey
    bounds: Bounds
    back: bool


def played_out(windows: OpenWindows, newcomers: Newcomers, entrance: Entrance) -> list[Update]:
    """Let values enter, and sessions become one, in turn; says what each makes of its session.

    Args:
        windows: all sessions that there are at any time, as they are before.
        newcomers: the values.
        entrance: where they go.

    Raises:
        FailedRow: when a user's function raised.
    """
    turns = entrance.played.turns
    if not turns:
        return []
    steps = _steps(turns, *_before(windows, turns), newcomers.entering.times_us.tolist())
    figures = _replayed(windows, newcomers, entrance, turns)
    of_turn = [step.turn for step in steps]
    bounds = [step.bounds for step in steps]
    last_us = np.array([one.last_us for one in bounds], np.int64)
    update = Update(
        np.array([turns[at].value for at in of_turn], np.int64),
        np.array([step.session.place for step in steps], np.int64),
        np.array([step.session.id for step in steps], np.int64),
        (np.array([one.first_us for one in bounds], np.int64), last_us),
        last_us,
        [[figure[at] for at in of_turn] for figure in figures],
        merged_of([one.merged for one in bounds]),
        np.array([step.back for step in steps], np.bool_),
    )
    return [update]


def _before(
    windows: OpenWindows, turns: list[SessionTurn]
) -> tuple[dict[SessionKey, Bounds], set[SessionKey]]:
    """The bounds of all sessions in turns, before these, and which of them have emitted."""
    sessions = list({one for turn in turns for one in turn[:2] if one is not None})
    rows = rows_of_sessions(windows, sessions)
    spans = windows.known_spans().take(rows)
    columns = (spans.first_us.tolist(), spans.last_us.tolist(), spans.merged.tolist())
    shown = windows.known_shown()[rows].tolist()
    return (
        dict(zip(sessions, map(Bounds, *columns), strict=True)),
        {one for one, has_emitted in zip(sessions, shown, strict=True) if has_emitted},
    )


def _steps(
    turns: list[SessionTurn],
    bounds: dict[SessionKey, Bounds],
    shown: set[SessionKey],
    times_us: list[int],
) -> list[_Step]:
    """What is emitted, turn after turn; brings bounds, and what has emitted, to where they end."""
    steps = []
    for at, (target, original, value) in enumerate(turns):
        if original is None:
            bounds[target] = bounds[target].with_value(times_us[value])
            shown.add(target)
            steps.append(_Step(at, target, bounds[target], back=False))
            continue
        if original in shown:
            steps.append(_Step(at, original, bounds[original], back=True))
        bounds[target] = bounds[target].with_session(original.id, bounds[original])
    return steps


def _replayed(
    windows: OpenWindows, newcomers: Newcomers, entrance: Entrance, turns: list[SessionTurn]
) -> list[list[Any]]:
    """Each aggregate's figure at each turn."""
    at = np.flatnonzero(~entrance.plainly)
    values, arrivals = newcomers.objects(at)
    by_rows = turns_by_row(windows, turns, at)
    try:
        return [figure.replay_each(by_rows, values, arrivals) for figure in windows.figures]
    except FailedRow as error:
        row = int(newcomers.entering.rows[at[error.row]])
        raise FailedRow(row) from error.__cause__
