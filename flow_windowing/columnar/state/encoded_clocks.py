"""The clocks of keys in a segment: columns of numbers, or a pickled snapshot of each clock."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from flow.columns.arrays import Ints
from flow_windowing.clocks.event_clock import ClockState
from flow_windowing.columnar.admission.shard_clocks import (
    KeyClocks,
    KeyColumns,
    KeyLogics,
    LogicShardClock,
    ShardClock,
)
from flow_windowing.columnar.values.encoding import (
    decode_or_default,
    encode_unless_default,
    pickle_values,
)
from flow_windowing.rules.watermark import NO_WATERMARK


class EncodedClocks(NamedTuple):
    """The clocks of keys; see `KeyColumns` for the columns, which are empty for system time.

    Attributes:
        base_us, set_at_us, last_value_us, held_watermark_us: the columns, little-endian int64; a
            column in which all elements are the default is empty.
        clock_logics: a pickle of the snapshot of each key's clock, for a clock without columns.
    """

    base_us: bytes
    set_at_us: bytes
    last_value_us: bytes
    held_watermark_us: bytes
    clock_logics: list[bytes]

    @classmethod
    def of(cls, clocks: KeyClocks, expires: bool) -> EncodedClocks:
        """Return clocks of keys that `expires` says to expire or not."""
        column = encode_unless_default
        if isinstance(clocks, KeyLogics):
            return cls(b"", b"", b"", b"", pickle_values(clocks.snapshots()))
        if not isinstance(clocks, KeyColumns):
            return cls(b"", b"", b"", b"", [])
        held_us = clocks.held_watermark_us
        return cls(
            column(clocks.base_us, NO_WATERMARK),
            column(clocks.set_at_us, 0),
            column(clocks.last_value_us, 0) if expires else b"",
            b"" if held_us is None else column(held_us, NO_WATERMARK),
            [],
        )

    def states(self, count: int, load: Callable[[bytes], Any] = pickle.loads) -> list[Any]:
        """Return the snapshots of the clocks of `count` keys, ``None`` before a first value."""
        if self.clock_logics:
            return list(map(load, self.clock_logics))
        columns = zip(*(column.tolist() for column in _columns_of([self], [count])), strict=True)
        # A clock without a limit or a hold has a snapshot without these numbers.
        short = 3 if self.last_value_us else 2
        return [
            None if state[0] == NO_WATERMARK else state[: 4 if state[3] != NO_WATERMARK else short]
            for state in columns
        ]


def decode_clocks(
    clock: ShardClock[Any], parts: Sequence[EncodedClocks], counts: list[int]
) -> KeyClocks:
    """Return the clocks in several segments, given the number of keys of each."""
    if isinstance(clock, LogicShardClock):
        return clock.restored_clocks(pickle.loads(one) for part in parts for one in part[-1])
    base_us, set_at_us, last_us, held_us = _columns_of(parts, counts)
    is_held = any(part.held_watermark_us for part in parts)
    return KeyColumns(base_us, set_at_us, last_us, held_us if is_held else None)


def _columns_of(parts: Sequence[EncodedClocks], counts: list[int]) -> tuple[Ints, ...]:
    # Segments of steps whose keys do not expire lack the last column but one.
    return (
        decode_or_default([part.base_us for part in parts], counts, NO_WATERMARK),
        decode_or_default([part.set_at_us for part in parts], counts, 0),
        decode_or_default([part.last_value_us or part.set_at_us for part in parts], counts, 0),
        decode_or_default([part.held_watermark_us for part in parts], counts, NO_WATERMARK),
    )


def clocks_of_states(clock: ShardClock[Any], states: Sequence[Any]) -> KeyClocks:
    """Return the clocks of keys from the snapshots that their drivers made."""
    if isinstance(clock, LogicShardClock):
        return clock.restored_clocks(states)
    rows = np.array(list(map(_full_state, states)), np.int64).reshape(-1, 4)
    base_us, set_at_us, last_us, held_us = rows.T.copy()
    return KeyColumns(base_us, set_at_us, last_us, held_us)


def _full_state(state: ClockState | None) -> tuple[int, ...]:
    base_us, set_at_us, *more = state or (NO_WATERMARK, 0)
    return base_us, set_at_us, *(more or [set_at_us]), *([] if len(more) > 1 else [NO_WATERMARK])
