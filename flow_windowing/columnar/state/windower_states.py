"""What the windower of a key remembers, as its logic keeps it, and as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flow.columns.arrays import Ints
from flow_windowing.columnar.storage import segments
from flow_windowing.columnar.storage.segments import Kept, WindowerKind


class Bounds(NamedTuple):
    """The bounds of a window that follow from its values, and what became part of it."""

    first_us: int
    last_us: int
    merged: tuple[int, ...] = ()

    def with_value(self, time_us: int) -> Bounds:
        """The bounds once a value has entered."""
        return Bounds(min(self.first_us, time_us), max(self.last_us, time_us), self.merged)

    def with_session(self, number: int, other: Bounds) -> Bounds:
        """The bounds once another window, of this id, has become part of it."""
        merged = tuple(sorted({*self.merged, *other.merged, number}))
        first_us, last_us = min(self.first_us, other.first_us), max(self.last_us, other.last_us)
        return Bounds(first_us, last_us, merged)


def seen_by(kind: WindowerKind, state: Any) -> int:
    """How many values a windower has counted."""
    return int(state[0]) if kind == "counts" and state is not None else 0


def bounds_in(kind: WindowerKind, state: Any, ids: Sequence[int]) -> list[Bounds]:
    """The bounds of a key's windows, unless they follow from the ids."""
    if kind == "index" or not ids:
        return []
    found: dict[int, Bounds] = {}
    if kind == "sessions":
        found = {one: Bounds(first, last, tuple(merged)) for one, first, last, merged in state}
    else:
        found = {one: Bounds(*of_window) for one, of_window in state[1].items()}
    return [found[one] for one in ids]


def state_of(kind: WindowerKind, seen: int, ids: list[int], bounds: list[Bounds]) -> Any:
    """What the windower of a key remembers, as its logic keeps it."""
    if kind == "index":
        return ids or None
    if kind == "sessions":
        return [(one, *of_window) for one, of_window in zip(ids, bounds, strict=True)] or None
    of_windows = {
        one: (of_window.first_us, of_window.last_us)
        for one, of_window in zip(ids, bounds, strict=True)
    }
    return (seen, of_windows) if seen else None


def bounds_of_kept(kept: Kept) -> list[Bounds]:
    """The bounds of all windows in a segment; none where they follow from the ids."""
    if kept.kind == "index":
        return []
    first, last = (one.tolist() for one in _columns(kept))
    return [Bounds(*one) for one in zip(first, last, kept.merged or [()] * len(first), strict=True)]


def _columns(kept: Kept) -> tuple[Ints, Ints]:
    return segments.numbers_of([kept.first_us]), segments.numbers_of([kept.last_us])
