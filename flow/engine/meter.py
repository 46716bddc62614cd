"""Measuring how far a stream has come, where its items leave for a step that wants to know.

Whoever sends items along an edge to a step with a `Progress` measures them in order, stamps each
with the greatest measure so far, and tells every shard, in a packet of `Marks`, by which positions
it had come how far. `flow.engine.progress` puts together there what all have sent.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flow.engine.chunks import Chunk, KeyedRecords, Pairs, Positions, as_pairs
from flow.engine.packets import REACHED, check_free
from flow.engine.plan import Edge
from flow.engine.row_views import view_of
from flow.errors import brief, step_error
from flow.instants import NEVER, NO_PROGRESS, Moment
from flow.operators.logic import Progress

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
        """What the steps of a level make."""
        return cls("", level)

    @property
    def is_source(self) -> bool:
        """Whether it was read from a source, and keyed by no step since."""
        return bool(self.made_by)


class Marks(NamedTuple):
    """By which positions one origin's part of an edge had come how far.

    Attributes:
        dest: the edge.
        partition: what the items belong to.
        positions: where the measure grew, in order.
        values: how far it had come there; they grow, too.
    """

    dest: int
    partition: Partition
    positions: Positions
    values: Positions

    def encode(self) -> bytes:
        """The marks as bytes."""
        head = json.dumps([self.dest, *self.partition]).encode()
        return head + b"\n" + self.positions.tobytes() + self.values.tobytes()

    @classmethod
    def decode(cls, payload: bytes) -> Marks:
        """The marks in bytes made by `encode`."""
        head, _, body = payload.partition(b"\n")
        dest, made_by, number = json.loads(head)
        positions, values = np.frombuffer(body, np.int64).reshape(2, -1)
        return cls(dest, Partition(made_by, number), positions, values)

    @staticmethod
    def dest_in(payload: bytes) -> int:
        """The edge that a payload is about."""
        dest: int = json.loads(payload.partition(b"\n")[0])[0]
        return dest


class Meter:
    """Measures what one origin sends along one edge.

    Args:
        edge: the edge.
        progress: how to measure.
        partition: what is sent belongs to.
        moment: the epoch's system time.
        in_columns: whether the step that reads the edge takes records as columns.
    """

    def __init__(
        self,
        edge: Edge,
        progress: Progress,
        partition: Partition,
        moment: Moment,
        in_columns: bool = False,
    ) -> None:
        self._edge = edge
        self._progress = progress
        self._partition = partition
        self._moment = moment
        self._in_columns = in_columns
        self._most = MOST_MARKS if partition.is_source else None
        self._run_bits = 0
        self._reached_us = NO_PROGRESS
        self._positions: Positions = np.empty(0, np.int64)
        self._values: Positions = np.empty(0, np.int64)

    def stamp(self, chunk: Chunk) -> Chunk:
        """Measure items, which come in order.

        Returns:
            The items with how far things had come with each: records in a column `REACHED`, others
            as pairs whose values are ``(value, reached so far)``.

        Raises:
            StepError: when the measure raises.
        """
        if self._in_columns and isinstance(chunk, KeyedRecords) and view_of(chunk.batch) is None:
            measured = self._progress.measure_rows(chunk.batch, self._moment)
            if measured is not None:
                check_free(chunk.batch, REACHED)
                reached = pa.array(self._reach(measured, chunk.pos))
                batch = chunk.batch.append_column(REACHED, reached)
                return KeyedRecords(chunk.keys, batch, chunk.pos)
        pairs = as_pairs(chunk, self._edge.step_id)
        each = map(self._measured, pairs.keys, pairs.values)
        stamps = self._reach(np.fromiter(each, np.int64, len(pairs)), pairs.pos)
        return Pairs(pairs.keys, list(zip(pairs.values, stamps.tolist(), strict=True)), pairs.pos)

    def marks(self) -> Marks:
        """How far the edge has come with all that was stamped."""
        return Marks(self._edge.dest, self._partition, self._positions, self._values)

    def _measured(self, key: str, value: Any) -> int:
        try:
            measured = self._progress.measure(value, self._moment)
            return NO_PROGRESS if measured is None else max(NO_PROGRESS, min(int(measured), NEVER))
        except Exception as error:
            problem = f"measuring its progress raised {brief(error)}"
            raise step_error(self._edge.step_id, problem, key=key, item=value) from error

    def _reach(self, measured: Positions, pos: Positions) -> Positions:
        """How far things have come with each of some items, which is remembered."""
        so_far = np.concatenate([[self._reached_us], np.minimum(measured, NEVER)])
        reached = np.maximum.accumulate(so_far)
        grown = np.flatnonzero(np.diff(reached))
        self._mark(pos[grown], reached[grown + 1])
        self._reached_us = int(reached[-1])
        return reached[1:]

    def _mark(self, positions: Positions, values: Positions) -> None:
        positions = np.concatenate([self._positions, positions])
        values = np.concatenate([self._values, values])
        kept = self._thinned(positions)
        while self._most is not None and len(kept) > self._most:
            self._run_bits += 1
            kept = self._thinned(positions)
        self._positions, self._values = positions[kept], values[kept]

    def _thinned(self, positions: Positions) -> Positions:
        """Which marks stay: the first, and the last of each run of positions."""
        runs = positions >> self._run_bits
        last = np.append(runs[1:] != runs[:-1], True)[: len(runs)]
        last[:1] = True
        return np.flatnonzero(last)
