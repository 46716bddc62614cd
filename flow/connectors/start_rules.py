"""Rules by which the start of a live source is taken from the history before it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from flow.columns.arrow_types import RecordBatch
from flow.columns.record_batches import as_objects
from flow.connectors.source import Json
from flow.durations import Duration, duration_us, natural_us
from flow.errors import FlowTypeError, SourceError, TimestampError, shorten
from flow.fields import FieldPath
from flow.instants import from_us, instant_us

Items: TypeAlias = "list[Any] | RecordBatch"
"""Items of a history: objects, or records in columns."""


class StartRule(ABC):
    """Rule of the position at which a live source starts after a history.

    The driver calls `after` for the items of each epoch of the history, before the epoch runs, and
    stores the result in the epoch's offset.
    """

    @property
    @abstractmethod
    def fields(self) -> frozenset[str]:
        """The fields of records that the rule reads."""

    @abstractmethod
    def after(self, position: Json | None, items: Items) -> Json | None:
        """Return the position after more items of the history, as JSON.

        Args:
            position: the position after the items before; ``None`` before the first.
            items: items of the history.
        """

    @abstractmethod
    def start(self, position: Json) -> Any:
        """Return the argument of `Source.starting_at` for the position after all items."""


@dataclass(frozen=True)
class AfterOffsets(StartRule):
    """Rule that starts each partition of a topic after its greatest offset in the history.

    No message is missed or repeated. Partitions that the history does not have start at their
    earliest offset.

    Args:
        topic: field of the history with the name of the topic.
        partition: field with the number of the partition.
        offset: field with the offset.

    >>> rule = AfterOffsets()
    >>> position = rule.after(None, [{"topic": "orders", "partition": 0, "offset": 16}])
    >>> rule.start(position)
    {'orders': {0: 17}}
    """

    _: KW_ONLY
    topic: str = "topic"
    partition: str = "partition"
    offset: str = "offset"

    def __post_init__(self) -> None:
        for name in ("topic", "partition", "offset"):
            _check_field(f"AfterOffsets: {name}", getattr(self, name))

    @property
    def _paths(self) -> tuple[FieldPath, FieldPath, FieldPath]:
        return FieldPath(self.topic), FieldPath(self.partition), FieldPath(self.offset)

    @property
    @override
    def fields(self) -> frozenset[str]:
        return frozenset().union(*(path.record_fields for path in self._paths))

    @override
    def after(self, position: Json | None, items: Items) -> Json | None:
        found = {topic: dict(offsets) for topic, offsets in (position or {}).items()}
        for topic, partition, offset in self._greatest(items):
            if not (isinstance(topic, str) and _is_number(partition) and _is_number(offset)):
                raise SourceError(
                    "AfterOffsets needs a topic, a partition and an offset in each item of the "
                    f"history, got {shorten((topic, partition, offset))}"
                )
            offsets = found.setdefault(topic, {})
            offsets[str(partition)] = max(offset + 1, offsets.get(str(partition), 0))
        return found or None

    @override
    def start(self, position: Json) -> dict[str, dict[int, int]]:
        return {
            topic: {int(partition): offset for partition, offset in offsets.items()}
            for topic, offsets in position.items()
        }

    def _greatest(self, items: Items) -> Iterable[tuple[Any, Any, Any]]:
        """Return (topic, partition, offset) of items, with the greatest offset of each partition.

        Of objects, all are returned.
        """
        if not isinstance(items, pa.RecordBatch):
            return zip(*(list(_values(items, path)) for path in self._paths), strict=True)
        columns = [_column(items, path) for path in self._paths]
        table = pa.table(columns, names=["topic", "partition", "offset"])
        greatest = table.group_by(["topic", "partition"]).aggregate([("offset", "max")])
        rows = greatest.select(["topic", "partition", "offset_max"])
        return zip(*(column.to_pylist() for column in rows.columns), strict=True)


@dataclass(frozen=True)
class FromTime(StartRule):
    """Rule that starts a source at the greatest timestamp of the history, less an overlap.

    The messages of the overlap come twice if the history has them too: drop repeated ones by an id,
    with `win.dedup`. One wrong timestamp in the future would skip messages; where the history has
    offsets, use `AfterOffsets`.

    Args:
        field: field of the history with the time by which the live source finds its start; for
            Kafka, the timestamp of messages. Items without a value do not count.
        overlap: at least the time by which a message may be older than another one that the history
            got before it.

    >>> rule = FromTime("at", overlap="5m")
    >>> rule.start(rule.after(None, [{"at": "2024-05-01T12:00:00Z"}])).isoformat()
    '2024-05-01T11:55:00+00:00'
    """

    field: str
    overlap: Duration = "0s"

    def __post_init__(self) -> None:
        _check_field("FromTime: field", self.field)
        natural_us(self.overlap, "FromTime: overlap")

    @property
    @override
    def fields(self) -> frozenset[str]:
        return FieldPath(self.field).record_fields

    @override
    def after(self, position: Json | None, items: Items) -> Json | None:
        known = [] if position is None else [int(position)]
        return max([*known, *self._times_us(items)], default=None)

    @override
    def start(self, position: Json) -> datetime:
        start_us = int(position) - duration_us(self.overlap)
        # The times of messages have milliseconds, without the rest.
        return from_us(start_us - start_us % 1_000)

    def _times_us(self, items: Items) -> Iterator[int]:
        """Yield times of items in µs, at least the greatest."""
        path = FieldPath(self.field)
        if isinstance(items, pa.RecordBatch):
            values: Iterable[Any] = _greatest_times(_column(items, path))
        else:
            values = _values(items, path)
        for value in values:
            if value is None:
                continue
            try:
                yield instant_us(value)
            except TimestampError as error:
                raise SourceError(f"FromTime({self.field!r}): {error}") from None


def _greatest_times(column: pa.Array) -> list[Any]:
    """Return the greatest value of a column of instants or numbers; of other columns, all."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        exact = column.cast(pa.timestamp("us", kind.tz), safe=False)
        return as_objects(pa.array([pc.max(exact)], exact.type))
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return [pc.max(column).as_py()] if is_number else as_objects(pc.unique(column))


def _column(batch: RecordBatch, path: FieldPath) -> pa.Array:
    column = path.column_in(batch)
    if column is None:
        names = shorten(batch.schema.names)
        raise SourceError(f"the history has no field {path.text!r}; its records have {names}")
    return column


def _values(items: Iterable[Any], path: FieldPath) -> Iterator[Any]:
    for item in items:
        try:
            yield path.value_in(item)
        except KeyError:
            raise SourceError(
                f"the history has no field {path.text!r} in {shorten(item)}"
            ) from None


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_field(name: str, value: object) -> None:
    if not isinstance(value, str) or not FieldPath(value).is_valid:
        raise FlowTypeError(f"{name} must be the name of a field, got {shorten(value)}")
