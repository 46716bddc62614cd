"""What the windows of a shard send down its streams: figures of windows that close, late values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from flow.engine.chunks import Chunk, KeyedRecords, Pairs
from flow.engine.segmented import Ints, Mask
from flow.instants import MIN_US, NEVER
from flow.operators.logic import Counted
from flow.operators.shards import ShardEpoch, ShardMade
from flow_windowing.columnar.open_windows import OpenWindows
from flow_windowing.columnar.spans import Merged
from flow_windowing.columnar.updates import Update
from flow_windowing.columnar.window_view import Figure, WindowView, metadata_of
from flow_windowing.driver import CLOSED, DOWN, LATE, PORTS
from flow_windowing.metadata import LateReason, LateValue, WindowMetadata

if TYPE_CHECKING:
    from flow_windowing.columnar.planning import WindowPlan

_METADATA = WindowView(None)


class LateRows(NamedTuple):
    """Values that miss a window each, in columns.

    Attributes:
        rows: which of the values at hand each is.
        places: the place of its key.
        times_us: its timestamp.
        numbers: its number in order of arrival.
        watermark_us: the watermark when it came.
        ids: the window that it misses.
        named: whether there is one that can be named.
        reason: why it misses it.
    """

    rows: Ints
    places: Ints
    times_us: Ints
    numbers: Ints
    watermark_us: Ints
    ids: Ints
    named: Mask
    reason: LateReason


class _Shown(NamedTuple):
    """What metadata says of windows, in columns.

    Attributes:
        places: the place of each one's key.
        ids: its id.
        bounds_us: when it opens and closes.
        latest_us: the greatest timestamp in it; all `-NEVER` where it is not asked for.
        merged: what has become part of it; ``None`` where windows do not become one.
    """

    places: Ints
    ids: Ints
    bounds_us: tuple[Ints, Ints]
    latest_us: Ints
    merged: Merged | None


class Emitter:
    """Gathers what a shard's part of an epoch makes.

    Attributes:
        made: what there is so far.
    """

    def __init__(self, plan: WindowPlan, epoch: ShardEpoch) -> None:
        self.made = ShardMade.nothing(len(PORTS))
        self._plan = plan
        self._wanted = epoch.wanted
        self._late: list[LateRows] = []

    def count(self, what: str, amount: int, note: str = "") -> None:
        """Count something that goes to no stream."""
        if amount:
            self.made.counted.append(Counted(what, amount, note))

    def late(self, rows: LateRows) -> None:
        """Note values that miss windows, to be sent by `send_late`."""
        if len(rows.rows) and LATE in self._wanted:
            self._late.append(rows)
        else:
            self.made.unwanted[LATE] += len(rows.rows)

    def send_late(self, keys: pa.Array, one: Callable[[int], Any], pos_of_place: Ints) -> None:
        """Send what was noted, each key's values as they came."""
        lots, self._late = self._late, []
        if not lots:
            return
        places = np.concatenate([lot.places for lot in lots])
        numbers = np.concatenate([lot.numbers for lot in lots])
        values = [value for lot in lots for value in self._late_values(lot, one)]
        order = np.lexsort((numbers, places))
        names = keys.take(pa.array(places[order])).to_pylist()
        in_order = [values[at] for at in order.tolist()]
        self.made.chunks[LATE].append(Pairs(names, in_order, pos_of_place[places[order]]))

    def close(self, windows: OpenWindows, rows: Ints, keys: pa.Array, pos_of_place: Ints) -> None:
        """Send that windows have closed, and their figures, unless these have been sent before."""
        if self._plan.emit != "update":
            self.down(windows, rows, keys, pos_of_place)
        if CLOSED not in self._wanted:
            self.made.unwanted[CLOSED] += len(rows)
            return
        shown = self._shown(windows, rows)
        batch, pos = self._records(_METADATA, shown), pos_of_place[shown.places]
        self._send(CLOSED, KeyedRecords(_names(shown, keys), batch, pos))

    def down(self, windows: OpenWindows, rows: Ints, keys: pa.Array, pos_of_place: Ints) -> None:
        """Send the figures of windows, in the order given."""
        if DOWN not in self._wanted:
            self.made.unwanted[DOWN] += len(rows)
            return
        figures = [figure.results(rows) for figure in windows.figures]
        self._send_figures(self._shown(windows, rows), figures, keys, pos_of_place)

    def updated(self, updates: list[Update], keys: pa.Array, pos_of_place: Ints) -> None:
        """Send what each value has made of its windows, in the order given."""
        for update in updates:
            if DOWN not in self._wanted:
                self.made.unwanted[DOWN] += len(update.ids)
                continue
            shown = _Shown(update.places, update.ids, update.bounds_us, update.latest_us, None)
            self._send_figures(shown, update.figures, keys, pos_of_place)

    def _send_figures(
        self,
        shown: _Shown,
        figures: list[pa.Array | list[Any]],
        keys: pa.Array,
        pos_of_place: Ints,
    ) -> None:
        names, pos = _names(shown, keys), pos_of_place[shown.places]
        if all(isinstance(one, pa.Array) for one in figures):
            batch = self._records(WindowView(self._plan.figures), shown, figures)
            self._send(DOWN, KeyedRecords(names, batch, pos))
        else:
            metadata = metadata_of(self._records(_METADATA, shown))
            values = list(zip(metadata, self._values(figures), strict=True))
            self._send(DOWN, Pairs(names.to_pylist(), values, pos))

    def _records(
        self, view: WindowView, shown: _Shown, figures: Sequence[pa.Array] = ()
    ) -> pa.RecordBatch:
        """Records that stand for windows."""
        timestamps_us = self._plan.timestamps_us(shown.bounds_us, shown.latest_us)
        return view.records(shown.ids, shown.bounds_us, timestamps_us, figures, shown.merged)

    def _shown(self, windows: OpenWindows, rows: Ints) -> _Shown:
        """What metadata says of some windows."""
        windowing, spans = self._plan.windowing, windows.spans
        merged = None
        if windowing.kind == "sessions" and spans is not None:
            merged = spans.merged[rows]
        return _Shown(
            windows.places[rows],
            windows.ids[rows],
            windowing.bounds_us(windows, rows),
            windows.latest_us[rows],
            merged,
        )

    def _send(self, port: int, chunk: Chunk) -> None:
        self.made.chunks[port].append(chunk)

    def _values(self, figures: list[pa.Array | list[Any]]) -> list[Any]:
        """The value of each window, of figures of which some are objects."""
        columns = [
            _objects(figure, column)
            for figure, column in zip(self._plan.figures, figures, strict=True)
        ]
        if self._plan.figures[0].name is None:
            return columns[0]
        names = [figure.name for figure in self._plan.figures]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _late_values(self, lot: LateRows, one: Callable[[int], Any]) -> list[LateValue[Any]]:
        bounds_us = self._plan.windowing.missed_bounds_us(lot.ids)
        columns = (lot.times_us, lot.watermark_us, lot.ids, lot.named, *bounds_us)
        missed = zip(*(column.tolist() for column in columns), strict=True)
        values = [one(row) for row in lot.rows.tolist()]
        sides: list[int | None] = [None] * len(values)
        if self._plan.sides > 1:
            sides, values = [side for side, _ in values], [value for _, value in values]
        return [
            LateValue.of_us(
                value,
                time_us,
                watermark_us if watermark_us > -NEVER else MIN_US - 1,
                WindowMetadata.of_us(number, open_us, close_us) if named else None,
                lot.reason,
                side,
            )
            for value, side, (time_us, watermark_us, number, named, open_us, close_us) in zip(
                values, sides, missed, strict=True
            )
        ]


def _names(shown: _Shown, keys: pa.Array) -> pa.Array:
    """The keys of windows."""
    return keys.take(pa.array(shown.places))


def _objects(figure: Figure, column: pa.Array | list[Any]) -> list[Any]:
    if isinstance(column, list):
        return column
    values: list[Any] = column.to_pylist()
    if figure.of_nothing is None or not column.null_count:
        return values
    return [figure.of_nothing if value is None else value for value in values]
