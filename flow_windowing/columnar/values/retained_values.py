"""Values that segments hold: the encoding of slices of them, and records of sides, restored.

Values become columns once for all segments; a segment has slices of the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from flow.columns.arrays import Ints
from flow.columns.plain_columns import PlainColumns
from flow.columns.sided_records import NO_RECORDS, SidedRecords
from flow_windowing.columnar.values.buffered_values import RetainedValues
from flow_windowing.columnar.values.encoding import (
    EncodedValues,
    pickle_values,
    sides_of,
    to_plain_columns,
)
from flow_windowing.columnar.values.plain_records import columns_of_records, joined_columns

SliceEncoder: TypeAlias = Callable[[int, int], EncodedValues]
"""Function that encodes the values from one index to another, exclusive."""


def encoder_of(values: RetainedValues) -> SliceEncoder:
    """Return the function that encodes slices of values."""
    if isinstance(values, SidedRecords):
        return _encoder_of_records(values)
    columns = to_plain_columns(values)
    return partial(_pickled, values) if columns is None else partial(_of_columns, columns)


def _encoder_of_records(values: SidedRecords) -> SliceEncoder:
    """Return the encoder of records; sides with the same columns share them."""
    of_sides = [values.of_side(side) for side in range(len(values.batches))]
    parts = [
        (indices, columns_of_records(batch)) for indices, batch in of_sides if batch.num_columns
    ]
    if not parts:
        return partial(_pickled, [])
    (_, first), *others = parts
    if not all(first.has_layout_of(columns) for _, columns in others):
        return partial(_of_sides, values.sides, [columns for _, columns in parts])
    order = np.argsort(np.concatenate([indices for indices, _ in parts]))
    columns = first.concatenate([columns for _, columns in others])
    return partial(_of_columns, columns.take(order))


def _pickled(values: list[Any], begin: int, end: int) -> EncodedValues:
    return pickle_values(values[begin:end])


def _of_columns(columns: PlainColumns, begin: int, end: int) -> EncodedValues:
    return columns.take(slice(begin, end)).encoded() if begin < end else []


def _of_sides(sides: Ints, columns: list[PlainColumns], begin: int, end: int) -> EncodedValues:
    here = sides[begin:end]
    before = np.bincount(sides[:begin], minlength=len(columns))
    after = before + np.bincount(here, minlength=len(columns))
    parts = [
        one.take(slice(first, last))
        for one, first, last in zip(columns, before.tolist(), after.tolist(), strict=True)
    ]
    filled = [one for one in parts if len(one)]
    if len(filled) < 2:
        return filled[0].encoded() if filled else []
    return here.astype(np.int8).tobytes(), tuple(one.encoded() for one in parts)


def restored_records(contents: Sequence[EncodedValues], sides: Ints) -> SidedRecords | None:
    """Return the records of two sides in segments; ``None`` unless all values are plain records.

    Args:
        contents: the values of each segment.
        sides: the side of each value, of all segments one after the other.
    """
    pieces: tuple[list[PlainColumns], list[PlainColumns]] = ([], [])
    begin = 0
    for content in contents:
        if isinstance(content, list):
            if content:
                return None
            continue
        _, columns = sides_of(content)
        end = begin + sum(map(len, columns))
        for side, of_side in enumerate(pieces):
            is_here = sides[begin:end] == side
            if len(columns) > 1:
                of_side.append(columns[side])
            elif is_here.any():
                of_side.append(columns[0] if is_here.all() else columns[0].take(is_here))
        begin = end
    batches = [joined_columns(of_side) if of_side else NO_RECORDS for of_side in pieces]
    found = tuple(batch for batch in batches if batch is not None)
    if len(found) < len(pieces):
        return None
    rows = np.empty(len(sides), np.int64)
    for side, batch in enumerate(found):
        rows[sides == side] = np.arange(batch.num_rows)
    return SidedRecords(found, sides, rows)
