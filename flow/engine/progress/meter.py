"""Measuring how far a stream has come, where its items leave for a step that wants to know.

Whoever sends items along an edge to a step with a `Progress` measures them in order, stamps each
with the greatest measure so far, and tells every shard, in a packet of `Marks`, by which positions
it had come how far. `flow.engine.progress.stream_progress` puts together there what all have sent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from flow.columns.row_views import view_of
from flow.engine.epoch.context import SourcePartition
from flow.engine.packets.packets import REACHED, check_free
from flow.engine.plan.plan import Edge
from flow.errors import RAISED, brief, step_error
from flow.instants import NEVER, NO_PROGRESS, Moment
from flow.keyed.logic import Progress

MOST_MARKS = 256
"""How many marks a source partition's part of an epoch has at most. Beyond that it has the last of
each run of so many positions, and its very first: others see it come further that much later."""


class Partition(NamedTuple):
    """A part of a stream that has an order of its own, and can be ahead of others.

    Attributes:
        made_by: the input, by its step; empty for what a level makes, all shards together.
        number: the source partition, or the level.
    """

    made_by: str
    number: int

    @classmethod
    def of_level(cls, level: int) -> Partition:
        """Return the partition of the items that the steps of a level make."""
        return cls("", level)

    @property
    def is_source(self) -> bool:
        """True if the items come from a source, and no keyed step has processed them."""
        return bool(self.made_by)


class Marks(NamedTuple):
    """By which positions one origin's part of an edge had come how far.

    Attributes:
        dest: the edge.
        partition: what the items belong to.
        positions: where the measure grew, in order.
        values: how far it had come there; they grow, too.
        last: the position of the last item, where the marks say what a partition holds back;
            ``None`` where they say how far the stream has come.
    """

    dest: int
    partition: Partition
    positions: Positions
    values: Positions
    last: int | None = None

    def encode(self) -> bytes:
        """The marks as bytes."""
        head = json.dumps([self.dest, *self.partition, self.last]).encode()
        return head + b"\n" + self.positions.tobytes() + self.values.tobytes()

    @classmethod
    def decode(cls, payload: bytes) -> Marks:
        """The marks in bytes made by `encode`."""
        head, _, body = payload.partition(b"\n")
        dest, made_by, number, last = json.loads(head)
        positions, values = np.frombuffer(body, np.int64).reshape(2, -1)
        return cls(dest, Partition(made_by, number), positions, values, last)

    @staticmethod
    def dest_in(payload: bytes) -> int:
        """The edge that a payload is about."""
        dest: int = json.loads(payload.partition(b"\n")[0])[0]
        return dest


class Growth:
    """The greatest measure so far of items that come in order, and where it grew.

    Args:
        most: how many marks are kept at most; ``None`` for all.
        run_bits: how many low bits of a position do not tell rows apart.
    """

    def __init__(self, most: int | None, run_bits: int = 0) -> None:
        self._most = most
        self._run_bits = run_bits
        self._reached_us = NO_PROGRESS
        self.positions: Positions = np.empty(0, np.int64)
        self.values: Positions = np.empty(0, np.int64)

    def add(self, measured: Positions, pos: Positions) -> Positions:
        """Return how far things have come with each of some items, which is remembered."""
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
        """Return indices of marks to keep: the first, and the last of each run of positions."""
        runs = positions >> self._run_bits
        last = np.append(runs[1:] != runs[:-1], True)[: len(runs)]
        last[:1] = True
        return np.flatnonzero(last)


class Meter:
    """Measures what one origin sends along one edge.

    Args:
        edge: the edge.
        progress: how to measure.
        partition: what is sent belongs to.
        moment: the epoch's system time.
        in_columns: whether the step that reads the edge takes records as columns.
        run_bits: how many low bits of a position do not tell rows apart.
    """

    def __init__(
        self,
        edge: Edge,
        progress: Progress,
        partition: Partition,
        moment: Moment,
        in_columns: bool = False,
        run_bits: int = 0,
    ) -> None:
        self._edge = edge
        self._measure = Measure(edge, progress, moment)
        self._partition = partition
        self._in_columns = in_columns
        self._growth = Growth(MOST_MARKS if partition.is_source else None, run_bits)

    def stamp(self, chunk: Chunk) -> Chunk:
        """Measure items, which come in order.

        Returns:
            The items with how far things had come with each: records in a column `REACHED`, others
            as pairs whose values are ``(value, reached so far)``.

        Raises:
            StepError: when the measure raises.
        """
        if self._in_columns and isinstance(chunk, KeyedRecords):
            measured = self._measure.of_rows(chunk)
            if measured is not None:
                check_free(chunk.batch, REACHED)
                reached = pa.array(self._growth.add(measured, chunk.pos))
                batch = chunk.batch.append_column(REACHED, reached)
                return KeyedRecords(chunk.keys, batch, chunk.pos)
        pairs = as_pairs(chunk, self._edge.step_id)
        stamps = self._growth.add(self._measure.of_pairs(pairs), pairs.pos)
        return Pairs(pairs.keys, list(zip(pairs.values, stamps.tolist(), strict=True)), pairs.pos)

    def marks(self) -> Marks:
        """Return the progress of the edge with all stamped items."""
        growth = self._growth
        return Marks(self._edge.dest, self._partition, growth.positions, growth.values)


class HoldMeter:
    """Measures how far each source partition comes with what one origin sends along one edge.

    Args:
        edge: the edge.
        progress: how to measure.
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
        """Measure items, which come in order.

        Raises:
            StepError: when the measure raises.
        """
        measured = self._measure.of_rows(chunk) if isinstance(chunk, KeyedRecords) else None
        if measured is None:
            chunk = as_pairs(chunk, self._edge.step_id)
            measured = self._measure.of_pairs(chunk)
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
        """Return how far each partition has come with all that was measured."""
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
    """A step's measure of progress, applied to chunks on their way to it."""

    def __init__(self, edge: Edge, progress: Progress, moment: Moment) -> None:
        self._step_id = edge.step_id
        self._progress = progress
        self._moment = moment

    def of_rows(self, chunk: KeyedRecords) -> Positions | None:
        """Return the measure of each row, ``None`` when they have to be measured one by one."""
        if view_of(chunk.batch) is not None:
            return None
        return self._progress.measure_rows(chunk.batch, self._moment)

    def of_pairs(self, pairs: Pairs) -> Positions:
        """Return the measure of each value.

        Raises:
            StepError: when the measure raises.
        """
        each = map(self._of_value, pairs.keys, pairs.values)
        return np.fromiter(each, np.int64, len(pairs))

    def _of_value(self, key: str, value: Any) -> int:
        try:
            measured = self._progress.measure(value, self._moment)
            return NO_PROGRESS if measured is None else max(NO_PROGRESS, min(int(measured), NEVER))
        except RAISED as error:
            problem = f"measuring its progress raised {brief(error)}"
            raise step_error(self._step_id, problem, key=key, item=value) from error
