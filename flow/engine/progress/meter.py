"""Meters of stream progress, in the tasks that send items to a step that needs it.

An origin that sends items along an edge to a step with a `Progress` measures them in order, and
stamps each with the greatest measure so far. It sends every shard a packet of `Marks`: the
positions at which the greatest measure grew. Each shard combines the marks of all origins, in
`flow.engine.progress.stream_progress`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flow.columns.chunks import (
    SOURCE_BITS,
    Chunk,
    KeyedRecords,
    Pairs,
    Positions,
    as_pairs,
    sources_at,
)
from flow.columns.record_batches import view_of
from flow.engine.epoch.statistics import SourcePartition
from flow.engine.packets.packets import check_free
from flow.engine.plan.plan import Edge
from flow.errors import RAISED, brief, step_error
from flow.instants import NEVER, NO_PROGRESS, Moment
from flow.keyed.logic import Progress
from flow.keyed.shard_logic import STAMP_COLUMN

MOST_MARKS = 256
"""The most marks of a source partition in an epoch. Of more marks, the meter retains the first, and
the last of each run of positions: other partitions then see the progress at a later position."""


class Partition(NamedTuple):
    """An ordered part of a stream, which can be ahead of other parts.

    Attributes:
        made_by: the id of the input's step; empty for items that a keyed step has processed, which
            are one partition for all steps of a level and all shards.
        number: the number of the source partition, or of the level.
    """

    made_by: str
    number: int


class Marks(NamedTuple):
    """Progress of one origin's items on an edge, by position.

    Attributes:
        dest: the number of the edge.
        partition: the partition of the items.
        positions: the positions at which the greatest measure grew, int64, sorted.
        values: the greatest measure at each of the positions, int64 µs, ascending.
        last: the position of the last item, in marks for a `Bound`; ``None`` in marks for stream
            progress.
    """

    dest: int
    partition: Partition
    positions: Positions
    values: Positions
    last: int | None = None

    def encode(self) -> bytes:
        """Return the marks as bytes."""
        head = json.dumps([self.dest, *self.partition, self.last]).encode()
        return head + b"\n" + self.positions.tobytes() + self.values.tobytes()

    @classmethod
    def decode(cls, payload: bytes) -> Marks:
        """Return the marks in bytes made by `encode`."""
        head, _, body = payload.partition(b"\n")
        dest, made_by, number, last = json.loads(head)
        positions, values = np.frombuffer(body, np.int64).reshape(2, -1)
        return cls(dest, Partition(made_by, number), positions, values, last)

    @staticmethod
    def dest_in(payload: bytes) -> int:
        """Return the number of the edge in a payload made by `encode`."""
        dest: int = json.loads(payload.partition(b"\n")[0])[0]
        return dest


def growth_in(marks: Iterable[Marks]) -> tuple[Positions, Positions]:
    """Return the positions and the values of all marks, int64."""
    nothing, several = np.empty(0, np.int64), list(marks)
    positions = np.concatenate([nothing, *(one.positions for one in several)])
    return positions, np.concatenate([nothing, *(one.values for one in several)])


class Growth:
    """The greatest measure so far of items in order of position, and the positions of its growth.

    Args:
        most: the most marks to retain; ``None`` for no limit.
        run_bits: the number of low bits of a position that rows have in common.
    """

    def __init__(self, most: int | None, run_bits: int = 0) -> None:
        self._most = most
        self._run_bits = run_bits
        self._reached_us = NO_PROGRESS
        self.positions: Positions = np.empty(0, np.int64)
        self.values: Positions = np.empty(0, np.int64)

    @classmethod
    def of(cls, partition: Partition, run_bits: int = 0) -> Growth:
        """Return the growth of a partition, before its first item."""
        return cls(MOST_MARKS if partition.made_by else None, run_bits)

    def add(self, measured: Positions, pos: Positions) -> Positions:
        """Add items, and return the greatest measure so far at each, int64 µs, shape (items,)."""
        so_far = np.concatenate([[self._reached_us], np.minimum(measured, NEVER)])
        reached = np.maximum.accumulate(so_far)
        grown = np.flatnonzero(np.diff(reached))
        self._mark(pos[grown], reached[grown + 1])
        self._reached_us = int(reached[-1])
        return reached[1:]

    def _mark(self, positions: Positions, values: Positions) -> None:
        positions = np.concatenate([self.positions, positions])
        values = np.concatenate([self.values, values])
        kept = self._thinned(positions)
        while self._most is not None and len(kept) > self._most:
            self._run_bits += 1
            kept = self._thinned(positions)
        self.positions, self.values = positions[kept], values[kept]

    def _thinned(self, positions: Positions) -> Positions:
        """Return the indices of marks to retain: the first, and the last of each run."""
        runs = positions >> self._run_bits
        last = np.append(runs[1:] != runs[:-1], True)[: len(runs)]
        last[:1] = True
        return np.flatnonzero(last)


class Meter:
    """Meter of the items that one origin sends along one edge.

    Args:
        edge: the edge.
        progress: the step's measure of progress.
        partition: the partition of the items.
        moment: the epoch's system time.
        in_columns: True if the step that reads the edge takes records as columns.
        growth: the greatest measure of the partition's items, which the meters of several edges to
            the step may share.
    """

    def __init__(
        self,
        edge: Edge,
        progress: Progress,
        partition: Partition,
        moment: Moment,
        in_columns: bool = False,
        growth: Growth | None = None,
    ) -> None:
        self._edge = edge
        self._measure = Measure(edge, progress, moment)
        self._partition = partition
        self._in_columns = in_columns
        self.growth = growth or Growth.of(partition)

    def stamp(self, chunk: Chunk) -> Chunk:
        """Measure items, in order of position, and stamp each with the greatest measure so far.

        Returns:
            The stamped items: records with a column `STAMP_COLUMN`, other items as pairs whose
            values are ``(value, stamp)``.

        Raises:
            StepError: when the measure raises.
        """
        (stamped,) = stamp_together([(self, chunk)])
        return stamped

    def measured(self, chunk: Chunk) -> tuple[KeyedRecords | Pairs, Positions]:
        """Return items in the form in which they are stamped, and the measure of each.

        Raises:
            StepError: when the measure raises.
        """
        measured, values = self._measure.of(chunk, self._in_columns)
        if isinstance(measured, KeyedRecords):
            check_free(measured.batch, STAMP_COLUMN)
        return measured, values

    def marks(self) -> Marks:
        """Return the marks of all stamped items."""
        growth = self.growth
        return Marks(self._edge.dest, self._partition, growth.positions, growth.values)


def stamp_together(parts: Sequence[tuple[Meter, Chunk]]) -> list[Chunk]:
    """Stamp items of one partition on several edges to a step, in order of position; see `Meter`.

    Args:
        parts: chunks with the meters of their edges, which share a growth; the chunks of an edge
            in order of position.
    """
    measured = [meter.measured(chunk) for meter, chunk in parts]
    growth = parts[0][0].growth
    if all(meter is parts[0][0] for meter, _ in parts):  # Chunks of one edge are in order.
        return [_stamped(chunk, growth.add(of_chunk, chunk.pos)) for chunk, of_chunk in measured]
    pos = np.concatenate([chunk.pos for chunk, _ in measured])
    order = np.argsort(pos, kind="stable")
    stamps = np.empty(len(pos), np.int64)
    measures = np.concatenate([of_chunk for _, of_chunk in measured])
    stamps[order] = growth.add(measures[order], pos[order])
    ends = np.cumsum([len(chunk) for chunk, _ in measured])
    pieces = zip(measured, np.split(stamps, ends[:-1]), strict=True)
    return [_stamped(chunk, of_chunk) for (chunk, _), of_chunk in pieces]


def _stamped(chunk: KeyedRecords | Pairs, stamps: Positions) -> Chunk:
    if isinstance(chunk, KeyedRecords):
        batch = chunk.batch.append_column(STAMP_COLUMN, pa.array(stamps))
        return KeyedRecords(chunk.keys, batch, chunk.pos)
    return Pairs(chunk.keys, list(zip(chunk.values, stamps.tolist(), strict=True)), chunk.pos)


class HoldMeter:
    """Meter of each source partition's items that one origin sends along one edge.

    Args:
        edge: the edge.
        progress: the step's measure of progress.
        moment: the epoch's system time.
        sources: the source partitions by the numbers that positions carry.
    """

    def __init__(
        self, edge: Edge, progress: Progress, moment: Moment, sources: Sequence[SourcePartition]
    ) -> None:
        self._edge = edge
        self._measure = Measure(edge, progress, moment)
        self._sources = sources
        self._growths: dict[int, Growth] = {}
        self._last: dict[int, int] = {}

    def add(self, chunk: Chunk) -> None:
        """Measure items, in order of position.

        Raises:
            StepError: when the measure raises.
        """
        chunk, measured = self._measure.of(chunk)
        numbers = sources_at(chunk.pos)
        for number in np.unique(numbers).tolist():
            if number < 0:
                continue
            rows = numbers == number
            growth = self._growths.setdefault(number, Growth(MOST_MARKS, SOURCE_BITS))
            pos = chunk.pos[rows]
            growth.add(measured[rows], pos)
            self._last[number] = max(self._last.get(number, -1), int(pos.max()))

    def marks(self) -> list[Marks]:
        """Return the marks of each partition."""
        return [
            Marks(
                self._edge.dest,
                Partition(*self._sources[number]),
                growth.positions,
                growth.values,
                self._last[number],
            )
            for number, growth in self._growths.items()
        ]


class Measure:
    """A step's measure of progress, applied to chunks on their way to the step."""

    def __init__(self, edge: Edge, progress: Progress, moment: Moment) -> None:
        self._step_id = edge.step_id
        self._progress = progress
        self._moment = moment

    def of(self, chunk: Chunk, in_columns: bool = True) -> tuple[KeyedRecords | Pairs, Positions]:
        """Return items in the form in which they are measured, and the measure of each.

        Args:
            chunk: the items.
            in_columns: False to measure records as pairs too.

        Returns:
            The items, and int64 µs, shape (items,).

        Raises:
            StepError: when the measure raises.
        """
        if in_columns and isinstance(chunk, KeyedRecords) and view_of(chunk.batch) is None:
            measured = self._progress.measure_all(chunk.batch, self._moment)
            if measured is not None:
                return chunk, measured
        pairs = as_pairs(chunk, self._step_id)
        measured = self._progress.measure_all(pairs.values, self._moment)
        if measured is None:
            each = map(self._of_value, pairs.keys, pairs.values)
            measured = np.fromiter(each, np.int64, len(pairs))
        return pairs, measured

    def _of_value(self, key: str, value: Any) -> int:
        try:
            measured = self._progress.measure(value, self._moment)
            return NO_PROGRESS if measured is None else max(NO_PROGRESS, min(int(measured), NEVER))
        except RAISED as error:
            problem = f"measuring its progress raised {brief(error)}"
            raise step_error(self._step_id, problem, key=key, item=value) from error
