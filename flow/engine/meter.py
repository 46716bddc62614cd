"""Measuring how far a stream has come, where its items leave for a step that wants to know.

Whoever sends items along an edge to a step with a `Progress` measures them in order, stamps each
with the greatest measure so far, and tells every shard, in a packet of `Marks`, by which positions
it had come how far. `flow.engine.progress` puts together there what all have sent.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from flow.engine.chunks import Chunk, Pairs, Positions, as_pairs
from flow.engine.plan import Edge
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
    """Measures what one origin sends along one edge."""

    def __init__(self, edge: Edge, progress: Progress, partition: Partition, moment: Moment):
        self._edge = edge
        self._measure = progress.measure
        self._partition = partition
        self._moment = moment
        self._most = MOST_MARKS if partition.is_source else None
        self._run_bits = 0
        self._reached_us = NO_PROGRESS
        self._marks: list[tuple[int, int]] = []

    def stamp(self, chunk: Chunk) -> Pairs:
        """Measure items, which come in order; each value becomes ``(value, reached so far)``.

        Raises:
            StepError: when the measure raises.
        """
        pairs = as_pairs(chunk, self._edge.step_id)
        stamped: list[Any] = []
        for key, value, pos in zip(pairs.keys, pairs.values, pairs.pos.tolist(), strict=True):
            self._meet(key, value, pos)
            stamped.append((value, self._reached_us))
        return Pairs(pairs.keys, stamped, pairs.pos)

    def marks(self) -> Marks:
        """How far the edge has come with all that was stamped."""
        positions, values = np.array(self._marks, np.int64).reshape(-1, 2).T
        return Marks(self._edge.dest, self._partition, positions, values)

    def _meet(self, key: str, value: Any, pos: int) -> None:
        try:
            measured = self._measure(value, self._moment)
            if measured is None or measured <= self._reached_us:
                return
            self._reached_us = min(int(measured), NEVER)
        except Exception as error:
            problem = f"measuring its progress raised {brief(error)}"
            raise step_error(self._edge.step_id, problem, key=key, item=value) from error
        self._mark(pos)

    def _mark(self, pos: int) -> None:
        marks = self._marks
        if len(marks) > 1 and marks[-1][0] >> self._run_bits == pos >> self._run_bits:
            marks.pop()
        marks.append((pos, self._reached_us))
        while self._most is not None and len(marks) > self._most:
            self._run_bits += 1
            marks = self._marks = self._thinned(marks)

    def _thinned(self, marks: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The first mark, and the last of each run of positions."""
        last = {pos >> self._run_bits: (pos, value) for pos, value in marks[1:]}
        return [marks[0], *last.values()]
