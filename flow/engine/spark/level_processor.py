"""A level of a plan in a Spark task: packets as rows, state in Spark's state store.

PySpark 4.0 passes rows to stateful processors as pandas data frames only; see `LevelAdapter`.

Spark calls the processor of a level once in an epoch for each shard. Tasks of the last level also
write outputs, which saves a transfer of items through the JVM to another Python process. Spark
calls every shard of a partition in an epoch, so a task knows which call is its last.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle as untyped_cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from flow.dataflow import Step
from flow.engine.packets.packets import Packet
from flow.engine.progress.step_time import HoldRelay
from flow.engine.spark.session.session_settings import has_speedups
from flow.engine.spark.session.spark_capabilities import LevelAdapter
from flow.engine.spark.session.spark_failures import RunDisks
from flow.engine.spark.session.versions import forget_zip_importers
from flow.engine.spark.shipped_code import Shipped
from flow.engine.spark.shipping import Layout, ShippedPlan, TaskWriting, task_partition
from flow.engine.spark.spark_store import SparkStore, local_folders, worker_folder
from flow.engine.state.key_states import KeyStates
from flow.engine.state.step_state import ShardTable
from flow.engine.state.store import put_seeds
from flow.engine.steps.level import run_level, states_in
from flow.engine.steps.outputs import OutputTask
from flow.errors import EngineError

if TYPE_CHECKING:
    import pandas as pd

cloudpickle: Any = untyped_cloudpickle
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass
class SparkLevel:
    """A level of a plan, for all shards of a task.

    Attributes:
        shipped: the plan.
        layout: shards and partitions of the flow.
        number: number of the level, from 1.
        run_id: id of the checkpoint in sinks.
        writing: writing of outputs by the last level's tasks; ``None`` for other levels.
        checkpoint: path or URI of the checkpoint.
    """

    shipped: ShippedPlan
    layout: Layout
    number: int
    run_id: str
    writing: TaskWriting | None = None
    checkpoint: str | None = None
    _outputs: OutputTask | None = field(default=None, init=False)
    _relay: HoldRelay | None = field(default=None, init=False)
    _shards_left: int = field(default=0, init=False)

    def open(self, headers: Any, segments: Any) -> None:
        """Set Spark's state variables of headers and segments."""
        forget_zip_importers()
        names = self.shipped.plan().state_names
        folder = worker_folder(self.run_id) if has_speedups() else None
        disks = RunDisks(self.checkpoint, local_folders())
        self._store = SparkStore(headers, segments, names, folder, disks)
        plan, layout = self.shipped.plan(), self.layout
        if self.writing is None and plan.holding:
            self._relay = HoldRelay(layout.shards, task_partition())
        if self.writing is not None or plan.holding:
            self._shards_left = len(range(task_partition(), layout.shards, layout.partitions))

    def close(self) -> None:
        """Check that all outputs were written.

        Raises:
            EngineError: when Spark has not called every shard of the partition.
        """
        is_done = self._outputs is None or self._outputs.is_done
        if not is_done or (self._relay is not None and self._shards_left):
            raise EngineError(
                f"an epoch did not call {self._shards_left} of the shards of a partition"
            )

    def run(self, group: int, rows: Iterator[Row]) -> Iterator[Row]:
        """Run the level on the packets of a shard, given by its grouping key."""
        for dest, shard, origin, seq, payload in self._run(group, rows):
            yield _PACKET_ROW(dest, self.layout.group_of(shard), origin, seq, payload)

    def run_frames(self, group: int, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Run the level as `run` does, with packets as rows of pandas data frames."""
        rows = (row for frame in frames for row in frame.itertuples(index=False))
        for batch in self.layout.to_batches(self._run(group, rows)):
            yield batch.to_pandas()

    def _run(self, group: int, rows: Iterator[Any]) -> Iterator[Packet]:
        """Run the level on packets as rows, and yield those that leave the task."""
        self._shards_left -= 1
        shard = self.layout.shard_of(group)
        packets = [Packet(row.dest, shard, row.origin, row.seq, bytes(row.payload)) for row in rows]
        if self.writing is not None and self._outputs is None:
            self._outputs = self.writing.task(self.shipped.plan(), packets)
        yield from self._sent(self._packets(shard, packets))
        self._store.check()  # A lost connection may be the cause of a step's error.

    def _sent(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        """Yield the packets of a shard that leave the task, and after the last shard the rest.

        Packets for sinks, and those of holds, are kept until then.
        """
        is_last = not self._shards_left
        if self._outputs is not None:
            yield from self._outputs.keep(packets)
            if is_last:
                yield from self._outputs.write()
        elif self._relay is not None:
            yield from self._relay.forward(packets)
            if is_last:
                yield from self._relay.finish()
        else:
            yield from packets

    def _packets(self, shard: int, packets: list[Packet]) -> Iterator[Packet]:
        plan = self.shipped.plan()
        self._store.enter(shard)
        for name in plan.dropped:
            self._store.drop(name)
        packets = put_seeds(packets, plan, self.number, self._store.put)

        def states_of(step: Step) -> KeyStates | ShardTable:
            return states_in(self._store, plan, step.step_id)

        return run_level(plan, self.number, self.layout.shards, shard, packets, states_of)


_PACKET_ROW = Row("dest", "shard", "origin", "seq", "payload")


class LevelProcessor(StatefulProcessor):
    """Processor of a level on Spark's rows and state.

    Before a query's first epoch, Spark creates each processor in a new Python process to get its
    state variables, and waits. To save time, the class is pickled by value and its level as bytes,
    so that the new process imports neither this project nor the modules of the flow: no method of
    the class may name anything of them.

    Args:
        level: a pickle of a `SparkLevel`.
        code: modules that the server lacks; see `Shipped`.
    """

    def __init__(self, level: bytes, code: bytes = b"") -> None:
        self._shipped = Shipped(level, code)
        self._level: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variables; called by Spark before the first shard.

        Every flow has the same variables, because a checkpoint outlives changes of its steps.
        """
        self._headers = handle.getMapState("headers", "step string", "content binary")
        self._segments = handle.getMapState("segments", "step string, number int", "content binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002
        """Run the level on a shard's packets; called by Spark."""
        yield from self._opened().run(key[0], rows)

    def _opened(self) -> Any:
        """Return the level, which is loaded for the first shard."""
        if self._level is None:
            self._level = self._shipped.get()
            self._level.open(self._headers, self._segments)
        return self._level

    def close(self) -> None:
        """Close the level; called by Spark after the last shard."""
        if self._level is not None:
            self._level.close()


class FrameLevelProcessor(LevelProcessor):
    """Processor of a level on packets as rows of pandas data frames."""

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ARG002
    ) -> Iterator[Any]:
        yield from self._opened().run_frames(key[0], rows)


PROCESSORS: Mapping[LevelAdapter, type[LevelProcessor]] = {
    LevelAdapter.ROWS: LevelProcessor,
    LevelAdapter.FRAMES: FrameLevelProcessor,
}
"""The class of processor for each adapter."""
