"""A level over Spark's rows: packets come and leave as rows, and state is Spark's.

The last level's tasks also write what it makes for sinks, so that it need not go through the JVM to
another Python process. An epoch calls every shard of a partition, so the last of them is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import Row

from flow.dataflow import Step
from flow.engine.packets.packets import Packet
from flow.engine.spark.rows import Layout
from flow.engine.spark.session.disks import RunDisks
from flow.engine.spark.shipping import ShippedPlan
from flow.engine.spark.startup.local_copies import local_folders, worker_folder
from flow.engine.spark.store import SparkStore
from flow.engine.spark.task_writing import TaskWriting
from flow.engine.state.key_states import KeyStates
from flow.engine.state.keyed_state import states_in
from flow.engine.state.seeding import put_seeds
from flow.engine.state.shard_table import ShardTable
from flow.engine.steps.level import run_level
from flow.engine.steps.outputs import OutputTask
from flow.errors import EngineError


class SparkLevel:
    """A level of a plan, for all shards of a task.

    Args:
        shipped: the plan.
        layout: where Spark puts packets.
        number: which level it is.
        run_id: what the checkpoint is known by.
        writing: for the last level, how its tasks write the outputs.
        checkpoint: path or URI of the checkpoint.
    """

    def __init__(
        self,
        shipped: ShippedPlan,
        layout: Layout,
        number: int,
        run_id: str,
        writing: TaskWriting | None = None,
        checkpoint: str | None = None,
    ) -> None:
        self._shipped = shipped
        self._layout = layout
        self._number = number
        self._run_id = run_id
        self._writing = writing
        self._checkpoint = checkpoint
        self._outputs: OutputTask | None = None
        self._to_come = 0

    def open(self, headers: Any, segments: Any) -> None:
        """Take the state variables of the task."""
        names, folder = self._shipped.plan().kept_as, worker_folder(self._run_id)
        disks = RunDisks(self._checkpoint, local_folders())
        self._store = SparkStore(headers, segments, names, folder, disks)
        if self._writing is not None:
            writing, layout = self._writing.of_task(), self._layout
            self._outputs = OutputTask(self._shipped.plan(), writing)
            self._to_come = len(range(writing.partition, layout.shards, layout.partitions))

    def close(self) -> None:
        """Make sure that nothing was left unwritten.

        Raises:
            EngineError: when it was, as a shard was not called.
        """
        if self._outputs is not None and not self._outputs.is_done:
            raise EngineError(f"an epoch did not call {self._to_come} of the shards of a partition")

    def run(self, group: int, rows: Iterator[Row]) -> Iterator[Row]:
        """Run the level on the packets of a shard, which Spark knows by its grouping key."""
        for dest, shard, origin, seq, payload in self._written(self._made(group, rows)):
            yield _PACKET_ROW(dest, self._layout.group_of(shard), origin, seq, payload)
        self._store.check()  # a step's error may hide that it came of lost state

    def _written(self, made: Iterable[Packet]) -> Iterable[Packet]:
        """What leaves the task of what a shard has made."""
        if self._outputs is None:
            yield from made
            return
        yield from self._outputs.keep(made)
        self._to_come -= 1
        if not self._to_come:
            yield from self._outputs.write()

    def _made(self, group: int, rows: Iterator[Row]) -> Iterator[Packet]:
        shard = self._layout.shard_of(group)
        plan = self._shipped.plan()
        self._store.enter(shard)
        packets = [Packet(row.dest, shard, row.origin, row.seq, bytes(row.payload)) for row in rows]
        for name in plan.dropped:
            self._store.drop(name)
        packets = put_seeds(packets, plan, self._number, self._store.put)

        def states_of(step: Step) -> KeyStates | ShardTable:
            return states_in(self._store, plan, step.step_id)

        return run_level(plan, self._number, self._layout.shards, shard, packets, states_of)


_PACKET_ROW = Row("dest", "shard", "origin", "seq", "payload")
