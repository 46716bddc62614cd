"""The state of the clocks of many keys, in columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flow.columns.arrays import Ints, Mask
from flow_windowing.rules.watermark import NO_WATERMARK


@dataclass
class KeyClocks:
    """The clocks of keys, by slot; all columns are int64 µs, shape (slots,).

    Attributes:
        base_us: the base of the watermark; `NO_WATERMARK` for a key without a watermark.
        set_at_us: the running time at which the base was set.
        last_value_us: the running time at which the last value arrived.
        held_watermark_us: the last watermark that the key used under a hold; `NO_WATERMARK` for a
            key that is not held; ``None`` if no key is held.
    """

    base_us: Ints
    set_at_us: Ints
    last_value_us: Ints
    held_watermark_us: Ints | None = None

    @classmethod
    def initial(cls, count: int) -> KeyClocks:
        """Return the clocks of `count` new keys."""
        zeros = np.zeros(count, np.int64)
        return cls(np.full(count, NO_WATERMARK), zeros, zeros.copy())

    @classmethod
    def of_columns(cls, columns: Ints) -> KeyClocks:
        """Return the clocks in the columns of stored state, see `flow.keyed.id_segments`.

        Args:
            columns: the fields in their order, int64, shape (fields, keys); `NO_WATERMARK` where
                the last fields of a key are missing.
        """
        clocks = cls.initial(columns.shape[1])
        if not len(columns):
            return clocks
        base_us, set_at_us, *more = columns
        clocks.base_us = base_us.copy()
        clocks.set_at_us = np.where(base_us == NO_WATERMARK, 0, set_at_us)
        clocks.last_value_us = clocks.set_at_us.copy()
        if more:
            is_known = (more[0] != NO_WATERMARK) & (base_us != NO_WATERMARK)
            clocks.last_value_us[is_known] = more[0][is_known]
        if len(more) > 1:
            clocks.held_watermark_us = more[1].copy()
        return clocks

    def ensure_held_watermark(self) -> Ints:
        """Return `held_watermark_us`, after making the column if it is ``None``."""
        if self.held_watermark_us is None:
            self.held_watermark_us = np.full(len(self.base_us), NO_WATERMARK)
        return self.held_watermark_us

    def concat(self, other: KeyClocks) -> KeyClocks:
        """Return these clocks followed by others."""
        is_held = self.held_watermark_us is not None or other.held_watermark_us is not None
        held = [clocks.ensure_held_watermark() for clocks in (self, other)] if is_held else None
        return KeyClocks(
            np.concatenate([self.base_us, other.base_us]),
            np.concatenate([self.set_at_us, other.set_at_us]),
            np.concatenate([self.last_value_us, other.last_value_us]),
            None if held is None else np.concatenate(held),
        )

    def take(self, slots: Ints | Mask) -> KeyClocks:
        """Return the clocks of the given slots, in the given order."""
        held_us = None if self.held_watermark_us is None else self.held_watermark_us[slots]
        return KeyClocks(
            self.base_us[slots], self.set_at_us[slots], self.last_value_us[slots], held_us
        )

    def reset(self, slots: Ints) -> None:
        """Reset the clocks of the given slots to those of new keys."""
        self.base_us[slots] = NO_WATERMARK
        self.set_at_us[slots] = 0
        self.last_value_us[slots] = 0
        if self.held_watermark_us is not None:
            self.held_watermark_us[slots] = NO_WATERMARK
