"""The state of a key's windower, converted from and to columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flow_windowing.columnar.state.spans import Bounds
from flow_windowing.columnar.state.state_form import WindowKind
from flow_windowing.columnar.storage.segments import SegmentContent, decode_column


def counted_values(kind: WindowKind, state: Any) -> int:
    """Return the number of values that a windower has counted."""
    return int(state[0]) if kind == "counts" and state is not None else 0


def bounds_of_state(kind: WindowKind, state: Any, ids: Sequence[int]) -> list[Bounds]:
    """Return the bounds of a key's windows; an empty list if they follow from the ids."""
    if kind == "index" or not ids:
        return []
    bounds: dict[int, Bounds] = {}
    if kind == "sessions":
        bounds = {one: Bounds(first, last, tuple(merged)) for one, first, last, merged in state}
    else:
        bounds = {window_id: Bounds(*of_window) for window_id, of_window in state[1].items()}
    return [bounds[window_id] for window_id in ids]


def state_of(kind: WindowKind, counted: int, ids: list[int], bounds: list[Bounds]) -> Any:
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


def bounds_of_content(content: SegmentContent) -> list[Bounds]:
    """Return the bounds of all windows in a segment; an empty list if they follow from the ids."""
    if content.kind == "index":
        return []
    first = decode_column([content.first_us]).tolist()
    last = decode_column([content.last_us]).tolist()
    merged_ids = content.merged_ids or [()] * len(first)
    return [Bounds(*one) for one in zip(first, last, merged_ids, strict=True)]
