"""The open windows of many keys, a row each, in order of place and id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from flow.columns.arrays import Ints, Mask
from flow.instants import NEVER
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.columnar.aggregates.aggregated import Aggregated
from flow_windowing.columnar.state.spans import Spans

_ROOM = 1 << 62


class Rows(NamedTuple):
    """Windows that values enter, in order of place and id.

    Attributes:
        places: the place of each window's key.
        ids: each window's id.
    """

    places: Ints
    ids: Ints


@dataclass
class OpenWindows:
    """Windows of keys, in columns.

    Invariant: rows are in order of place, then of id, and no two are the same.

    Attributes:
        places: the place of each window's key.
        ids: each window's id.
        latest_us: the greatest timestamp in each window; all `-NEVER` where it is not asked for.
        figures: the states of each aggregate.
        spans: the bounds of each; ``None`` where they follow from the id, or there is no window.
        changed: what orders windows by when they changed first in this epoch; `NEVER` where one
            has not; ``None`` where nobody asks.
        shown: whether each has emitted what it has come to, or, where it has changed since, what it
            had come to when this epoch began; ``None`` where none has or nobody asks.
    """

    places: Ints
    ids: Ints
    latest_us: Ints
    figures: list[Aggregated]
    spans: Spans | None = None
    changed: Ints | None = None
    shown: Mask | None = None

    @classmethod
    def none(cls, aggregators: tuple[Aggregator[Any, Any, Any], ...]) -> OpenWindows:
        """No windows."""
        empty = np.empty(0, np.int64)
        return cls(empty, empty, empty, [Aggregated(one) for one in aggregators])

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Ints | Mask) -> OpenWindows:
        """Some of them; the rows must be in order."""
        figures = [one.take(rows) for one in self.figures]
        spans = None if self.spans is None else self.spans.take(rows)
        changed = None if self.changed is None else self.changed[rows]
        shown = None if self.shown is None else self.shown[rows]
        return OpenWindows(
            self.places[rows], self.ids[rows], self.latest_us[rows], figures, spans, changed, shown
        )

    def followed_by(self, other: OpenWindows) -> OpenWindows:
        """These, and those of places after them."""
        return OpenWindows(
            np.concatenate([self.places, other.places]),
            np.concatenate([self.ids, other.ids]),
            np.concatenate([self.latest_us, other.latest_us]),
            [a.followed_by(b) for a, b in zip(self.figures, other.figures, strict=True)],
            _joined(self.spans, other.spans),
            shown=self._shown_or_not(other),
        )

    def _shown_or_not(self, other: OpenWindows) -> Mask | None:
        if self.shown is None and other.shown is None:
            return None
        return np.concatenate([self.known_shown(), other.known_shown()])

    def note_changes(self) -> None:
        """Note which windows change from now on."""
        if self.changed is None:
            self.changed = np.full(len(self), NEVER)

    def known_spans(self) -> Spans:
        """The bounds of windows that have them, also while there is no window."""
        if self.spans is None:
            self.spans = Spans.fresh(len(self))
        return self.spans

    def known_shown(self) -> Mask:
        """Which have emitted what they have come to, kept from now on."""
        if self.shown is None:
            self.shown = np.zeros(len(self), np.bool_)
        return self.shown

    def rows_of(self, windows: Rows) -> Ints:
        """The rows of some of these windows, which may be given in any order."""
        if not len(windows.ids):
            return windows.ids
        mine, theirs = comparable(self, windows)
        return np.searchsorted(mine, theirs)

    def opened(self, windows: Rows) -> tuple[OpenWindows, Ints]:
        """All windows with these among them, and the rows of these."""
        mine, theirs = comparable(self, windows)
        at = np.searchsorted(mine, theirs)
        there = np.zeros(len(at), np.bool_)
        inside = at < len(mine)
        there[inside] = mine[at[inside]] == theirs[inside]
        new = np.flatnonzero(~there)
        if not len(new):
            return self, at
        count = len(self)
        grown = OpenWindows(
            np.concatenate([self.places, windows.places[new]]),
            np.concatenate([self.ids, windows.ids[new]]),
            np.concatenate([self.latest_us, np.full(len(new), -NEVER)]),
            [one.extended(len(new)) for one in self.figures],
            None if self.spans is None else self.spans.followed_by(Spans.fresh(len(new))),
            None if self.changed is None else np.append(self.changed, np.full(len(new), NEVER)),
            None if self.shown is None else np.append(self.shown, np.zeros(len(new), np.bool_)),
        )
        # Two runs that are in order each: merged in linear time.
        order = np.argsort(np.concatenate([mine, theirs[new]]), kind="stable")
        if count and not (np.diff(order) > 0).all():
            grown = grown.take(order)
        rows = at.copy()
        # Behind each old window lie the new ones that come before it.
        rows[new] = at[new] + np.arange(len(new))
        rows[there] = at[there] + np.searchsorted(new, np.flatnonzero(there))
        return grown, rows


def _joined(spans: Spans | None, others: Spans | None) -> Spans | None:
    if spans is None or others is None:
        return others if spans is None else spans
    return spans.followed_by(others)


def comparable(mine: OpenWindows, theirs: Rows) -> tuple[Ints, Ints]:
    """A number for each window of two lots, by place, then by id."""
    both = [one.ids for one in (mine, theirs) if len(one.ids)]
    if not both:
        return mine.ids, theirs.ids
    least, greatest = min(int(ids.min()) for ids in both), max(int(ids.max()) for ids in both)
    span = greatest - least + 1
    places = max(int(one.places.max()) for one in (mine, theirs) if len(one.ids)) + 1
    if span * places < _ROOM:
        return mine.places * span + (mine.ids - least), theirs.places * span + (theirs.ids - least)
    distinct, ranks = np.unique(np.concatenate([mine.ids, theirs.ids]), return_inverse=True)
    ranks = ranks.reshape(-1)
    cut = len(mine.ids)
    return (
        mine.places * len(distinct) + ranks[:cut],
        theirs.places * len(distinct) + ranks[cut:],
    )


def window_order(places: Ints, ids: Ints) -> Ints | None:
    """What brings values into order of place and id, ties as they come; ``None`` when they are.

    Args:
        places: each value's place, in order.
        ids: each value's window.
    """
    same = places[1:] == places[:-1]
    if not (same & (ids[1:] < ids[:-1])).any():
        return None
    none = OpenWindows(places[:0], ids[:0], ids[:0], [])
    _, numbers = comparable(none, Rows(places, ids))
    return np.argsort(numbers, kind="stable")
