"""Timestamps of values as columns, equal to those of `EventClock.timestamp_us`."""

from __future__ import annotations

import contextlib
from datetime import datetime
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flow.columns.arrays import Ints, Mask
from flow.columns.plain_columns import microseconds_of
from flow.columns.record_batches import SidedRecords
from flow.errors import RAISED
from flow.fields import field_path
from flow.instants import MAX_US, MIN_US
from flow_windowing.columnar.values.records import Values

_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
_MICROS_A_SECOND = 1_000_000
_USUAL_TEXT = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)$"
"""The form of ISO 8601 that Arrow reads; `datetime.fromisoformat` reads others too."""


def read_times(values: Values, getter: Any) -> tuple[Ints, Mask] | None:
    """Return the timestamps of values, int64 µs, and the mask of those that could be read.

    The caller has to read the others one by one, with `EventClock.timestamp_us`.

    Args:
        values: the values.
        getter: a field's path, or a function of a value.

    Returns:
        Two arrays of shape (values,); ``None`` when all timestamps have to be read one by one.
    """
    if isinstance(values, pa.RecordBatch):
        column = field_path(getter).column_in(values) if isinstance(getter, str) else None
        return None if column is None else _of_column(column)
    if isinstance(values, SidedRecords):
        return _of_sides(values, getter) or read_times(values.records(), getter)
    get = itemgetter(getter) if isinstance(getter, str) else getter
    if isinstance(getter, str) and not all(type(value) is dict for value in values):
        return None
    try:
        return _of_objects(list(map(get, values)))
    except RAISED:  # The caller then reads the values one by one, and names the value at fault.
        return None


def _of_sides(values: SidedRecords, getter: Any) -> tuple[Ints, Mask] | None:
    """Return the timestamps of the records of several streams; ``None`` unless columns have all."""
    times, is_known = np.zeros(len(values), np.int64), np.zeros(len(values), np.bool_)
    for side in range(len(values.batches)):
        chosen, batch = values.of_side(side)
        read = read_times(batch, getter) if len(chosen) else None
        if read is not None:
            times[chosen], is_known[chosen] = read
        elif len(chosen):
            return None
    return times, is_known


def _of_column(column: pa.Array) -> tuple[Ints, Mask] | None:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        if kind.unit == "ns":
            column = pc.floor_temporal(column.cast(pa.timestamp("ns")), unit="microsecond")
            column, kind = column.cast(pa.timestamp("us")), pa.timestamp("us")
        return _scaled(column.cast(pa.int64()), _UNIT_US[kind.unit])
    if kind == pa.uint64():
        column = pc.min_element_wise(column, pa.scalar(MAX_US, kind))
    if pa.types.is_integer(kind):
        return _scaled(column.cast(pa.int64()), _MICROS_A_SECOND)
    if pa.types.is_floating(kind):
        return _of_floats(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _of_texts(column)
    return None


def _of_texts(column: pa.Array) -> tuple[Ints, Mask] | None:
    """Convert ISO 8601 texts; ``None`` if one in the usual form is no time, as on 30 February."""
    read = _of_usual_texts(column)
    if read is None:
        is_usual = pc.match_substring_regex(column, _USUAL_TEXT)
        read = _of_usual_texts(pc.if_else(is_usual, column, None))
    return read


def _of_usual_texts(column: pa.Array) -> tuple[Ints, Mask] | None:
    for unit in ("ns", "us"):  # Nanoseconds end in 2262, and microseconds have six digits.
        with contextlib.suppress(pa.ArrowInvalid):
            return _of_column(column.cast(pa.timestamp(unit, "UTC")))
    return None


def _scaled(column: pa.Array, factor: int) -> tuple[Ints, Mask]:
    known = _known(column)
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    if factor > 1:
        known &= (numbers >= MIN_US // factor) & (numbers <= MAX_US // factor)
        return np.where(known, numbers, 0) * factor, known
    known &= (numbers >= MIN_US) & (numbers <= MAX_US)
    return numbers, known


def _of_floats(column: pa.Array) -> tuple[Ints, Mask]:
    """Convert floating seconds to µs, and round half to even as `round` does.

    Returns:
        The timestamps, int64 µs, and the mask of those that could be read; both of shape (rows,).
    """
    numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    known = _known(column) & np.isfinite(numbers)
    known &= np.abs(np.where(known, numbers, 0.0)) < MAX_US / _MICROS_A_SECOND
    numbers = np.where(known, numbers, 0.0)
    whole = np.floor(numbers)
    micros = np.rint((numbers - whole) * _MICROS_A_SECOND).astype(np.int64)
    times = whole.astype(np.int64) * _MICROS_A_SECOND + micros
    return times, known & (times >= MIN_US) & (times <= MAX_US)


def _known(column: pa.Array) -> Mask:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    known: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return known


def _of_objects(found: list[Any]) -> tuple[Ints, Mask] | None:
    """Convert timestamps that are all UTC datetimes, all texts, all whole or all floating seconds.

    Returns:
        As `_of_floats`; ``None`` for other and mixed types.
    """
    kinds = set(map(type, found))
    if kinds == {datetime}:
        numbers = microseconds_of(found)
        return None if numbers is None else (numbers, np.ones(len(numbers), np.bool_))
    if kinds == {float}:
        return _of_floats(pa.array(found, pa.float64()))
    if kinds == {str}:
        return _of_texts(pa.array(found, pa.string()))
    if kinds == {int} and all(-(1 << 62) < number < (1 << 62) for number in found):
        return _of_column(pa.array(found, pa.int64()))
    return None
