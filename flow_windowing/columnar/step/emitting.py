"""What the windows of a shard send down its streams: figures of windows that close, late values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, distinct, ranges
from flow.columns.chunks import Chunk, KeyedRecords, Pairs
from flow.instants import MIN_US, NEVER
from flow.keyed.logic import Counted
from flow.keyed.shard_logic import ShardEpoch, ShardOutput
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.windows.plan import WindowPlan
from flow_windowing.columnar.windows.updates import Update
from flow_windowing.columnar.windows.window_view import (
    ResultColumn,
    WindowView,
    metadata_of,
    window_metadata,
)
from flow_windowing.contract.metadata import LateReason, LateValue, Retracted, WindowMetadata
from flow_windowing.rules.lateness import counted_late
from flow_windowing.rules.streams import CLOSED, DOWN, LATE, PORTS

_METADATA = WindowView(None)


class LateRows(NamedTuple):
    """Values that miss windows, in columns: a row is an item on the late stream.

    Attributes:
        rows: which of the values at hand each is.
        slots: the slot of its key.
        times_us: its timestamp.
        numbers: its number in order of arrival.
        watermark_us: the watermark when it came.
        ids: the first window that it misses.
        counts: how many from there on; 0 where none can be named.
        reason: why it misses them.
    """

    rows: Ints
    slots: Ints
    times_us: Ints
    numbers: Ints
    watermark_us: Ints
    ids: Ints
    counts: Ints
    reason: LateReason


class Emitter:
    """Gathers what a shard's part of an epoch makes.

    Attributes:
        made: what there is so far.
    """

    def __init__(self, plan: WindowPlan, epoch: ShardEpoch) -> None:
        self.made = ShardOutput.empty(len(PORTS))
        self._plan = plan
        self._wanted = epoch.wanted
        self._late: list[tuple[LateRows, Callable[[int], Any]]] = []
        self._taken_back: list[Update] = []

    def count(self, what: str, amount: int, note: str = "") -> None:
        """Count something that goes to no stream."""
        if amount:
            self.made.counted.append(Counted(what, amount, note))

    def late(self, rows: LateRows, one: Callable[[int], Any], sources: Ints | None = None) -> None:
        """Note values that miss windows, to be sent by `send_late`.

        Args:
            rows: the values.
            one: gives a row's value.
            sources: the number of the source partition of each, where that is known.
        """
        if rows.reason is LateReason.LATE and len(rows.rows):
            late_by_us = rows.watermark_us - rows.times_us
            behind = late_by_us > 0
            came_from = None if sources is None else sources[behind]
            self.made.counted += counted_late(late_by_us[behind], came_from)
        if len(rows.rows) and LATE in self._wanted:
            self._late.append((rows, one))
        else:
            self.made.unread[LATE] += len(rows.rows)

    def send_late(self, keys: pa.Array, pos_of_slot: Ints) -> None:
        """Send what was noted, each key's values as they came."""
        noted, self._late = self._late, []
        if not noted:
            return
        lots = [lot for lot, _ in noted]
        slots = np.concatenate([lot.slots for lot in lots])
        numbers = np.concatenate([lot.numbers for lot in lots])
        values = [value for lot, one in noted for value in self._late_values(lot, one)]
        order = np.lexsort((numbers, slots))
        names = keys.take(pa.array(slots[order])).to_pylist()
        in_order = [values[at] for at in order.tolist()]
        self.made.chunks[LATE].append(Pairs(names, in_order, pos_of_slot[slots[order]]))

    def close(
        self,
        windows: OpenWindows,
        rows: Ints,
        closed_at_us: Ints,
        keys: pa.Array,
        pos_of_slot: Ints,
    ) -> None:
        """Send that windows have closed, and their figures, unless these have been sent before.

        Args:
            windows: the open windows.
            rows: the rows of those that close, in order of slot and closing.
            closed_at_us: the watermark at which each closes.
            keys: the key of each slot.
            pos_of_slot: where in the epoch what a slot sends belongs.
        """
        if self._plan.emit != "update":
            taken_back, self._taken_back = self._taken_back, []
            updates = [*self._standing(windows, rows, closed_at_us), *taken_back]
            self.updated(updates, keys, pos_of_slot)
        if CLOSED not in self._wanted:
            self.made.unread[CLOSED] += len(rows)
        elif len(rows):
            closed = self._update(windows, rows, closed_at_us, [])
            batch = self._records(_METADATA, closed)
            self._send(CLOSED, KeyedRecords(_names(closed, keys), batch, pos_of_slot[closed.slots]))

    def down(self, windows: OpenWindows, rows: Ints, keys: pa.Array, pos_of_slot: Ints) -> None:
        """Send the figures of windows, in the order given."""
        self.updated(self._standing(windows, rows, np.arange(len(rows))), keys, pos_of_slot)

    def take_back(self, updates: list[Update]) -> None:
        """Note what sessions take back, to be sent among what closes, in turn of the watermark."""
        self._taken_back += updates

    def updated(self, updates: list[Update], keys: pa.Array, pos_of_slot: Ints) -> None:
        """Send what windows have come to, and take back what they had: each key's in turn.

        Each lot is in turn already; of what has the same turn, an earlier lot's goes first.
        """
        if DOWN not in self._wanted:
            self.made.unread[DOWN] += sum(len(update.ids) for update in updates)
            return
        mixed = [update.slots for update in updates if update.is_retraction is not None]
        if mixed:
            among = np.zeros(len(pos_of_slot), np.bool_)
            among[np.concatenate(mixed)] = True
            by_turn = [update.take(np.flatnonzero(among[update.slots])) for update in updates]
            self._send_in_turn(by_turn, keys, pos_of_slot)
            updates = [update.take(np.flatnonzero(~among[update.slots])) for update in updates]
        for update in updates:
            if len(update.ids):
                self._send_figures(update, keys, pos_of_slot)

    def _standing(self, windows: OpenWindows, rows: Ints, turns: Ints) -> list[Update]:
        """What some windows have come to, if that is to be sent."""
        if not len(rows):
            return []
        figures: list[pa.Array | list[Any]] = []
        if DOWN in self._wanted:
            figures = [figure.results(rows) for figure in windows.accumulators]
        return [self._update(windows, rows, turns, figures)]

    def _update(
        self, windows: OpenWindows, rows: Ints, turns: Ints, figures: list[pa.Array | list[Any]]
    ) -> Update:
        windowing, spans = self._plan.windowing, windows.spans
        merged = None
        if windowing.kind == "sessions" and spans is not None:
            merged = spans.merged_ids[rows]
        return Update(
            turns,
            windows.slots[rows],
            windows.ids[rows],
            windowing.bounds_us(windows, rows),
            windows.latest_us[rows],
            figures,
            merged,
        )

    def _send_figures(self, update: Update, keys: pa.Array, pos_of_slot: Ints) -> None:
        names, pos = _names(update, keys), pos_of_slot[update.slots]
        if all(isinstance(one, pa.Array) for one in update.results):
            batch = self._records(WindowView(self._plan.result_columns), update)
            self._send(DOWN, KeyedRecords(names, batch, pos))
        else:
            self._send(DOWN, Pairs(names.to_pylist(), self._items(update), pos))

    def _send_in_turn(self, updates: list[Update], keys: pa.Array, pos_of_slot: Ints) -> None:
        slots = np.concatenate([update.slots for update in updates])
        turns = np.concatenate([update.order for update in updates])
        items = [item for update in updates for item in self._items(update)]
        order = np.lexsort((turns, slots))
        names = keys.take(pa.array(slots[order])).to_pylist()
        in_order = [items[at] for at in order.tolist()]
        self._send(DOWN, Pairs(names, in_order, pos_of_slot[slots[order]]))

    def _items(self, update: Update) -> list[Any]:
        """The metadata and value of each window."""
        metadata = metadata_of(self._records(_METADATA, update))
        values = self._values(update.results)
        if update.is_retraction is not None:
            back = update.is_retraction.tolist()
            values = [
                Retracted(value) if of_value else value
                for value, of_value in zip(values, back, strict=True)
            ]
        return list(zip(metadata, values, strict=True))

    def _records(self, view: WindowView, update: Update) -> pa.RecordBatch:
        """Records that stand for windows, with their figures where the view has them."""
        timestamps_us = self._plan.timestamps_us(update.bounds_us, update.latest_us)
        figures = () if view.results is None else update.results
        return view.records(update.ids, update.bounds_us, timestamps_us, figures, update.merged_ids)

    def _send(self, port: int, chunk: Chunk) -> None:
        self.made.chunks[port].append(chunk)

    def _values(self, figures: list[pa.Array | list[Any]]) -> list[Any]:
        """The value of each window, of figures of which some are objects."""
        columns = [
            _objects(figure, column)
            for figure, column in zip(self._plan.result_columns, figures, strict=True)
        ]
        if self._plan.result_columns[0].name is None:
            return columns[0]
        names = [figure.name for figure in self._plan.result_columns]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _late_values(self, lot: LateRows, one: Callable[[int], Any]) -> list[LateValue[Any]]:
        values = [one(row) for row in lot.rows.tolist()]
        sides: list[int | None] = [None] * len(values)
        if self._plan.sides > 1:
            sides, values = [side for side, _ in values], [value for _, value in values]
        times = zip(lot.times_us.tolist(), lot.watermark_us.tolist(), strict=True)
        return [
            LateValue.of_us(
                value,
                time_us,
                watermark_us if watermark_us > -NEVER else MIN_US - 1,
                missed,
                lot.reason,
                side,
            )
            for value, side, (time_us, watermark_us), missed in zip(
                values, sides, times, self._missed(lot), strict=True
            )
        ]

    def _missed(self, lot: LateRows) -> list[tuple[WindowMetadata, ...]]:
        """Return the windows that each value misses; values share the metadata of a window."""
        ids = distinct(ranges(lot.ids, lot.counts))
        if not len(ids):
            return [()] * len(lot.rows)
        windows = tuple(window_metadata(ids, self._plan.windowing.missed_bounds_us(ids)))
        # The ids of a value follow one another, and so does their metadata.
        first = np.searchsorted(ids, lot.ids)
        ends = first + lot.counts
        return [windows[a:b] for a, b in zip(first.tolist(), ends.tolist(), strict=True)]


def _names(update: Update, keys: pa.Array) -> pa.Array:
    """The keys of windows."""
    return keys.take(pa.array(update.slots))


def _objects(figure: ResultColumn, column: pa.Array | list[Any]) -> list[Any]:
    if isinstance(column, list):
        return column
    values: list[Any] = column.to_pylist()
    if figure.empty_value is None or not column.null_count:
        return values
    return [figure.empty_value if value is None else value for value in values]
