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
from flow.instants import MAX_US, MIN_US, UNITS_US, TimeForm, offset_in_hour_us
from flow_windowing.columnar.values.records import Values

_HOUR_US = 3_600_000_000
_LOCAL_TEXT = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?"
_USUAL_TEXTS = {"UTC": f"{_LOCAL_TEXT}(Z|[+-]\\d\\d(:?\\d\\d)?)$", None: f"{_LOCAL_TEXT}$"}
"""The form of ISO 8601 that Arrow reads, with and without an offset; `datetime.fromisoformat` reads
others too."""


def read_times(values: Values, getter: Any, form: TimeForm) -> tuple[Ints, Mask] | None:
    """Return the timestamps of values, int64 µs, and the mask of those that could be read.

    The caller has to read the others one by one, with `EventClock.timestamp_us`.

    Args:
        values: the values.
        getter: a field's path, or a function of a value.
        form: the unit of numbers, and the time zone of naive times.

    Returns:
        Two arrays of shape (values,); ``None`` when all timestamps have to be read one by one.
    """
    if isinstance(values, pa.RecordBatch):
        column = field_path(getter).column_in(values) if isinstance(getter, str) else None
        return None if column is None else _of_column(column, form)
    if isinstance(values, SidedRecords):
        return _of_sides(values, getter, form) or read_times(values.records(), getter, form)
    get = itemgetter(getter) if isinstance(getter, str) else getter
    if isinstance(getter, str) and not all(type(value) is dict for value in values):
        return None
    try:
        return _of_objects(list(map(get, values)), form)
    except RAISED:  # The caller then reads the values one by one, and names the value at fault.
        return None


def _of_sides(values: SidedRecords, getter: Any, form: TimeForm) -> tuple[Ints, Mask] | None:
    """Return the timestamps of the records of several streams; ``None`` unless columns have all."""
    times, is_known = np.zeros(len(values), np.int64), np.zeros(len(values), np.bool_)
    for side in range(len(values.batches)):
        chosen, batch = values.of_side(side)
        read = read_times(batch, getter, form) if len(chosen) else None
        if read is not None:
            times[chosen], is_known[chosen] = read
        elif len(chosen):
            return None
    return times, is_known


def _of_column(column: pa.Array, form: TimeForm) -> tuple[Ints, Mask] | None:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _of_timestamps(column, form)
    if pa.types.is_integer(kind):
        return _of_whole(column, form.unit)
    if pa.types.is_floating(kind):
        return _of_floats(column, form.unit)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _of_texts(column, form)
    return None


def _of_timestamps(column: pa.Array, form: TimeForm) -> tuple[Ints, Mask] | None:
    """Convert timestamps; those without a time zone only if the form has one."""
    kind = column.type
    if kind.tz is None and form.zone is None:
        return None
    unit = kind.unit
    if unit == "ns":
        column = pc.floor_temporal(column.cast(pa.timestamp("ns")), unit="microsecond")
        column, unit = column.cast(pa.timestamp("us")), "us"
    times, known = _scaled(column.cast(pa.int64()), UNITS_US[unit])
    if kind.tz is not None:
        return times, known
    hours, hour_of_row = np.unique(times // _HOUR_US, return_inverse=True)
    # Arrow knows no change of clocks after 2037, so its own conversion is not used.
    offsets = [offset_in_hour_us(form.zone, hour) for hour in hours.tolist()]
    has_offset = np.array([offset is not None for offset in offsets], np.bool_)
    times = times - np.array([offset or 0 for offset in offsets], np.int64)[hour_of_row]
    return times, known & has_offset[hour_of_row] & (times >= MIN_US) & (times <= MAX_US)


def _of_texts(column: pa.Array, form: TimeForm) -> tuple[Ints, Mask] | None:
    """Convert ISO 8601 texts; ``None`` if one in the usual form is no time, as on 30 February."""
    read = _of_usual_texts(column, form, "UTC")
    if read is None or form.zone is None or read[1].all():
        return read
    local = _of_usual_texts(column, form, None)
    return None if local is None else (np.where(local[1], local[0], read[0]), local[1] | read[1])


def _of_usual_texts(column: pa.Array, form: TimeForm, tz: str | None) -> tuple[Ints, Mask] | None:
    """Convert the texts that have an offset, or with `tz` ``None`` those that have none."""
    for is_filtered in (False, True):
        if is_filtered:
            is_usual = pc.match_substring_regex(column, _USUAL_TEXTS[tz])
            column = pc.if_else(is_usual, column, None)
        for unit in ("ns", "us"):  # Nanoseconds end in 2262, and microseconds have six digits.
            with contextlib.suppress(pa.ArrowInvalid):
                return _of_timestamps(column.cast(pa.timestamp(unit, tz)), form)
    return None


def _of_whole(column: pa.Array, unit: str) -> tuple[Ints, Mask]:
    """Convert whole numbers of a unit to µs, and round nanoseconds down."""
    if column.type == pa.uint64():
        column = pc.min_element_wise(column, pa.scalar((1 << 63) - 1, pa.uint64()))
    if unit != "ns":
        return _scaled(column.cast(pa.int64()), UNITS_US[unit])
    numbers = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    # A greater number may have been cut off.
    return numbers // 1_000, _known(column) & (numbers < (1 << 63) - 1)


def _scaled(column: pa.Array, factor: int) -> tuple[Ints, Mask]:
    known = _known(column)
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    known &= (numbers >= MIN_US // factor) & (numbers <= MAX_US // factor)
    return numbers if factor == 1 else np.where(known, numbers, 0) * factor, known


def _of_floats(column: pa.Array, unit: str) -> tuple[Ints, Mask]:
    """Convert floating numbers of a unit to µs, as `flow.instants.instant_us` does.

    Returns:
        The timestamps, int64 µs, and the mask of those that could be read; both of shape (rows,).
    """
    numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    known, factor = _known(column) & np.isfinite(numbers), UNITS_US.get(unit, 1)
    numbers = np.where(known, numbers, 0.0)
    if unit == "ns":
        numbers = np.floor_divide(numbers, 1_000)
    known &= np.abs(numbers) < MAX_US / factor
    numbers = np.where(known, numbers, 0.0)
    whole = np.floor(numbers)
    micros = np.rint((numbers - whole) * factor).astype(np.int64)
    times = whole.astype(np.int64) * factor + micros
    return times, known & (times >= MIN_US) & (times <= MAX_US)


def _known(column: pa.Array) -> Mask:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    known: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return known


def _of_objects(found: list[Any], form: TimeForm) -> tuple[Ints, Mask] | None:
    """Convert timestamps that are all UTC or naive datetimes, all texts, all ints or all floats.

    Returns:
        As `_of_floats`; ``None`` for other and mixed types.
    """
    kinds = set(map(type, found))
    zones = {time.tzinfo for time in found} if kinds == {datetime} else set()
    if zones and (form.zone is None or zones != {None}):
        numbers = microseconds_of(found)
        return None if numbers is None else (numbers, np.ones(len(numbers), np.bool_))
    kind = _OF_OBJECTS.get(*kinds) if len(kinds) == 1 else None
    return None if kind is None else _of_column(pa.array(found, kind), form)


_OF_OBJECTS: dict[type, pa.DataType] = {
    datetime: pa.timestamp("us"),
    float: pa.float64(),
    str: pa.string(),
    int: pa.int64(),
}
"""The columns that timestamps become which are objects of one type."""
