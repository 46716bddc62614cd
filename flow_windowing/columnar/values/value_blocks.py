"""Blocks of buffered values: values of a key that are written once and read as they come due.

A key with many buffered values has the earliest of them in its segment, and the others in blocks.
The segment has a directory of the blocks, which says when a value of a block comes due. As long as
none does, an epoch neither reads nor writes a block. The values of a block that is read join those
of the segment, so that each value is written again at most once for each halving of the time to its
release.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flow.columns.arrays import Ints, Mask
from flow.format_version import VERSION, check_format, version_in
from flow.instants import NEVER
from flow.keyed.segments import columns_in
from flow_windowing.columnar.values.encoding import EncodedValues

BLOCK_ROWS = 1024
"""The number of values of a key that stay in its segment, and the least number in a block."""
BLOCK = bytes([VERSION]) + b"B"
_NUMBER, _COUNT, _GREATEST, _LEAST = 0, 1, 2, slice(3, None)
_CLASSES = 4
TAGS = np.arange(_CLASSES)
"""A tag of each class of values."""
BLOCK_COLUMNS = 3 + _CLASSES


@dataclass
class ValueBlocks:
    """The directory of the blocks of many keys, sorted by slot.

    Attributes:
        slots: the slot of each block's key.
        table: int64, shape (blocks, 7): the number of each block, the number of its values, their
            greatest timestamp, and the least timestamp of each class of values, `NEVER` for none;
            the class of a value is the side and the mark in its tag.
    """

    slots: Ints
    table: npt.NDArray[np.int64]

    @classmethod
    def empty(cls) -> ValueBlocks:
        """Return no blocks."""
        return cls(np.empty(0, np.int64), np.empty((0, BLOCK_COLUMNS), np.int64))

    def __len__(self) -> int:
        return len(self.slots)

    def take(self, rows: Ints | Mask) -> ValueBlocks:
        """Return the blocks in the given rows, in the given order."""
        return ValueBlocks(self.slots[rows], self.table[rows])

    def merge(self, other: ValueBlocks) -> ValueBlocks:
        """Return these blocks and others, sorted by slot."""
        slots = np.concatenate([self.slots, other.slots])
        both = ValueBlocks(slots, np.concatenate([self.table, other.table]))
        return both.take(np.argsort(slots, kind="stable"))

    @property
    def numbers(self) -> list[int]:
        """The number of each block."""
        numbers: list[int] = self.table[:, _NUMBER].tolist()
        return numbers

    @property
    def counts(self) -> Ints:
        """The number of values in each block."""
        return self.table[:, _COUNT]

    @property
    def greatest_us(self) -> Ints:
        """The greatest timestamp in each block."""
        return self.table[:, _GREATEST]

    def least_us(self, classes: Mask | slice = slice(None)) -> Ints:
        """Return the least timestamp of values of some classes in each block, `NEVER` for none."""
        least_us: Ints = self.table[:, _LEAST][:, classes].min(1, initial=NEVER)
        return least_us

    def due_us(self, after_us: Ints) -> Ints:
        """Return the least watermark at which a value of each block is due.

        Args:
            after_us: for each class, the time from a value's timestamp to that watermark.
        """
        # `NEVER` and a time after it do not overflow.
        due_us: Ints = (self.table[:, _LEAST] + after_us).min(1, initial=NEVER)
        return due_us


def directory_row(number: int, times_us: Ints, numbers: Ints) -> list[int]:
    """Return the row in the directory of a block of values, with these arrival numbers or tags."""
    least_us = np.full(_CLASSES, NEVER)
    np.minimum.at(least_us, numbers % _CLASSES, times_us)
    return [number, len(times_us), int(times_us.max()), *least_us.tolist()]


class Block(NamedTuple):
    """A block of values of a key.

    Attributes:
        times_us, numbers: the timestamps, and the arrival numbers or tags; little-endian int64.
        values: the values.
    """

    times_us: bytes
    numbers: bytes
    values: EncodedValues

    def encode(self) -> bytes:
        """Return the block as bytes."""
        return BLOCK + pickle.dumps(tuple(self), 5)

    @classmethod
    def decode(cls, content: bytes, load: Callable[[memoryview], Any]) -> Block:
        """Return the block in bytes made by `encode`; `load` reads the pickle in the bytes.

        Raises:
            CheckpointError: when the bytes are no such block.
        """
        check_format("a block of values", version_in(content))
        return cls(*columns_in(content, len(cls._fields), "values", load))
