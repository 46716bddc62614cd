"""Operators over many items at a time: functions of Arrow batches, records, and combined keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
from typing_extensions import override

from flow.checks import check_whole
from flow.columns.arrow_types import RecordBatch
from flow.dataflow import Operator, Stream
from flow.errors import shorten
from flow.operators.building import add_step, check_callable

X = TypeVar("X")

Record: TypeAlias = dict[str, Any]
"""An item as a dict of named columns."""


@dataclass(frozen=True)
class MapBatches(Operator):
    """Call a function for batches of items.

    Attributes:
        function: a function of a record batch, which returns a batch or a table of as many rows.
        size: the greatest number of rows of a batch; ``None`` for no limit.
    """

    function: Callable[[RecordBatch], Any]
    size: int | None


@dataclass(frozen=True)
class ToRecords(Operator):
    """Turn each item into the record that a sink of tables writes for it."""


def map_batches(
    step_id: str,
    up: Stream[X],
    fn: Callable[[RecordBatch], RecordBatch],
    *,
    size: int | None = None,
) -> Stream[Any]:
    """Turn items into records with a function over Arrow batches, such as a model's ``predict``.

    The function gets a `pyarrow.RecordBatch` with a row for each item, and returns a batch or a
    table with the new item of each row, in the same order. Records from files, data frames and
    windows stay columns. Objects become columns once, with the types of their values: dicts and
    dataclasses by field, other items as the column ``value``.

    In a keyed stream the rows are the values, and the keys stay.

    The rows of a batch are items of one epoch and task that happened to come together, so a
    function must compute each row from that row alone. Then results do not depend on the cut of
    the input into epochs.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read.
        fn: called with each batch; returns as many rows.
        size: the greatest number of rows of a batch; by default, all that come together.

    Raises:
        FlowTypeError, FlowBuildError: when an argument is invalid.

    Example:
        >>> import flow.operators as op
        >>> import pyarrow.compute as pc
        >>> from flow.testing import run_once
        >>> def with_area(batch):
        ...     return batch.append_column("area", pc.multiply(batch["a"], batch["b"]))
        >>> run_once([{"a": 2, "b": 3}], lambda s: op.map_batches("area", s, with_area))
        [{'a': 2, 'b': 3, 'area': 6}]
    """
    check_callable(step_id, "fn", fn)
    if size is not None:
        check_whole(f"step {shorten(step_id)}: size", size, 1)
    return add_step(step_id, MapBatches(fn, size), up)[0]


def records(step_id: str, up: Stream[Any]) -> Stream[Record]:
    """Turn each item into a record, a dict with the columns that a sink of tables writes for it.

    For a result of a window these are ``key``, ``window_id``, ``open_time``, ``close_time``,
    ``merged_ids``, ``is_retraction`` and the results by name, or ``value`` for a result without a
    name. For any other item they are those of `flow.connectors.sink.to_record`. Results of windows
    that run over columns stay columns, which a sink writes as they are, and `key_on` and further
    windows read.

    Args:
        step_id: the step's id, unique in the flow.
        up: the stream to read, such as ``hourly.down`` or ``hourly.late``.

    Example:
        >>> import flow.operators as op
        >>> import flow_windowing as win
        >>> from flow.testing import run_once
        >>> def flights_per_hour(departures):
        ...     clock, hours = win.EventClock("at", "10m"), win.TumblingWindower("1h")
        ...     keyed = op.key_on("by_airport", departures, "airport")
        ...     hourly = win.aggregate_window("hourly", keyed, clock, hours, n=win.Count())
        ...     return op.records("rows", hourly.down)
        >>> departures = [{"airport": "LHR", "at": 60.0}, {"airport": "LHR", "at": 90.0}]
        >>> (row,) = run_once(departures, flights_per_hour)
        >>> row["key"], f"{row['open_time']:%H:%M}", row["n"]
        ('LHR', '00:00', 2)
    """
    return add_step(step_id, ToRecords(), up)[0]


Combiner: TypeAlias = Callable[[Sequence[str], list[Any]], tuple[list[str], list[Any]]]
"""A function of keys and values of a chunk that returns fewer keys and values."""

RowFilter: TypeAlias = Callable[[pa.Array, pa.RecordBatch], "pa.Array | None"]
"""A function of keys and rows that returns the indices of the rows to keep, ``None`` for all."""


@dataclass(frozen=True)
class Bucket(Operator):
    """Replace the key of each item by its bucket, a part of the key space by a hash of the key.

    The bucket of a key is the same in every version and on every machine.

    Attributes:
        count: the number of buckets.
    """

    count: int


@dataclass(frozen=True)
class Combine(Operator):
    """Combine the items of each chunk into fewer items, before a shuffle.

    The engine chooses the chunks. So a later step must make the same of the combined items, however
    the items were divided into chunks.

    Attributes:
        combiner: combines keys and values.
        row_filter: chooses rows while they are columns, before `combiner`; ``None`` to keep all.
    """

    combiner: Combiner
    row_filter: RowFilter | None = None


@dataclass(frozen=True)
class Rekey(Operator):
    """Replace the key of each item by one key.

    The step is left out if no output needs its items.

    Attributes:
        key: the key.
    """

    key: str

    @property
    @override
    def is_optional(self) -> bool:
        return True
