"""Rows of items: made in the workers, and sent in chunks to the driver."""

from __future__ import annotations

import dataclasses
import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from flow.connectors.formats.columns import column_of
from flow.connectors.formats.json_encoding import json_text, naive_problem, plain
from flow.connectors.sink import WriteContext, Written, to_record
from flow.errors import SinkError, shorten, step_error

ValueConverter: TypeAlias = Callable[[Any], Any]
"""Conversion of a value to a database driver's form; raises ValueError or TypeError."""

_BITS = 63


def by_type(own: Mapping[type, ValueConverter]) -> ValueConverter:
    """Return a converter of all values, given a database's own converters of some types.

    Values of other types are first laid out as in JSON lines: enums become their values, and
    dataclasses, sets and tuples become dicts and lists.

    Args:
        own: converter of each type, beside or in place of those that databases share; a subclass
            comes before its base.
    """
    converters = {**own, **_SHARED, **own}

    def convert(value: Any) -> Any:
        converter = converters.get(type(value))
        if converter is not None:
            return converter(value)
        if isinstance(value, (np.datetime64, np.timedelta64)):
            raise TypeError("map it to an aware datetime, or to a timedelta")
        laid_out = plain(value)
        for kind, converter in converters.items():
            if isinstance(laid_out, kind):
                return converter(laid_out)
        raise TypeError("no column can hold it: map it to text, numbers, lists or dicts")

    return convert


def unchanged(value: Any) -> Any:
    """Return the value itself."""
    return value


def int64(value: int) -> int:
    """Return a whole number if it fits 64 bits, the widest integer type of a database."""
    if not -(1 << _BITS) <= value < 1 << _BITS:
        raise ValueError("it exceeds 64 bits: map it to a Decimal or to text")
    return int(value)


def finite_float(value: float) -> float:
    """Return a float if it is finite, as databases differ on other floats."""
    if not math.isfinite(value):
        raise ValueError("it is not a finite number: map it to None or to text")
    return float(value)


def decimal_text(value: Decimal) -> str:
    """Return all digits of a decimal number."""
    if not value.is_finite():
        raise ValueError("it is not a finite number: map it to None or to text")
    return str(value)


def utf8_text(value: str) -> str:
    """Return a text if it can be encoded as UTF-8."""
    if not value.isascii():
        value.encode()
    return value


def to_utc(value: datetime) -> datetime:
    """Return an aware datetime in UTC."""
    if value != value:  # NaT of pandas is an instance of datetime.
        raise ValueError("it is not a time: map it to None")
    if value.utcoffset() is None:
        raise ValueError(naive_problem("it"))
    return value.astimezone(UTC)


_SHARED: dict[type, ValueConverter] = {
    type(None): unchanged,
    int: int64,
    float: finite_float,
    str: utf8_text,
    bytes: unchanged,
    bytearray: bytes,
    memoryview: bytes,
    date: date.isoformat,
    time: time.isoformat,
    Decimal: decimal_text,
    dict: json_text,
    list: json_text,
}

CHUNK_ROWS = 5_000
"""Rows in memory at a time while an epoch is written, beside their pickled form."""

Row: TypeAlias = tuple[Any, ...]
_Shape: TypeAlias = "tuple[Change, tuple[str, ...]]"
_Record: TypeAlias = Mapping[Any, Any]
_FIX = "give its column a type that holds it, or map the items before the output"
_REFUSED = (TypeError, ValueError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Delete:
    """Item that deletes a row, for sinks with ``mode="upsert"``.

    A window with ``emit="update"`` can retract results: map the records of `flow.operators.records`
    whose ``is_retraction`` is True to this.

    Args:
        record: record with the columns of the sink's key; other fields are ignored.

    >>> Delete({"key": "LHR", "hour": 3}).record["hour"]
    3
    """

    record: Any


class Change(Enum):
    """Change of a row."""

    PUT = "put"
    DELETE = "delete"


class RowGroup(NamedTuple):
    """Consecutive rows with the same columns and the same change.

    Attributes:
        change: change of the rows.
        columns: names of their columns.
        rows: the rows.
    """

    change: Change
    columns: tuple[str, ...]
    rows: list[Row]


@dataclass(frozen=True)
class Chunk:
    """Rows of one partition and epoch, pickled.

    Attributes:
        step_id: id of the output's step.
        count: number of rows.
        rewinds: the number of times that the run was set back, see `WriteContext`.
        content: the rows, pickled, so that one chunk at a time is in memory as objects.
    """

    step_id: str
    count: int
    rewinds: int
    content: bytes

    def unpack(self) -> list[RowGroup]:
        """Return the rows, in order."""
        return [RowGroup(*one) for one in pickle.loads(self.content)]


@dataclass(frozen=True)
class RowMaker:
    """Conversion of one worker's items to rows.

    Attributes:
        context: position in the output.
        convert: function that turns a value into the database driver's form.
        key: columns of the key; empty if rows are only inserted.
        epoch_columns: columns of the run and the epoch; empty if the table has none.
        numbers: the columns of a schema whose values a database might round.
    """

    context: WriteContext
    convert: ValueConverter
    key: tuple[str, ...]
    epoch_columns: tuple[str, ...]
    numbers: Sequence[Any]

    def chunks(self, batches: Iterable[Written]) -> Iterator[Chunk]:
        """Yield the items as chunks, in order."""
        rows = self._rows(batches)
        while some := list(islice(rows, CHUNK_ROWS)):
            for column in self.numbers:
                values = [record.get(column.name) for *_, record in some]
                column_of(column.name, values, column.type, self.context.step_id, _FIX)
            yield self._pack(some)

    def _rows(self, batches: Iterable[Written]) -> Iterator[tuple[_Shape, Row, _Record]]:
        known: dict[tuple[Change, tuple[Any, ...]], _Shape] = {}
        for item in _items(batches):
            change, record = self._change_of(item)
            names = tuple(record)
            shape = known.get((change, names))
            if shape is None:
                self._check_columns(names, item)
                # Sorted, so that records with the same fields in another order share a group.
                shape = known[change, names] = (change, tuple(sorted(names)))
            yield shape, self._row(record, shape[1]), record

    def _change_of(self, item: Any) -> tuple[Change, _Record]:
        if not isinstance(item, Delete):
            return Change.PUT, self._record(item)
        if not self.key:
            problem = "a Delete needs a sink with mode='upsert', whose key identifies the row"
            raise step_error(self.context.step_id, problem, item=item)
        record = self._record(item.record)
        self._check_columns(tuple(record), item)
        return Change.DELETE, {name: record[name] for name in self.key}

    def _record(self, item: Any) -> _Record:
        if isinstance(item, Mapping):
            return item
        fields = dataclasses.is_dataclass(item) and not isinstance(item, type)
        if fields or (isinstance(item, tuple) and hasattr(item, "_asdict")):
            return to_record(item)
        problem = (
            f"items of a table must be records, but this item is a {type(item).__name__}: map the "
            "items to dicts with the names of the columns before the output"
        )
        raise step_error(self.context.step_id, problem, item=item)

    def _check_columns(self, names: tuple[Any, ...], item: Any) -> None:
        problem = ""
        strange = [name for name in names if not isinstance(name, str)]
        taken = [name for name in names if name in self.epoch_columns]
        missing = [name for name in self.key if name not in names]
        if not names:
            problem = "the record has no field to write"
        elif strange:
            problem = f"names of columns must be text, got {shorten(strange[0])}"
        elif taken:
            problem = f"the sink itself fills column {taken[0]!r}: give the field another name"
        elif missing:
            problem = f"the record lacks column {missing[0]!r} of the key {self.key}"
        if problem:
            raise step_error(self.context.step_id, problem, item=item)

    def _row(self, record: _Record, columns: tuple[str, ...]) -> Row:
        try:
            row = tuple(map(self.convert, map(record.__getitem__, columns)))
        except _REFUSED:
            self._explain(record)
            raise
        if self.key and any(record[name] is None for name in self.key):
            problem = f"a column of the key {self.key} is None, which identifies no row"
            raise step_error(self.context.step_id, problem, item=record)
        return row

    def _explain(self, record: _Record) -> None:
        for name, value in record.items():
            try:
                self.convert(value)
            except _REFUSED as error:
                raise SinkError(
                    f"step {self.context.step_id!r}: column {name!r} cannot hold "
                    f"{type(value).__name__} {shorten(value)}: {error}"
                ) from error

    def _pack(self, shaped: list[tuple[_Shape, Row, _Record]]) -> Chunk:
        marks: Row = ()
        if self.epoch_columns:
            marks = (self.convert(self.context.run_id), self.convert(self.context.epoch))
        groups = []
        for (change, columns), some in groupby(shaped, itemgetter(0)):
            rows = [row + marks for _, row, _ in some]
            groups.append((change, columns + self.epoch_columns, rows))
        context, content = self.context, pickle.dumps(groups, 5)
        return Chunk(context.step_id, len(shaped), context.rewinds, content)


def _items(batches: Iterable[Written]) -> Iterator[Any]:
    for batch in batches:
        if isinstance(batch, list):
            yield from batch
        else:
            for start in range(0, batch.num_rows, CHUNK_ROWS):
                yield from batch.slice(start, CHUNK_ROWS).to_pylist()
