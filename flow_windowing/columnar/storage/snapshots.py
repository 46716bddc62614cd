"""The state of a key as `WindowDriver` keeps it, and as columns: from one to the other and back."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from flow.columns.arrays import Ints
from flow.instants import NEVER
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.aggregates.chosen import Earliest, First, Last, Latest, Max, Min
from flow_windowing.aggregates.numbers import Count, Mean, Sum
from flow_windowing.clocks.event_clock import ClockState
from flow_windowing.columnar.aggregates.figures import ObjectFigures, Packed
from flow_windowing.columnar.aggregates.forms import KINDS
from flow_windowing.columnar.state import windower_states
from flow_windowing.columnar.storage import segments
from flow_windowing.columnar.storage.segments import Kept
from flow_windowing.columnar.values.written import cut, read, written
from flow_windowing.columnar.windows.plan import WindowPlan
from flow_windowing.rules.key_state import DriverState
from flow_windowing.rules.waiting import Waiting, WaitQueue
from flow_windowing.rules.watermark import NO_WATERMARK


def kept_of_snapshots(
    plan: WindowPlan, keys: list[str], states: list[DriverState], due_us: Ints
) -> Kept:
    """The states of keys as a segment in columns."""
    texts = [key.encode() for key in keys]
    clocks: list[ClockState] = [state.clock or (NO_WATERMARK, 0) for state in states]
    kind = plan.windowing.kind
    windows = [sorted(state.windows.items()) for state in states]
    bounds = [
        one
        for state, of_key in zip(states, windows, strict=True)
        for one in windower_states.bounds_in(kind, state.windower, [one for one, _ in of_key])
    ]
    waiting = [list(_waiting_of(state)) for state in states]
    snapshots = [snapshot for of_key in windows for _, snapshot in of_key]
    latest = [
        state.latest.get(number, -NEVER)
        for state, of_key in zip(states, windows, strict=True)
        for number, _ in of_key
    ]
    waits = [one for of_key in waiting for one in of_key]
    return Kept(
        np.array([len(text) for text in texts], "<i4").tobytes(),
        b"".join(texts),
        segments.column(_column([clock[0] for clock in clocks]), NO_WATERMARK),
        segments.column(_column([clock[1] for clock in clocks]), 0),
        segments.column(_column([clock[2] if len(clock) > 2 else clock[1] for clock in clocks]), 0),
        segments.column(_column([state.arrived for state in states]), 0),
        segments.column(_column([state.entered for state in states]), 0),
        segments.column(
            _column([windower_states.seen_by(kind, state.windower) for state in states]), 0
        ),
        due_us.astype("<i8").tobytes(),
        np.array([len(of_key) for of_key in windows], "<i4").tobytes(),
        _column([number for of_key in windows for number, _ in of_key]).astype("<i8").tobytes(),
        segments.column(_column(latest), -NEVER),
        _column([one.first_us for one in bounds]).astype("<i8").tobytes(),
        _column([one.last_us for one in bounds]).astype("<i8").tobytes(),
        [one.merged for one in bounds] if any(one.merged for one in bounds) else [],
        _shown_in(states, windows),
        tuple(
            (
                ObjectFigures.kind,
                type(aggregator).__name__,
                written([_state_of(one, plan.named, at) for one in snapshots]),
            )
            for at, aggregator in enumerate(plan.aggregators)
        ),
        np.array([len(of_key) for of_key in waiting], "<i4").tobytes() if waits else b"",
        _column([one.timestamp_us for one in waits]).astype("<i8").tobytes(),
        _column([one.number for one in waits]).astype("<i8").tobytes(),
        written([one.value for one in waits]),
        plan.named,
        kind,
        segments.column(
            _column([clock[3] if len(clock) > 3 else NO_WATERMARK for clock in clocks]),
            NO_WATERMARK,
        ),
    )


def snapshots_of_kept(
    kept: Kept, load: Callable[[bytes], Any] = pickle.loads
) -> Iterator[tuple[str, DriverState, int]]:
    """Each key in a segment in columns, its state as `WindowDriver` keeps it, and when it is due.

    Args:
        kept: the segment.
        load: what reads the pickles of values, and of states that are no columns.
    """
    count = kept.keys
    keys = segments.joined_keys([kept]).to_pylist()
    base, set_at, taken = (
        segments.filled([column], [count], empty).tolist()
        for column, empty in (
            (kept.base_us, NO_WATERMARK),
            (kept.set_at_us, 0),
            (kept.taken_us, NO_WATERMARK),
        )
    )
    heard = segments.filled([kept.heard_us or kept.set_at_us], [count], 0).tolist()
    arrived, entered, seen = (
        segments.filled([column], [count], 0).tolist()
        for column in (kept.arrived, kept.entered, kept.seen)
    )
    bounds = windower_states.bounds_of_kept(kept)
    dues = segments.numbers_of([kept.due_us]).tolist()
    ids = segments.numbers_of([kept.ids]).tolist()
    latest = segments.filled([kept.latest_us], [len(ids)], -NEVER).tolist()
    shown = kept.shown or bytes(len(ids))
    states = [_states_in(figures, load) for figures in kept.figures]
    rows = list(zip(*states, strict=True))
    times, numbers = (segments.numbers_of([one]).tolist() for one in (kept.times_us, kept.numbers))
    values = read(kept.values, load)
    ends = _ends(kept.windows, count), _ends(kept.waiting, count)
    begin = wait = 0
    for at, key in enumerate(keys):
        end, wait_end = ends[0][at], ends[1][at]
        windows = {
            ids[row]: (list(rows[row]) if kept.named else rows[row][0],)
            for row in range(begin, end)
        }
        queue = WaitQueue()
        for row in range(wait, wait_end):
            queue.push(Waiting(times[row], numbers[row], values[row]))
        clock: Any = None
        if base[at] != NO_WATERMARK:
            clock = (base[at], set_at[at], heard[at]) if kept.heard_us else (base[at], set_at[at])
            if taken[at] != NO_WATERMARK:
                clock = (base[at], set_at[at], heard[at], taken[at])
        state = DriverState(
            clock,
            windower_states.state_of(kept.kind, seen[at], ids[begin:end], bounds[begin:end]),
            queue.snapshot() if queue else None,
            arrived[at],
            entered[at],
            windows,
            (),
            {ids[row]: None for row in range(begin, end) if shown[row]},
            {ids[row]: latest[row] for row in range(begin, end) if latest[row] > -NEVER},
        )
        yield key, state, dues[at]
        begin, wait = end, wait_end


def split(kept: Kept) -> Iterator[tuple[str, bytes, int]]:
    """Each key in a segment, with a segment of its own, and when it is due.

    Nothing that was pickled is read.
    """
    keys = segments.joined_keys([kept]).to_pylist()
    dues = segments.numbers_of([kept.due_us]).tolist()
    window_ends, wait_ends = _ends(kept.windows, len(keys)), _ends(kept.waiting, len(keys))
    window = wait = 0
    for at, key in enumerate(keys):
        window_end, wait_end = window_ends[at], wait_ends[at]
        text = key.encode()
        of_key, of_windows = slice(at, at + 1), slice(window, window_end)
        of_waits = slice(wait, wait_end)
        alone = Kept(
            lengths=np.array([len(text)], "<i4").tobytes(),
            texts=text,
            base_us=_cut(kept.base_us, of_key),
            set_at_us=_cut(kept.set_at_us, of_key),
            heard_us=_cut(kept.heard_us, of_key),
            arrived=_cut(kept.arrived, of_key),
            entered=_cut(kept.entered, of_key),
            seen=_cut(kept.seen, of_key),
            due_us=_cut(kept.due_us, of_key),
            windows=_cut(kept.windows, of_key, 4),
            ids=_cut(kept.ids, of_windows),
            latest_us=_cut(kept.latest_us, of_windows),
            first_us=_cut(kept.first_us, of_windows),
            last_us=_cut(kept.last_us, of_windows),
            merged=kept.merged[of_windows],
            shown=kept.shown[of_windows],
            figures=tuple(_cut_figures(one, of_windows) for one in kept.figures),
            waiting=_cut(kept.waiting, of_key, 4),
            times_us=_cut(kept.times_us, of_waits),
            numbers=_cut(kept.numbers, of_waits),
            values=cut(kept.values, of_waits),
            named=kept.named,
            kind=kept.kind,
            taken_us=_cut(kept.taken_us, of_key),
        )
        yield key, alone.encode(), dues[at]
        window, wait = window_end, wait_end


def _cut(column: bytes, rows: slice, size: int = 8) -> bytes:
    return column[rows.start * size : rows.stop * size]


def _cut_figures(figures: Packed, rows: slice) -> Packed:
    kind, name, *columns = figures
    if kind == ObjectFigures.kind:
        return kind, name, cut(columns[0], rows)
    sizes = [int(one[-1]) for one in KINDS[kind].types]
    pieces = [
        column[rows] if isinstance(column, list) else _cut(column, rows, size)
        for column, size in zip(columns, sizes, strict=True)
    ]
    return kind, name, *pieces


_STAND_INS: dict[str, Aggregator[Any, Any, Any]] = {
    "Count": Count(),
    "Sum": Sum(),
    "Mean": Mean(),
    "Min": Min(),
    "Max": Max(),
    "First": First(),
    "Last": Last(),
    "Earliest": Earliest(),
    "Latest": Latest(),
}
"""One of each type of aggregator whose states may be columns of numbers."""


def _states_in(figures: Packed, load: Callable[[bytes], Any]) -> list[Any]:
    """The states of an aggregate, one for each window."""
    kind, name, *columns = figures
    if kind == ObjectFigures.kind:
        return read(columns[0], load)
    return KINDS[kind].unpacked(_STAND_INS[name], [figures]).states()


def _waiting_of(state: DriverState) -> Iterator[Waiting]:
    queue = WaitQueue(state.waiting)
    while queue:
        yield queue.pop()


def _shown_in(states: list[DriverState], windows: list[list[tuple[int, Any]]]) -> bytes:
    """Whether each window has emitted what it has come to; empty when none has."""
    shown = bytes(
        number in state.shown
        for state, of_key in zip(states, windows, strict=True)
        for number, _ in of_key
    )
    return shown if any(shown) else b""


def _state_of(snapshot: Any, named: bool, at: int) -> Any:
    """The state of one aggregator in a window's snapshot."""
    (state,) = snapshot
    return state[at] if named else state


def _column(values: list[int]) -> Ints:
    return np.array(values, np.int64)


def _ends(counts: bytes, keys: int) -> list[int]:
    numbers = segments.numbers_of([counts], "<i4") if counts else np.zeros(keys, np.int64)
    found: list[int] = np.cumsum(numbers).tolist()
    return found
