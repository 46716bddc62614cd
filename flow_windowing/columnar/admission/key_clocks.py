"""The state of the clocks of many keys, by slot: columns of numbers, or a logic of each key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints, Mask
from flow_windowing.clocks.clock import ClockLogic
from flow_windowing.rules.watermark import NO_WATERMARK


class KeyClocks(ABC):
    """The clocks of keys, by slot."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of keys."""

    @abstractmethod
    def concat(self, other: Self) -> Self:
        """Return these clocks followed by others."""

    @abstractmethod
    def take(self, slots: Ints) -> Self:
        """Return the clocks of the given slots, in the given order."""

    @abstractmethod
    def reset(self, slots: Ints) -> None:
        """Reset the clocks of the given slots to those of new keys."""

    @abstractmethod
    def has_state(self) -> Mask:
        """Return the mask of slots whose clock differs from that of a new key."""


@dataclass
class KeyColumns(KeyClocks):
    """The clocks of keys in columns; all are int64 µs, shape (slots,).

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
    def initial(cls, count: int) -> KeyColumns:
        """Return the clocks of `count` new keys."""
        zeros = np.zeros(count, np.int64)
        return cls(np.full(count, NO_WATERMARK), zeros, zeros.copy())

    @classmethod
    def of_columns(cls, columns: Ints) -> KeyColumns:
        """Return the clocks in the columns of a segment of ids, see `KeyedIds`.

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

    @override
    def __len__(self) -> int:
        return len(self.base_us)

    def ensure_held_watermark(self) -> Ints:
        """Return `held_watermark_us`, after making the column if it is ``None``."""
        if self.held_watermark_us is None:
            self.held_watermark_us = np.full(len(self), NO_WATERMARK)
        return self.held_watermark_us

    @override
    def concat(self, other: KeyColumns) -> KeyColumns:
        is_held = self.held_watermark_us is not None or other.held_watermark_us is not None
        held = [clocks.ensure_held_watermark() for clocks in (self, other)] if is_held else None
        return KeyColumns(
            np.concatenate([self.base_us, other.base_us]),
            np.concatenate([self.set_at_us, other.set_at_us]),
            np.concatenate([self.last_value_us, other.last_value_us]),
            None if held is None else np.concatenate(held),
        )

    @override
    def take(self, slots: Ints) -> KeyColumns:
        held_us = None if self.held_watermark_us is None else self.held_watermark_us[slots]
        return KeyColumns(
            self.base_us[slots], self.set_at_us[slots], self.last_value_us[slots], held_us
        )

    @override
    def reset(self, slots: Ints) -> None:
        self.base_us[slots] = NO_WATERMARK
        self.set_at_us[slots] = 0
        self.last_value_us[slots] = 0
        if self.held_watermark_us is not None:
            self.held_watermark_us[slots] = NO_WATERMARK

    @override
    def has_state(self) -> Mask:
        has_watermark: Mask = self.base_us != NO_WATERMARK
        return has_watermark


@dataclass
class KeyLogics(KeyClocks):
    """The clocks of keys as the logics of a clock without a form over columns.

    Attributes:
        build: returns the logic of a key from a snapshot, ``None`` for a new key.
        logics: the logic of each key.
    """

    build: Callable[[Any], ClockLogic[Any, Any]]
    logics: list[ClockLogic[Any, Any]]

    @override
    def __len__(self) -> int:
        return len(self.logics)

    @override
    def concat(self, other: KeyLogics) -> KeyLogics:
        return KeyLogics(self.build, self.logics + other.logics)

    @override
    def take(self, slots: Ints) -> KeyLogics:
        return KeyLogics(self.build, [self.logics[slot] for slot in slots.tolist()])

    @override
    def reset(self, slots: Ints) -> None:
        for slot in slots.tolist():
            self.logics[slot] = self.build(None)

    @override
    def has_state(self) -> Mask:
        return np.array([one is not None for one in self.snapshots()], np.bool_)

    def snapshots(self) -> list[Any]:
        """Return the snapshot of each key's logic."""
        return [logic.snapshot() for logic in self.logics]
