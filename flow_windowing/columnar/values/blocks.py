"""Blocks: parts of a key's state that are written once, and read as they are needed.

A key with many buffered values has the earliest of them in its segment, and the others in blocks.
The segment has a directory of the blocks, which says when a value of a block comes due. As long as
none does, an epoch neither reads nor writes a block. The values of a block that is read join those
of the segment, so that each value is written again at most once for each halving of the time to its
release.

The list of a window that emits as it closes is a tail in the segment, and blocks that are read at
the close.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from flow.columns.arrays import Ints, Mask
from flow.format_version import VERSION, check_format, version_in
from flow.instants import NEVER
from flow.keyed.shard_logic import BlockStore
from flow.keyed.state import BlockReader, columns_in
from flow_windowing.columnar.values.buffered_values import (
    BufferedValues,
    encoder_of,
    restored_values,
)
from flow_windowing.columnar.values.encoding import EncodedValues, encode_column

BLOCK_ROWS = 1024
"""The number of values of a key that stay in its segment, and the least number in a block."""
BLOCK = bytes([VERSION]) + b"B"
_CLASSES = 4
TAGS = np.arange(_CLASSES)
"""A tag of each class of values; the class of a value is the side and the mark in its tag."""
DIRECTORY = np.dtype(
    [(name, "<i8") for name in ("slot", "number", "count", "greatest_us")]
    + [("least_us", "<i8", (_CLASSES,))]
)
"""The type of a block in the directory: the slot of its key; its number in the store; the number of
its values, their greatest timestamp, and the least timestamp of each class, `NEVER` for none."""
Directory: TypeAlias = npt.NDArray[np.void]
"""The directory of the blocks of many keys, of the type `DIRECTORY`, shape (blocks,)."""


def _entry(
    slot: int, number: int, times_us: Ints, numbers: Ints
) -> tuple[int, int, int, int, Ints]:
    """Return the entry of a block of values with these arrival numbers or tags."""
    least_us = np.full(_CLASSES, NEVER)
    np.minimum.at(least_us, numbers % _CLASSES, times_us)
    return slot, number, len(times_us), int(times_us.max()), least_us


def least_of_blocks_us(blocks: Directory, classes: Mask | slice = slice(None)) -> Ints:
    """Return the least timestamp of values of some classes in each block, `NEVER` for none."""
    least_us: Ints = blocks["least_us"][:, classes].min(1, initial=NEVER)
    return least_us


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


Pieces: TypeAlias = "tuple[int | bytes, ...]"
"""The earlier parts of a list in order: the number of a block, or, after a move to another layout,
the content of the block."""


class ListTail(list[Any]):
    """The last entries of the list of a window, whose earlier entries are in blocks.

    Attributes:
        pieces: the earlier entries.
    """

    __slots__ = ("pieces",)

    def __init__(self, entries: list[Any], pieces: Pieces) -> None:
        super().__init__(entries)
        self.pieces = pieces


def joined_lists(*lists: list[Any]) -> ListTail:
    """Return several lists as one; the earlier entries are those of all blocks."""
    tails = [one for one in lists if isinstance(one, ListTail)]
    pieces = tuple(piece for one in tails for piece in one.pieces)
    return ListTail([*chain.from_iterable(lists)], pieces)


def move_list(entries: list[Any], store: BlockStore) -> list[Any]:
    """Return a list after a move of its entries to a block, if it has many; else the list."""
    pieces = entries.pieces if isinstance(entries, ListTail) else ()
    is_moving = len(entries) >= 2 * BLOCK_ROWS
    if not is_moving and not any(isinstance(piece, bytes) for piece in pieces):
        return entries
    numbers = [store.add(piece) if isinstance(piece, bytes) else piece for piece in pieces]
    if is_moving:
        numbers.append(store.add(BLOCK + pickle.dumps(list(entries), 5)))
    return ListTail([] if is_moving else entries, tuple(numbers))


def read_list(entries: list[Any], take: BlockReader) -> list[Any]:
    """Return a list with the entries of its blocks, which `take` reads."""
    if not isinstance(entries, ListTail):
        return entries
    return join_pieces(read_pieces(entries.pieces, take), entries)


def read_pieces(pieces: Pieces, take: BlockReader) -> tuple[bytes, ...]:
    """Return the content of each piece of a list, given a reader of blocks."""
    numbers = [piece for piece in pieces if isinstance(piece, int)]
    contents = dict(zip(numbers, take(numbers), strict=True))
    return tuple(contents[piece] if isinstance(piece, int) else piece for piece in pieces)


def join_pieces(
    pieces: Sequence[bytes], tail: list[Any], load: Callable[[Any], Any] = pickle.loads
) -> list[Any]:
    """Return a list from the contents of its pieces and its last entries.

    Raises:
        CheckpointError: when a piece has an unknown format.
    """
    entries = list[Any]()
    for piece in pieces:
        check_format("a block of a list", version_in(piece))
        entries += load(memoryview(piece)[len(BLOCK) :])
    return entries + tail


def with_blocks(
    values: BufferedValues,
    blocks: Directory,
    contents: list[bytes],
    is_join: bool,
    load: Callable[[memoryview], Any] = pickle.loads,
) -> BufferedValues:
    """Return values and those in blocks, given the content of each; sorted by slot and arrival."""
    decoded = [Block.decode(content, load) for content in contents]
    slots = np.repeat(blocks["slot"], blocks["count"])
    both = values.followed_by(restored_values(slots, decoded, is_join))
    return both.take(np.lexsort((both.numbers, both.slots)))


def move_to_blocks(
    values: BufferedValues, is_moving: Mask, store: BlockStore
) -> tuple[BufferedValues, Directory]:
    """Move the values of keys that have many to new blocks, except for the earliest values.

    Args:
        values: the values.
        is_moving: the mask of the slots whose values may move.
        store: the storage of the blocks.

    Returns:
        The values that stay, and the directory of the new blocks.
    """
    entries = list[Any]()
    counts = np.bincount(values.slots, minlength=len(is_moving))
    large = np.flatnonzero((counts >= 2 * BLOCK_ROWS) & is_moving)
    if not len(large):
        return values, np.empty(0, DIRECTORY)
    stays = ~np.isin(values.slots, large)
    moved = np.flatnonzero(~stays)
    moved = moved[np.lexsort((values.times_us[moved], values.slots[moved]))]
    for slot in large.tolist():
        first, end = np.searchsorted(values.slots[moved], [slot, slot + 1]).tolist()
        stays[moved[first : first + BLOCK_ROWS]] = True
        later = moved[first + BLOCK_ROWS : end]
        for chosen in np.array_split(later, len(later) // BLOCK_ROWS):
            block = values.take(chosen)
            columns = encode_column(block.times_us), encode_column(block.numbers)
            number = store.add(Block(*columns, encoder_of(block.values)(0, len(block))).encode())
            entries.append(_entry(slot, number, block.times_us, block.numbers))
    return values.take(stays), np.array(entries, DIRECTORY)
