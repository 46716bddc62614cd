"""The base of joins of two streams by time: pairs and their records, the builder, and the shard.

The retained values are `ShardState.buffered`, with tags in the place of arrival numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, distinct
from flow.columns.chunks import KeyedRecords, Pairs, pick
from flow.columns.record_batches import RowView, SidedRecords, register, rows_as_dicts, with_view
from flow.instants import Moment
from flow.keyed.state import BlockReader
from flow.keyed.step import Capabilities, OverColumns
from flow_windowing.clocks.clock import ClockedBuilder
from flow_windowing.columnar.admission.admitted_rows import ArrivingRows, EnteringRows
from flow_windowing.columnar.admission.shard_clocks import ShardClock
from flow_windowing.columnar.state.segments import SegmentContent, without_blocks
from flow_windowing.columnar.state.shard_state import StateForm
from flow_windowing.columnar.state.snapshots import snapshots_of_content
from flow_windowing.columnar.step.clocked_shard import ClockedShard
from flow_windowing.columnar.values.blocks import TAGS, least_of_blocks_us
from flow_windowing.columnar.values.buffered_values import BufferedValues, RetainedValues
from flow_windowing.columnar.values.encoding import decode_lazy
from flow_windowing.columnar.values.records import Values, plain_records
from flow_windowing.columnar.windows.window_view import METADATA, metadata_of, not_retracted
from flow_windowing.rules.key_state import IntervalState, counts_of, side_of, tag_of
from flow_windowing.rules.metadata import CLOSED, DOWN, JoinedPair, WindowMetadata
from flow_windowing.time_joins.interval_matching import LEFT, RIGHT, Interval

KIND = "joined pair"
_SIDES = _LEFT, _RIGHT = "left", "right"


class JoinedRows(NamedTuple):
    """Items of the stream ``down`` in columns; each is a pair, or a value without a partner.

    Attributes:
        slots: the slot of each item's key.
        sides: the side of the value whose interval is the window: the left of a pair.
        times_us: the timestamp of that value, int64 µs.
        latest_us: the greatest timestamp in the item.
        left: the row of each left value, -1 for none.
        right: the row of each right value, -1 for none.
    """

    slots: Ints
    sides: Ints
    times_us: Ints
    latest_us: Ints
    left: Ints
    right: Ints

    def take(self, rows: Ints) -> JoinedRows:
        """Return the items of the given rows, in the given order."""
        return JoinedRows(*(column[rows] for column in self))

    def concat(self, other: JoinedRows) -> JoinedRows:
        """Return these items followed by others."""
        return JoinedRows(*(np.concatenate(both) for both in zip(self, other, strict=True)))


def _decode_used(items: JoinedRows, values: list[Any]) -> None:
    """Decode the values that items refer to where they are, each once."""
    used = distinct(np.sort(np.concatenate([items.left, items.right])))
    rows = used[used >= 0].tolist()
    for row, value in zip(rows, decode_lazy([values[row] for row in rows]), strict=True):
        values[row] = value


@dataclass(frozen=True)
class JoinedView(RowView):
    """Pairs with their windows, ``(WindowMetadata, JoinedPair)``."""

    @override
    def values(self, batch: pa.RecordBatch) -> list[Any]:
        left, right = (_dicts(batch.column(side)) for side in _SIDES)
        return list(zip(metadata_of(batch), map(JoinedPair, left, right), strict=True))

    @override
    def columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        sides = {side: batch.column(side) for side in _SIDES}
        mark = {"is_retraction": not_retracted(batch.num_rows)}
        return {**METADATA.columns(batch), **mark, **sides}


register(KIND, lambda _: JoinedView())


def _joined_records(
    windows: pa.RecordBatch, values: SidedRecords, left: Ints, right: Ints
) -> pa.RecordBatch:
    """Return records of pairs, with a `JoinedView`.

    Args:
        windows: the windows, as `WindowView.records` returns them.
        values: the values that the pairs refer to; the columns of both sides are known.
        left: the index of each left value; -1 for none.
        right: the index of each right value; -1 for none.
    """
    sides = (_side(values, side, indices) for side, indices in enumerate((left, right)))
    columns = [*windows.columns, *sides]
    batch = pa.RecordBatch.from_arrays(columns, names=[*windows.schema.names, *_SIDES])
    return with_view(batch, KIND, None)


def _side(values: SidedRecords, side: int, indices: Ints) -> pa.Array:
    """Return the records of a side's values as structs; null for the index -1."""
    is_none = indices < 0
    rows = pa.array(np.append(values.rows, 0)[indices], mask=is_none if is_none.any() else None)
    return values.batches[side].to_struct_array().take(rows)


def _dicts(structs: pa.StructArray) -> list[Any]:
    """Return structs as dicts, nulls as ``None``."""
    dicts: list[Any] = rows_as_dicts(pa.RecordBatch.from_struct_array(structs))
    if structs.null_count:
        is_none = structs.is_null().to_pylist()
        return [None if none else one for none, one in zip(is_none, dicts, strict=True)]
    return dicts


class TimeJoinBuilder(ClockedBuilder, ABC):
    """A builder of a join whose retained values are those of an `IntervalState`."""

    has_keyed_form = False

    @abstractmethod
    @override
    def lower(self) -> OverColumns:
        """Return the lowering to columns."""

    @property
    @override
    def capabilities(self) -> Capabilities:
        return super().capabilities._replace(counter=counts_of)

    @override
    def snapshots_in(
        self, content: bytes, take: BlockReader
    ) -> Iterable[tuple[str, IntervalState, int]]:
        return snapshots_of_content(without_blocks(SegmentContent.decode(content), take))

    @override
    def view(self, snapshot: IntervalState, moment: Moment) -> dict[str, Any]:
        sides: tuple[list[Any], list[Any]] = ([], [])
        for _, tag, value in sorted(snapshot.retained, key=lambda one: one[:2]):
            sides[side_of(tag)].append(value)
        return {
            "watermark": self.watermark(snapshot, moment),
            "left": sides[LEFT],
            "right": sides[RIGHT],
        }


class JoinShard(ClockedShard):
    """The clocks and retained values of the keys of a shard.

    Args:
        clock: the clock.
        interval: the interval in which left values have partners.
    """

    _retains_records = True
    """True if records are retained as they are, and not parts of them."""

    def __init__(self, clock: ShardClock[Any], interval: Interval) -> None:
        super().__init__(StateForm("interval", clock), 2, interval.grace_us)
        self._interval = interval

    @override
    def _missed_windows(
        self, late: EnteringRows, values: list[Any]
    ) -> Sequence[tuple[WindowMetadata, ...]]:
        sides = np.array([side for side, _ in values], np.int64)
        return [(window,) for window in self._interval.windows_of(sides, late.times_us)]

    @abstractmethod
    def _is_pending(self, tags: Ints) -> Mask:
        """Return the mask of values of which a result may still leave."""

    @override
    def _holds_us(self) -> Ints:
        buffered, blocks = self._state.buffered, self._state.blocks
        holds_us = buffered.next_us(self._state.count, self._is_pending(buffered.numbers))
        np.minimum.at(holds_us, blocks["slot"], least_of_blocks_us(blocks, self._is_pending(TAGS)))
        return holds_us

    def _new_values(self, entering: EnteringRows, arriving: ArrivingRows) -> BufferedValues:
        """Return the rows that are on time as retained values."""
        sides, values = self._retained_form(arriving.values, entering.rows)
        tags = tag_of(entering.numbers, sides, np.zeros(len(sides), np.int64))
        return BufferedValues(entering.slots, entering.times_us, tags, values, entering.times_us)

    def _retained_form(self, values: Values, rows: Ints) -> tuple[Ints, RetainedValues]:
        """Return the side of values, given by row, and the values as they are retained."""
        if isinstance(values, SidedRecords):
            taken = values.take(rows)
            plain = plain_records(taken) if self._retains_records else None
            return taken.sides, taken.records() if plain is None else plain
        pairs = pick(values, rows)
        return np.array([side for side, _ in pairs], np.int64), [value for _, value in pairs]

    def _emit_down(self, items: JoinedRows, values: RetainedValues, pos_of_slot: Ints) -> None:
        """Emit pairs and unmatched values, those of each key in the given order.

        Args:
            items: the items.
            values: the values that the items refer to; encoded ones are decoded in their place.
            pos_of_slot: the position in the epoch of the output of each slot.
        """
        if not self._wants(DOWN, len(items.slots)):
            return
        windows = self._windows_of(items.sides, items.times_us, items.latest_us)
        names, pos = self._state.keys.take(pa.array(items.slots)), pos_of_slot[items.slots]
        if isinstance(values, SidedRecords):
            if all(batch.num_columns for batch in values.batches):
                pairs = _joined_records(windows, values, items.left, items.right)
                self._made.chunks[DOWN].append(KeyedRecords(names, pairs, pos))
                return
            values = values.records()
        _decode_used(items, values)
        # The row -1 stands for no value.
        found = [*values, None]
        rows = zip(items.left.tolist(), items.right.tolist(), strict=True)
        both = [JoinedPair(found[left], found[right]) for left, right in rows]
        down = list(zip(metadata_of(windows), both, strict=True))
        self._made.chunks[DOWN].append(Pairs(names.to_pylist(), down, pos))

    def _emit_closed(self, slots: Ints, times_us: Ints, pos_of_slot: Ints) -> None:
        """Emit the windows of left values that expire, those of each key in the given order."""
        if self._wants(CLOSED, len(slots)):
            records = self._windows_of(np.full(len(slots), LEFT), times_us, times_us)
            names = self._state.keys.take(pa.array(slots))
            self._made.chunks[CLOSED].append(KeyedRecords(names, records, pos_of_slot[slots]))

    def _wants(self, port: int, count: int) -> bool:
        """Return True if items have to be made; count them if no step reads the stream."""
        if port not in self._epoch.wanted:
            self._made.unread[port] += count
        return port in self._epoch.wanted and count > 0

    def _windows_of(self, sides: Ints, times_us: Ints, latest_us: Ints) -> pa.RecordBatch:
        """Return the windows of values as records."""
        return METADATA.records(times_us, self._interval.bounds_us(sides, times_us), latest_us)
