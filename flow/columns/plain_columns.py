"""Python values of one plain shape, such as pairs of a time and a number, as columns.

Values that are alike, made of times, numbers, texts and `None` alone, take a tenth of the time that
a pickle of each would, and half of that of a pickle of all; any of them can be cut out without
reading the others, and reading them runs no code. All other values are pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise, repeat
from operator import attrgetter, is_, itemgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flow.columns.arrays import Ints, Mask
from flow.instants import EPOCH

Column: TypeAlias = npt.NDArray[Any]
Shape: TypeAlias = "int | tuple[str, ...] | None"
"""What a value is: a tuple of so many, a dict with these keys in this order, or the one itself."""
Plain: TypeAlias = tuple[Shape, str, tuple[Any, ...]]
"""Columns as plain data, to be written down: the shape, a letter for each column, their bytes."""

_MOST_COLUMNS = 16
_WIDTHS = {"m": "<i8", "f": "<f8", "i": "<i8", "b": "?", "?": "?"}
_LETTERS: dict[type, str] = {datetime: "m", float: "f", int: "i", bool: "b", str: "s"}
_ANY: dict[str, Any] = {
    "m": EPOCH,
    "f": 0.0,
    "i": 0,
    "b": False,
    "s": "",
}
"""What a column holds where there is nothing."""


@dataclass(frozen=True, eq=False)
class PlainColumns:
    """Values of one shape, in columns.

    Attributes:
        shape: what each of them is.
        letters: what each column holds: ``m`` times in UTC, as microseconds since 1970, ``f``
            floats, ``i`` whole numbers of 64 bits, ``b`` truth values, ``s`` texts, and ``?``
            which values of the next column are there: the others are ``None``.
        columns: the columns; texts are Python objects.
    """

    shape: Shape
    letters: str
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, values: Sequence[Any]) -> PlainColumns | None:
        """Values as columns; ``None`` where they are not alike, or not plain.

        >>> pairs = [("a", 1.5), ("b", 2.5)]
        >>> PlainColumns.of(pairs).values() == pairs
        True
        >>> PlainColumns.of([1, "a"]) is None
        True
        """
        if not values:
            return None
        shape, fields = _fields_of(values)
        if fields is None:
            return None
        letters, columns = "", list[Column]()
        for field in fields:
            letter, absent = _letter_of(field)
            if letter is None:
                return None
            if absent:
                there = [value is not None for value in field]
                letters += "?"
                columns.append(np.array(there, np.bool_))
                field = [_ANY[letter] if value is None else value for value in field]
            column = _COLUMNS[letter](field)
            if column is None:
                return None
            letters += letter
            columns.append(column)
        return cls(shape, letters, tuple(columns))

    @classmethod
    def decoded(cls, plain: Plain) -> PlainColumns:
        """The columns in plain data made by `encoded`, also as it was when times were ``t``."""
        shape, letters, contents = plain
        columns = (
            _READERS[letter](content)
            if letter in _READERS
            else np.frombuffer(content, _WIDTHS[letter])
            for letter, content in zip(letters, contents, strict=True)
        )
        return cls(shape, letters.replace("t", "m"), tuple(columns))

    def __len__(self) -> int:
        return len(self.columns[0])

    def like(self, other: PlainColumns) -> bool:
        """Whether others have the same shape, so that both can be joined."""
        return (self.shape, self.letters) == (other.shape, other.letters)

    def take(self, rows: Ints | Mask | slice) -> PlainColumns:
        """Some of them, in the order given."""
        return PlainColumns(self.shape, self.letters, tuple(one[rows] for one in self.columns))

    def joined(self, others: Sequence[PlainColumns]) -> PlainColumns:
        """These and others of the same shape, one after the other."""
        columns = zip(self.columns, *(other.columns for other in others), strict=True)
        return PlainColumns(self.shape, self.letters, tuple(map(np.concatenate, columns)))

    def values(self) -> list[Any]:
        """The values, made anew."""
        fields = list(self._fields())
        if self.shape is None:
            return fields[0]
        rows = zip(*fields, strict=True)
        if isinstance(self.shape, int):
            return list(rows)
        return [dict(zip(self.shape, row, strict=True)) for row in rows]

    def value(self, row: int) -> Any:
        """One of the values, made anew."""
        fields, there = list[Any](), True
        for letter, column in zip(self.letters, self.columns, strict=True):
            if letter == "?":
                there = bool(column[row])
                continue
            fields.append(_single(letter, column[row]) if there else None)
            there = True
        if self.shape is None:
            return fields[0]
        if isinstance(self.shape, int):
            return tuple(fields)
        return dict(zip(self.shape, fields, strict=True))

    def _fields(self) -> Iterator[list[Any]]:
        """What each field of the values holds."""
        there: list[bool] | None = None
        for letter, column in zip(self.letters, self.columns, strict=True):
            if letter == "?":
                there = column.tolist()
                continue
            field = _times(column) if letter == "m" else column.tolist()
            if there is not None:
                field = [value if one else None for value, one in zip(field, there, strict=True)]
                there = None
            yield field

    def encoded(self) -> Plain:
        """The columns as plain data."""
        contents = (
            _bytes_of_texts(column.tolist()) if letter == "s" else column.tobytes()
            for letter, column in zip(self.letters, self.columns, strict=True)
        )
        return self.shape, self.letters, tuple(contents)


def _fields_of(values: Sequence[Any]) -> tuple[Shape, list[Sequence[Any]] | None]:
    """The shape of values, and what each of their fields holds; ``None`` for no shape."""
    kinds = set(map(type, values))
    if kinds == {tuple}:
        (size, *other_sizes) = set(map(len, values))
        if other_sizes or not 1 <= size <= _MOST_COLUMNS:
            return None, None
        return size, [list(map(itemgetter(place), values)) for place in range(size)]
    if kinds == {dict}:
        (names, *others) = set(map(tuple, values))
        if others or not 1 <= len(names) <= _MOST_COLUMNS or set(map(type, names)) != {str}:
            return None, None
        return names, [list(map(itemgetter(name), values)) for name in names]
    return None, [values]


def _letter_of(field: Sequence[Any]) -> tuple[str | None, bool]:
    """What a column of a field holds, if it can be one, and whether some values are `None`."""
    kinds = set(map(type, field))
    absent = type(None) in kinds
    kinds.discard(type(None))
    if not kinds:
        return "b", absent  # nothing at all is there
    (kind, *others) = kinds
    return None if others else _LETTERS.get(kind), absent


def _column_of_times(field: Sequence[Any]) -> Column | None:
    if any(map(_fold_of, field)):  # which means nothing in UTC, and would be lost
        return None
    return microseconds_of(field)


_zone_of, _fold_of = attrgetter("tzinfo"), attrgetter("fold")


def microseconds_of(times: Sequence[Any]) -> Ints | None:
    """Datetimes as microseconds since 1970; ``None`` unless all of them are in `datetime.UTC`.

    Differences of datetimes are made, and read by Arrow, in a quarter of the time that it takes to
    read the datetimes.
    """
    if not all(map(is_, map(_zone_of, times), repeat(UTC))):
        return None
    since = pa.array([time - EPOCH for time in times], pa.duration("us"))
    numbers: Ints = since.cast(pa.int64()).to_numpy()
    return numbers


def _column_of_numbers(field: Sequence[Any]) -> Column | None:
    try:
        return np.array(field, np.int64)
    except OverflowError:  # more than 64 bits
        return None


def _column_of_texts(field: Sequence[Any]) -> Column:
    column = np.empty(len(field), object)
    column[:] = field
    return column


_COLUMNS: dict[str, Callable[[Sequence[Any]], Column | None]] = {
    "m": _column_of_times,
    "f": lambda field: np.array(field, np.float64),
    "i": _column_of_numbers,
    "b": lambda field: np.array(field, np.bool_),
    "s": _column_of_texts,
}


def _times(column: Column) -> list[datetime]:
    return [EPOCH + since for since in column.view("m8[us]").tolist()]


def _single(letter: str, cell: Any) -> Any:
    if letter == "s":
        return cell
    return EPOCH + timedelta(microseconds=int(cell)) if letter == "m" else cell.item()


def _bytes_of_texts(texts: list[str]) -> tuple[bytes, bytes]:
    """How many characters each text has, 32 bits, and all of them; any text Python can hold."""
    lengths = np.fromiter(map(len, texts), "<i4", len(texts))
    return lengths.tobytes(), "".join(texts).encode("utf-8", "surrogatepass")


def _texts(written: tuple[bytes, bytes]) -> Column:
    lengths, content = written
    text = content.decode("utf-8", "surrogatepass")
    ends = np.cumsum(np.frombuffer(lengths, "<i4"), dtype=np.int64).tolist()
    return _column_of_texts([text[start:end] for start, end in pairwise([0, *ends])])


def _times_of_pickles(content: bytes) -> Column:
    """Times as they were written at first: ten bytes each, as `datetime` pickles them."""
    made: Any = datetime
    starts = range(0, len(content), 10)
    times = microseconds_of([made(content[start : start + 10], UTC) for start in starts])
    return np.zeros(0, np.int64) if times is None else times


_READERS: dict[str, Callable[[Any], Column]] = {"s": _texts, "t": _times_of_pickles}
"""What reads the letters whose bytes are not those of a column."""
