"""The encoding of values in a segment: columns of plain values, else a pickle of each.

The values of several streams have columns for each stream, if the columns differ. A restored value
is decoded on first use. Until then it is a `ColumnValue` or a `PickledValue`, which a segment
writer encodes again without decoding it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints
from flow.columns.plain_columns import Plain, PlainColumns

SidedPlain: TypeAlias = tuple[bytes, tuple[Plain, ...]]
"""Values of several streams: the side of each value, a byte, and the columns of each side.

A side's columns are in the order of its values."""
EncodedValues: TypeAlias = "list[bytes] | Plain | SidedPlain"
"""Values as plain data: a pickle of each, columns, or columns of each side."""


class PickledValue:
    """A value that has not been unpickled yet."""

    __slots__ = ("content",)

    def __init__(self, content: bytes) -> None:
        self.content = content

    def value(self) -> Any:
        """Return the value, unpickled anew at each call."""
        return pickle.loads(self.content)


class ColumnValue:
    """A value that is a row of columns."""

    __slots__ = ("columns", "row")

    def __init__(self, columns: PlainColumns, row: int) -> None:
        self.columns = columns
        self.row = row

    def value(self) -> Any:
        """Return the value, made anew at each call."""
        return self.columns.value(self.row)


def encode_values(values: Sequence[Any]) -> EncodedValues:
    """Encode values, some of which may be encoded already."""
    columns = to_plain_columns(values)
    return pickle_values(values) if columns is None else columns.encoded()


def pickle_values(values: Sequence[Any]) -> list[bytes]:
    """Return a pickle of each value."""
    return [
        one.content
        if type(one) is PickledValue
        else pickle.dumps(one.value() if type(one) is ColumnValue else one, 5)
        for one in values
    ]


def to_plain_columns(values: Sequence[Any]) -> PlainColumns | None:
    """Return values as columns; ``None`` if they differ in shape or are not plain."""
    decoded = [at for at, value in enumerate(values) if type(value) is not ColumnValue]
    parts = [(PlainColumns.of([values[at] for at in decoded]), decoded)] if decoded else []
    for columns, indices, rows in _by_columns(values):
        parts.append((columns.take(np.array(rows)), indices))
    plain = [columns for columns, _ in parts if columns is not None]
    if not plain or len(plain) < len(parts):
        return None
    first, *others = plain
    if not all(map(first.has_layout_of, others)):  # Together they may still be of one shape.
        return PlainColumns.of(decode_lazy(values))
    order = np.concatenate([np.array(indices, np.int64) for _, indices in parts])
    return first.concatenate(others).take(np.argsort(order, kind="stable"))


def lazy_values(content: EncodedValues) -> list[Any]:
    """Return values that `decode_lazy` decodes, without decoding them."""
    if isinstance(content, list):
        return [PickledValue(one) for one in content]
    return _in_order(content, _column_values)


def decode_lazy(values: Sequence[Any]) -> list[Any]:
    """Return values after decoding those that `lazy_values` made; other values are unchanged."""
    kinds = set(map(type, values))
    if PickledValue not in kinds and ColumnValue not in kinds:
        return list(values)
    decoded = [one.value() if type(one) is PickledValue else one for one in values]
    for columns, indices, rows in _by_columns(values):
        for index, value in zip(indices, columns.take(np.array(rows)).values(), strict=True):
            decoded[index] = value
    return decoded


def decode_values(content: EncodedValues, load: Callable[[bytes], Any] = pickle.loads) -> list[Any]:
    """Decode all values at once.

    Args:
        content: values that `encode_values` returned.
        load: reads a pickle.
    """
    if isinstance(content, list):
        return [load(one) for one in content]
    return _in_order(content, PlainColumns.values)


def slice_values(content: EncodedValues, rows: slice) -> EncodedValues:
    """Return a slice of encoded values without decoding any of them."""
    if isinstance(content, list):
        return content[rows]
    if rows.start == rows.stop:
        return []
    if len(content) == 2:
        return _slice_sided(content, rows)
    return PlainColumns.decoded(content).take(rows).encoded()


def sides_of(content: Plain | SidedPlain) -> tuple[Ints | None, list[PlainColumns]]:
    """Return the side of each value, ``None`` for columns of all sides, and the columns."""
    if len(content) == 3:
        return None, [PlainColumns.decoded(content)]
    sides, columns = content
    return np.frombuffer(sides, np.int8).astype(np.int64), list(map(PlainColumns.decoded, columns))


def _in_order(
    content: Plain | SidedPlain, values_of: Callable[[PlainColumns], Sequence[Any]]
) -> list[Any]:
    """Return the values that `values_of` makes of columns, in the order of all values."""
    sides, columns = sides_of(content)
    if sides is None:
        return list(values_of(columns[0]))
    remaining = [iter(values_of(one)) for one in columns]
    return [next(remaining[side]) for side in sides.tolist()]


def _slice_sided(content: SidedPlain, rows: slice) -> SidedPlain:
    sides, columns = content
    begin, end = sides[: rows.start], sides[: rows.stop]
    parts = [
        PlainColumns.decoded(one).take(slice(begin.count(side), end.count(side))).encoded()
        for side, one in enumerate(columns)
    ]
    return sides[rows], tuple(parts)


def _column_values(columns: PlainColumns) -> list[ColumnValue]:
    return [ColumnValue(columns, row) for row in range(len(columns))]


def _by_columns(values: Sequence[Any]) -> list[tuple[PlainColumns, list[int], list[int]]]:
    """Group the column values by their columns, as (columns, indices in `values`, rows)."""
    entries: dict[int, tuple[PlainColumns, list[int], list[int]]] = {}
    for index, value in enumerate(values):
        if type(value) is ColumnValue:
            entry = entries.get(id(value.columns))
            if entry is None:
                entry = entries[id(value.columns)] = (value.columns, [], [])
            entry[1].append(index)
            entry[2].append(value.row)
    return list(entries.values())


def decode_column(contents: list[bytes], kind: str = "<i8") -> Ints:
    """Return a column of several segments, one after the other, as int64."""
    return np.frombuffer(b"".join(contents), kind).astype(np.int64)


def decode_or_default(contents: list[bytes], counts: list[int], default: int) -> Ints:
    """Return a column of several segments; an empty column of a segment has the default.

    Args:
        contents: the column in each segment.
        counts: the number of rows in each segment.
        default: the default.
    """
    pieces = [
        np.frombuffer(content, "<i8") if content else np.full(count, default, np.int64)
        for content, count in zip(contents, counts, strict=True)
    ]
    return np.concatenate(pieces).astype(np.int64) if pieces else np.empty(0, np.int64)


def encode_column(values: Ints, kind: str = "<i8") -> bytes:
    """Return a column as bytes."""
    return values.astype(kind).tobytes()


def encode_unless_default(values: Ints, default: int) -> bytes:
    """Return a column as bytes; empty if all elements are the default."""
    return b"" if (values == default).all() else encode_column(values)


def encode_texts(texts: pa.Array) -> tuple[Ints, bytes]:
    """Return the bounds of each text in bytes, and the texts in UTF-8."""
    _, offsets, content = texts.buffers()
    ends = np.frombuffer(offsets, "<i8", len(texts) + 1, texts.offset * 8)
    if content is None:
        return ends - ends[0], b""
    first, last = int(ends[0]), int(ends[-1])
    return ends - first, content.slice(first, last - first).to_pybytes()


def decode_texts(
    lengths: list[bytes], texts: list[bytes], validity: pa.Buffer | None = None
) -> pa.Array:
    """Return texts of several segments, as Arrow large text.

    Args:
        lengths: the length of each text in bytes, int32, of each segment.
        texts: the texts in UTF-8, one after the other, of each segment.
        validity: the bitmap of texts that are not null.

    Raises:
        ValueError: when the lengths do not add up to the bytes.
    """
    sizes = np.frombuffer(b"".join(lengths), "<i4")
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    content = b"".join(texts)
    if int(sizes.min(initial=0)) < 0 or offsets[-1] != len(content):
        # Arrow would read beyond the texts.
        raise ValueError(f"its texts have {len(content)} bytes, and their lengths do not add up")
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.large_string(), len(sizes), buffers)
