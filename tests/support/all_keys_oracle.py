"""An oracle of windows over all keys: their values, computed from the definition.

The oracle reads the values of one source partition in order, while system time stands still. The
watermark of the stream is the greatest timestamp less the wait. Times are whole seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Visit: TypeAlias = tuple[str, int]
"""A key, and the time of a value."""


@dataclass(frozen=True)
class Windows:
    """Windows of `length` that open every `offset`, and stay open for `grace` past their close."""

    length: int
    offset: int
    grace: int | None

    def ids_at(self, time: int) -> list[int]:
        """Return the ids of the windows that hold a time."""
        last = time // self.offset
        return [
            n
            for n in range(last - self.length, last + 1)
            if 0 <= time - n * self.offset < self.length
        ]

    def closed_at(self, window_id: int) -> int:
        """Return the least watermark at which a window is closed."""
        return window_id * self.offset + self.length + (self.grace or 0)


@dataclass
class Answer:
    """The output of a flow.

    Attributes:
        closed: for each epoch and then for the end, the ids of the windows that it closes.
        keys_of: the keys of the values in each window.
        late: the late values, each with the ids of the windows that it missed.
    """

    closed: list[list[int]] = field(default_factory=list)
    keys_of: dict[int, list[str]] = field(default_factory=dict)
    late: list[tuple[Visit, tuple[int, ...]]] = field(default_factory=list)


def answer(windows: Windows, wait: int, epochs: Sequence[Iterable[Visit]]) -> Answer:
    """Return the output of a flow, whose input ends after the epochs."""
    found, watermark = Answer(), -math.inf
    for epoch in epochs:
        for key, time in epoch:
            watermark = max(watermark, time - wait)
            ids = windows.ids_at(time)
            if windows.grace is None:
                missed = ids if time < watermark else []
            else:
                missed = [n for n in ids if windows.closed_at(n) <= watermark]
            if missed:
                found.late.append(((key, time), tuple(missed)))
            for window_id in ids:
                if window_id not in missed:
                    found.keys_of.setdefault(window_id, []).append(key)
        found.closed.append(_closing(windows, found, watermark))
    found.closed.append(_closing(windows, found, math.inf))
    return found


def _closing(windows: Windows, found: Answer, watermark: float) -> list[int]:
    before = {window_id for closed in found.closed for window_id in closed}
    passed = {n for n in found.keys_of if windows.closed_at(n) <= watermark}
    return sorted(passed - before)


def ranking(keys: Iterable[str], n: int) -> list[tuple[str, int]]:
    """Return the `n` most frequent keys, the most frequent first, equals by key."""
    return sorted(Counter(keys).items(), key=lambda one: (-one[1], one[0]))[:n]
