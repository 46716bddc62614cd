"""The snapshots of keys that drivers make, converted from and to segments in columns."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from flow.columns.arrays import Ints
from flow.instants import NEVER
from flow.keyed.shard_logic import BlockStore
from flow.keyed.state import (
    WINDOWS,
    StateCounts,
    WholeKeys,
    kind_of,
)
from flow_windowing.columnar.aggregates.accumulator_column import FORM_OF_KIND
from flow_windowing.columnar.aggregates.accumulators import EncodedAccumulators
from flow_windowing.columnar.aggregates.object_accumulators import ObjectAccumulators
from flow_windowing.columnar.state.encoded_clocks import EncodedClocks, clocks_of_states
from flow_windowing.columnar.state.segments import SegmentContent, keys_of
from flow_windowing.columnar.state.shard_state import Bounds, StateForm, WindowKind
from flow_windowing.columnar.values.blocks import join_pieces
from flow_windowing.columnar.values.encoding import (
    decode_column,
    decode_or_default,
    decode_values,
    encode_column,
    encode_unless_default,
    encode_values,
    slice_values,
)
from flow_windowing.rules.key_state import (
    DriverState,
    IntervalState,
    Waiting,
    WaitQueue,
    read_snapshot,
    unpack_list,
)


def _counted_values(kind: WindowKind, state: Any) -> int:
    """Return the number of values that a windower has counted."""
    return int(state[0]) if kind == "counts" and state is not None else 0


def _bounds_of_state(kind: WindowKind, state: Any, ids: Sequence[int]) -> list[Bounds]:
    """Return the bounds of a key's windows; an empty list if they follow from the ids."""
    if kind == "index" or not ids:
        return []
    bounds: dict[int, Bounds] = {}
    if kind == "sessions":
        bounds = {one: Bounds(first, last, tuple(merged)) for one, first, last, merged in state}
    else:
        bounds = {window_id: Bounds(*of_window) for window_id, of_window in state[1].items()}
    return [bounds[window_id] for window_id in ids]


def _state_of(kind: WindowKind, counted: int, ids: list[int], bounds: list[Bounds]) -> Any:
    """Return the state of a key's windower, as its logic snapshots it."""
    if kind == "index":
        return ids or None
    if kind == "sessions":
        return [(one, *of_window) for one, of_window in zip(ids, bounds, strict=True)] or None
    of_windows = {
        one: (of_window.first_us, of_window.last_us)
        for one, of_window in zip(ids, bounds, strict=True)
    }
    return (counted, of_windows) if counted else None


def _bounds_of_content(content: SegmentContent) -> list[Bounds]:
    """Return the bounds of all windows in a segment; an empty list if they follow from the ids."""
    if content.kind == "index":
        return []
    first = decode_column([content.first_us]).tolist()
    last = decode_column([content.last_us]).tolist()
    merged_ids = content.merged_ids or [()] * len(first)
    return [Bounds(*one) for one in zip(first, last, merged_ids, strict=True)]


def content_of_snapshots(
    form: StateForm,
    keys: list[str],
    states: list[DriverState],
    due_us: Ints,
) -> SegmentContent:
    """Return the states of keys as the content of a segment."""
    texts = [key.encode() for key in keys]
    kind = form.kind
    clocks = clocks_of_states(form.clock, [state.clock for state in states])
    windows = [sorted(state.windows.items()) for state in states]
    bounds = [
        one
        for state, of_key in zip(states, windows, strict=True)
        for one in _bounds_of_state(kind, state.windower, [window_id for window_id, _ in of_key])
    ]
    latest = [
        state.latest.get(window_id, -NEVER)
        for state, of_key in zip(states, windows, strict=True)
        for window_id, _ in of_key
    ]
    counted = [_counted_values(kind, state.windower) for state in states]
    queues = [list(_buffered_in(state)) for state in states]
    buffered = [one for of_key in queues for one in of_key]
    return SegmentContent(
        key_lengths=_encode([len(text) for text in texts], "<i4"),
        key_texts=b"".join(texts),
        **EncodedClocks.of(clocks, expires=True)._asdict(),
        arrival_counts=_encode_unless([state.arrived for state in states], 0),
        entry_counts=_encode_unless([state.entered for state in states], 0),
        counted_values=_encode_unless(counted, 0),
        due_us=encode_column(due_us),
        window_counts=_encode([len(of_key) for of_key in windows], "<i4"),
        ids=_encode([window_id for of_key in windows for window_id, _ in of_key]),
        latest_us=_encode_unless(latest, -NEVER),
        first_us=_encode([one.first_us for one in bounds]),
        last_us=_encode([one.last_us for one in bounds]),
        merged_ids=[one.merged_ids for one in bounds]
        if any(one.merged_ids for one in bounds)
        else [],
        is_emitted=_emitted_in(states, windows),
        accumulators=_accumulators_in(form, windows),
        buffered_counts=_encode([len(of_key) for of_key in queues], "<i4") if buffered else b"",
        times_us=_encode([one.timestamp_us for one in buffered]),
        numbers=_encode([one.number for one in buffered]),
        values=encode_values([one.value for one in buffered]),
        named=form.named,
        kind=kind,
    )


def snapshots_of_content(
    content: SegmentContent, load: Callable[[bytes], Any] = pickle.loads
) -> Iterator[tuple[str, Any, int]]:
    """Yield each key of a segment with its snapshot, as the key's driver makes it, and due time.

    Args:
        content: the content of the segment.
        load: reads the pickles of values and of states.
    """
    count = content.key_count
    keys = keys_of([content]).to_pylist()
    clocks = content.clocks.states(count, load)
    arrivals, entries, counted = (
        decode_or_default([column], [count], 0).tolist()
        for column in (content.arrival_counts, content.entry_counts, content.counted_values)
    )
    bounds = _bounds_of_content(content)
    dues = decode_column([content.due_us]).tolist()
    ids = decode_column([content.ids]).tolist()
    latest = decode_or_default([content.latest_us], [len(ids)], -NEVER).tolist()
    is_emitted = content.is_emitted or bytes(len(ids))
    rows = list(zip(*(_states_in(one, load) for one in content.accumulators), strict=True))
    buffered = [
        Waiting(*one)
        for one in zip(
            decode_column([content.times_us]).tolist(),
            decode_column([content.numbers]).tolist(),
            decode_values(content.values, load),
            strict=True,
        )
    ]
    window_ends = _ends(content.window_counts, count)
    buffered_ends = _ends(content.buffered_counts, count)
    begin = first_value = 0
    for at, key in enumerate(keys):
        end, last_value = window_ends[at], buffered_ends[at]
        windows = {
            ids[row]: (list(rows[row]) if content.named else rows[row][0],)
            for row in range(begin, end)
        }
        of_key = buffered[first_value:last_value]
        if content.kind == "interval":
            yield key, IntervalState(clocks[at], arrivals[at], list(map(tuple, of_key))), dues[at]
            begin, first_value = end, last_value
            continue
        queue = WaitQueue()
        for one in of_key:
            queue.push(one)
        state = DriverState(
            clocks[at],
            _state_of(content.kind, counted[at], ids[begin:end], bounds[begin:end]),
            queue.snapshot() if queue else None,
            arrivals[at],
            entries[at],
            windows,
            (),
            {ids[row]: None for row in range(begin, end) if is_emitted[row]},
            {ids[row]: latest[row] for row in range(begin, end) if latest[row] > -NEVER},
        )
        yield key, state, dues[at]
        begin, first_value = end, last_value


def _driver_state(state: DriverState | IntervalState) -> DriverState:
    """Return the state of a key with the values that a join retains as buffered ones."""
    if isinstance(state, DriverState):
        return state
    retained = [Waiting(*one) for one in sorted(state.retained, key=itemgetter(0, 1))]
    return DriverState(state.clock, None, (retained, []), state.arrived, 0, {}, (), {}, {})


def read_segment(
    form: StateForm, content: bytes, blocks: BlockStore | None
) -> Iterator[SegmentContent]:
    """Yield the content of a segment; a segment that was written key by key has several."""
    if kind_of(content) == WINDOWS:
        yield SegmentContent.decode(content)
        return
    # A snapshot is a segment of its key alone, or the pickled state of a `WindowDriver`.
    keys, snapshots, due_us, *_ = WholeKeys.decode(content, "a segment of windows")
    pickled = [at for at, snapshot in enumerate(snapshots) if kind_of(snapshot) != WINDOWS]
    yield from (SegmentContent.decode(one) for one in snapshots if kind_of(one) == WINDOWS)
    if pickled:
        states = [_driver_state(read_snapshot(snapshots[at])) for at in pickled]
        if blocks is not None:
            states = [state.whole(blocks.take) for state in states]
        yield content_of_snapshots(form, [keys[at] for at in pickled], states, due_us[pickled])


def split_by_key(content: SegmentContent) -> Iterator[tuple[str, bytes, int]]:
    """Yield each key of a segment with a segment of this key alone, and its due time.

    The function reads no pickled value.
    """
    keys = keys_of([content]).to_pylist()
    dues = decode_column([content.due_us]).tolist()
    window_ends = _ends(content.window_counts, len(keys))
    buffered_ends = _ends(content.buffered_counts, len(keys))
    begin = first_value = text_begin = 0
    for at, key in enumerate(keys):
        end, last_value = window_ends[at], buffered_ends[at]
        text_end = text_begin + len(key.encode())
        of_windows, of_values = slice(begin, end), slice(first_value, last_value)
        part = content.part(slice(text_begin, text_end), slice(at, at + 1), of_windows, of_values)
        alone = part._replace(
            accumulators=tuple(
                _slice_accumulators(one, of_windows) for one in content.accumulators
            ),
            values=slice_values(content.values, of_values),
        )
        yield key, alone.encode(), dues[at]
        begin, first_value, text_begin = end, last_value, text_end


def counts_by_key(content: SegmentContent) -> list[StateCounts]:
    """Return the open windows and buffered values of each key of a segment."""
    ends = (content.window_counts, content.buffered_counts)
    windows, values = (np.diff(_ends(one, content.key_count), prepend=0).tolist() for one in ends)
    return list(map(StateCounts, windows, values))


def _slice_accumulators(accumulators: EncodedAccumulators, rows: slice) -> EncodedAccumulators:
    kind, *columns = accumulators
    if kind == ObjectAccumulators.kind:
        values, *pieces = columns
        return kind, slice_values(values, rows), *(of_rows[rows] for of_rows in pieces)
    sizes = [int(one[-1]) for one in FORM_OF_KIND[kind].types]
    pieces = [
        column[rows.start * size : rows.stop * size]
        for column, size in zip(columns, sizes, strict=True)
    ]
    return kind, *pieces


def _states_in(accumulators: EncodedAccumulators, load: Callable[[bytes], Any]) -> list[Any]:
    """Return the states of an aggregate, one for each window."""
    kind, *columns = accumulators
    if kind == ObjectAccumulators.kind:
        values, *pieces = columns
        states = decode_values(values, load)
        for of_rows in pieces:
            states = list(map(partial(join_pieces, load=load), of_rows, states))
        return states
    return FORM_OF_KIND[kind].decode_states(accumulators)


def _accumulators_in(
    form: StateForm, windows: list[list[tuple[int, Any]]]
) -> tuple[EncodedAccumulators, ...]:
    """Return the states in snapshots of windows as encoded accumulators."""
    # The snapshot of a window with a trigger also has the state of its panes.
    states = [state for of_key in windows for _, (state, *_) in of_key]
    return tuple(
        (
            ObjectAccumulators.kind,
            encode_values([unpack_list(state[at] if form.named else state) for state in states]),
        )
        for at in range(len(form.aggregators))
    )


def _buffered_in(state: DriverState) -> Iterator[Waiting]:
    queue = WaitQueue(state.waiting)
    while queue:
        yield queue.pop()


def _emitted_in(states: list[DriverState], windows: list[list[tuple[int, Any]]]) -> bytes:
    """Return 1 for each window that has emitted its result, empty when none has."""
    emitted = bytes(
        window_id in state.emissions
        for state, of_key in zip(states, windows, strict=True)
        for window_id, _ in of_key
    )
    return emitted if any(emitted) else b""


def _encode(values: list[int], kind: str = "<i8") -> bytes:
    return encode_column(np.array(values, np.int64), kind)


def _encode_unless(values: list[int], default: int) -> bytes:
    return encode_unless_default(np.array(values, np.int64), default)


def _ends(counts: bytes, keys: int) -> list[int]:
    """Return the end of each key's rows."""
    numbers = decode_column([counts], "<i4") if counts else np.zeros(keys, np.int64)
    ends: list[int] = np.cumsum(numbers).tolist()
    return ends
