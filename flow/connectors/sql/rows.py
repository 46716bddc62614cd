"""Items as rows: made in the workers, and sent in chunks to where the flow was started."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from flow.connectors.sink import WriteContext, Written, to_record
from flow.connectors.sql.values import Form
from flow.errors import SinkError, shorten, step_error

CHUNK_ROWS = 5_000
"""Rows that are in memory at a time when an epoch is written, beside their packed form."""

Row: TypeAlias = tuple[Any, ...]
_Shape: TypeAlias = "tuple[Change, tuple[str, ...]]"
_REFUSED = (TypeError, ValueError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Delete:
    """An item that takes a row out of a table again, for sinks with ``mode="upsert"``.

    A window that emits with ``emit="update"`` can take back what it has emitted: map its
    `Retracted` values to this.

    Args:
        record: a record with the columns of the sink's key; what else it holds does not matter.

    >>> Delete({"key": "LHR", "hour": 3}).record["hour"]
    3
    """

    record: Any


class Change(Enum):
    """What is done with a row."""

    PUT = "put"
    DELETE = "delete"


class Alike(NamedTuple):
    """Rows that come one after the other and have the same columns.

    Attributes:
        change: what is done with them.
        columns: the names of their columns.
        rows: the rows.
    """

    change: Change
    columns: tuple[str, ...]
    rows: list[Row]


@dataclass(frozen=True)
class Chunk:
    """Some rows, packed.

    Attributes:
        step_id: the output's step.
        count: how many they are.
        rewinds: how often the run has been set back, see `WriteContext`.
        content: the rows, pickled: unpacked only when it is their turn.
    """

    step_id: str
    count: int
    rewinds: int
    content: bytes

    def unpacked(self) -> list[Alike]:
        """The rows, in order."""
        return [Alike(*one) for one in pickle.loads(self.content)]


@dataclass(frozen=True)
class RowMaker:
    """Makes rows of one worker's items.

    Attributes:
        context: which piece of the output this is.
        form: makes of a value what the driver is given.
        key: the columns of the key; empty when rows are only inserted.
        epoch_columns: the columns for the run and the epoch, if the table has them.
    """

    context: WriteContext
    form: Form
    key: tuple[str, ...]
    epoch_columns: tuple[str, ...]

    def chunks(self, batches: Iterable[Written]) -> Iterator[Chunk]:
        """The items as chunks, in their order."""
        rows = self._rows(batches)
        while some := list(islice(rows, CHUNK_ROWS)):
            yield self._packed(some)

    def _rows(self, batches: Iterable[Written]) -> Iterator[tuple[_Shape, Row]]:
        known: dict[tuple[Change, tuple[Any, ...]], _Shape] = {}
        for item in _items(batches):
            change, record = self._changed(item)
            names = tuple(record)
            shape = known.get((change, names))
            if shape is None:
                self._check_columns(names, item)
                # Sorted, so that records whose fields have another order are alike.
                shape = known[change, names] = (change, tuple(sorted(names)))
            yield shape, self._row(record, shape[1])

    def _changed(self, item: Any) -> tuple[Change, Mapping[Any, Any]]:
        if not isinstance(item, Delete):
            return Change.PUT, self._record(item)
        if not self.key:
            problem = "a Delete needs a sink with mode='upsert', whose key says which row is meant"
            raise step_error(self.context.step_id, problem, item=item)
        record = self._record(item.record)
        self._check_columns(tuple(record), item)
        return Change.DELETE, {name: record[name] for name in self.key}

    def _record(self, item: Any) -> Mapping[Any, Any]:
        if isinstance(item, Mapping):
            return item
        fields = dataclasses.is_dataclass(item) and not isinstance(item, type)
        if fields or (isinstance(item, tuple) and hasattr(item, "_asdict")):
            return to_record(item)
        problem = (
            f"a table is written from records, and this item is a {type(item).__name__}: map the "
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
            problem = f"the names of columns are text, got {shorten(strange[0])}"
        elif taken:
            problem = f"the sink itself fills column {taken[0]!r}: give the field another name"
        elif missing:
            problem = f"the record lacks column {missing[0]!r} of the key {self.key}"
        if problem:
            raise step_error(self.context.step_id, problem, item=item)

    def _row(self, record: Mapping[Any, Any], columns: tuple[str, ...]) -> Row:
        try:
            row = tuple(map(self.form, map(record.__getitem__, columns)))
        except _REFUSED:
            self._explain(record)
            raise
        if self.key and any(record[name] is None for name in self.key):
            problem = f"a column of the key {self.key} is None, which no row can be found by"
            raise step_error(self.context.step_id, problem, item=record)
        return row

    def _explain(self, record: Mapping[Any, Any]) -> None:
        for name, value in record.items():
            try:
                self.form(value)
            except _REFUSED as error:
                raise SinkError(
                    f"step {self.context.step_id!r}: column {name!r} cannot hold "
                    f"{type(value).__name__} {shorten(value)}: {error}"
                ) from error

    def _packed(self, shaped: list[tuple[_Shape, Row]]) -> Chunk:
        marks: Row = ()
        if self.epoch_columns:
            marks = (self.form(self.context.run_id), self.form(self.context.epoch))
        packed = []
        for (change, columns), some in groupby(shaped, itemgetter(0)):
            rows = [row + marks for _, row in some]
            packed.append((change, columns + self.epoch_columns, rows))
        context, content = self.context, pickle.dumps(packed, 5)
        return Chunk(context.step_id, len(shaped), context.rewinds, content)


def _items(batches: Iterable[Written]) -> Iterator[Any]:
    for batch in batches:
        if isinstance(batch, list):
            yield from batch
        else:
            for start in range(0, batch.num_rows, CHUNK_ROWS):
                yield from _dicts(batch.slice(start, CHUNK_ROWS))


def _dicts(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows
