"""Parts of a flow that Spark's tasks get: the plan, its layout, and the writing of outputs.

A plan is pickled once with its functions, and loaded once in each process.
"""

from __future__ import annotations

import io
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext as SparkTask
from pyspark import cloudpickle as untyped_cloudpickle
from pyspark.sql.types import StructType
from typing_extensions import override

from flow.connectors.sink import WriteContext
from flow.engine.epoch.context import Control
from flow.engine.epoch.failures import decode_failure
from flow.engine.packets.packets import CONTROL, ERROR, PACKET_DDL, Packet, from_batch, to_batches
from flow.engine.plan.plan import Plan
from flow.engine.plan.portability import check_portable
from flow.engine.steps.outputs import OutputTask
from flow.errors import EngineError, FlowBuildError, error_message
from flow.garbage import collect_seldom

cloudpickle: Any = untyped_cloudpickle
_loaded_plans: dict[str, tuple[Plan, dict[str, type]]] = {}
"""Plans with the classes of their main script, by the id of the pickle."""
_MAX_LOADED_PLANS = 4

_MICRO_BATCH = "streaming.sql.batchId"
"""The property of a Spark task with the number of the micro-batch, which is an epoch."""


@dataclass(frozen=True)
class ShippedPlan:
    """A pickled plan, with the search path that a worker needs to load it.

    Attributes:
        pickle_id: id of this pickle, of which a plan may have several.
        content: the pickled plan, with functions and classes of the main script by value.
        search_path: `sys.path` of the driver, which workers append to theirs.
    """

    pickle_id: str
    content: bytes
    search_path: tuple[str, ...]

    @classmethod
    def pack(cls, plan: Plan) -> ShippedPlan:
        """Pickle a plan.

        Raises:
            FlowBuildError: when a step cannot be pickled; the error names the step and variable.
        """
        try:
            content = _pickled((plan, _main_classes()))
        except Exception as error:
            check_portable(plan.steps)
            raise FlowBuildError(
                f"flow {plan.flow_id!r} cannot be sent to workers: {error_message(error)}: make "
                "values that cannot be pickled inside the functions that use them"
            ) from error
        return cls(uuid.uuid4().hex, content, tuple(path for path in sys.path if path))

    def plan(self) -> Plan:
        """Return the plan, loaded at most once in a worker's process."""
        loaded = _loaded_plans.get(self.pickle_id)
        if loaded is None:
            sys.path.extend(path for path in self.search_path if path not in sys.path)
            collect_seldom()
            loaded = cloudpickle.loads(self.content)
            while len(_loaded_plans) >= _MAX_LOADED_PLANS:
                del _loaded_plans[next(iter(_loaded_plans))]
            _loaded_plans[self.pickle_id] = loaded
        plan, classes = loaded
        # Pickle looks for them there, where another plan may have put others of their names.
        vars(sys.modules["__main__"]).update(classes)
        return plan


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # Its base has no types.
    """A pickler that makes classes by value as they are: with their slots, and within others.

    That of Spark makes a class without slots at the top of its module. The driver can then load no
    object that a worker makes of it.
    """

    @override
    def reducer_override(self, obj: Any) -> Any:
        """Return the parts to make an object of, for a class with those that it has at once."""
        reduced = super().reducer_override(obj)
        match reduced:
            case _, (_, _, _, dict(at_once), _, _), (dict(later), _), *_ if isinstance(obj, type):
                at_once["__qualname__"] = obj.__qualname__
                if later.get("__slots__"):
                    at_once["__slots__"] = later.pop("__slots__")
        return reduced


def _pickled(value: Any) -> bytes:
    with io.BytesIO() as content:
        _Pickler(content).dump(value)
        return content.getvalue()


def _main_classes() -> dict[str, type]:
    """Return the classes of the main script; pickle looks for them in the module ``__main__``."""
    main = sys.modules["__main__"]
    return {
        name: value
        for name, value in vars(main).items()
        if isinstance(value, type) and value.__module__ == "__main__" and _can_be_pickled(value)
    }


def _can_be_pickled(value: Any) -> bool:
    try:
        _pickled(value)
    except Exception:  # An object that can be pickled has no such class.
        return False
    return True


@dataclass(frozen=True)
class Layout:
    """Layout of a flow over Spark, fixed for a checkpoint's generation.

    Attributes:
        shards: number of shards of the key space.
        partitions: number of partitions of each level.
        levels: number of levels.
    """

    shards: int
    partitions: int
    levels: int

    def group_of(self, shard: int) -> int:
        """Return the grouping key of a shard in rows."""
        return group_ids(self.shards, self.partitions)[shard]

    def shard_of(self, group: int) -> int:
        """Return the shard of a grouping key."""
        return group_ids(self.shards, self.partitions).index(group)

    def to_batches(self, packets: Iterable[Packet]) -> Iterator[pa.RecordBatch]:
        """Yield packets as Arrow batches of rows."""
        return to_batches(packet._replace(shard=self.group_of(packet.shard)) for packet in packets)

    def from_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
        """Yield the packets in Arrow batches of rows."""
        for batch in batches:
            for packet in from_batch(batch):
                yield packet._replace(shard=self.shard_of(packet.shard))


@lru_cache(maxsize=8)
def group_ids(shards: int, partitions: int) -> tuple[int, ...]:
    """Return a grouping key for each shard, by which Spark spreads shards evenly over partitions.

    Spark chooses the partition of an integer key by its own 32-bit Murmur3 hash with seed 42. Shard
    s has the least integer that no shard before it has and whose partition is ``s % partitions``.
    """
    without_id: dict[int, list[int]] = {number: [] for number in range(partitions)}
    for shard in reversed(range(shards)):
        without_id[shard % partitions].append(shard)
    ids = [0] * shards
    candidate = 0
    while any(without_id.values()):
        partition = spark_hash(candidate) % partitions
        if without_id[partition]:
            ids[without_id[partition].pop()] = candidate
        candidate += 1
    return tuple(ids)


def spark_hash(value: int) -> int:
    """Return Spark SQL's hash of a 32-bit integer: signed MurmurHash3 x86-32 with seed 42.

    >>> spark_hash(0), spark_hash(1)
    (933211791, -559580957)
    """
    mask = 0xFFFFFFFF
    mixed = (value * 0xCC9E2D51) & mask
    mixed = ((mixed << 15) | (mixed >> 17)) & mask
    mixed = 42 ^ ((mixed * 0x1B873593) & mask)
    mixed = ((mixed << 13) | (mixed >> 19)) & mask
    mixed = ((mixed * 5 + 0xE6546B64) & mask) ^ 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & mask
    return mixed - (1 << 32) if mixed >> 31 else mixed


class FailingLayout(Layout):
    """Layout of a job in which a failure of the flow fails the Spark task that meets it.

    A task that fails early sends only a part of its items. Without a driver that looks at all
    packets before any row is used, Spark must not run the next stage on that part.
    """

    @override
    def to_batches(self, packets: Iterable[Packet]) -> Iterator[pa.RecordBatch]:
        return super().to_batches(raising(packets))


def raising(packets: Iterable[Packet]) -> Iterator[Packet]:
    """Yield packets, and raise the failure in a packet.

    Raises:
        FlowError: when a packet has a failure.
    """
    for packet in packets:
        if packet.dest == ERROR:
            raise decode_failure(packet.payload)
        yield packet


class LastStage(ABC):
    """The end of a job: what its last stage makes of the packets of outputs.

    Attributes:
        columns: the columns of the job's data frame, as Spark's schema or DDL text.
    """

    columns: StructType | str

    @abstractmethod
    def batches(
        self, plan: Plan, layout: Layout, packets: Iterator[Packet]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition, from all its packets, in a worker."""


@dataclass(frozen=True)
class TaskWriting(LastStage):
    """Writing of a run's outputs by the tasks of the last stage; the driver gets all other packets.

    Attributes:
        run_id: id of the checkpoint in sinks.
        left_out: edges whose sinks take Spark data frames, which no task writes.
        first_epoch: the number of the query's first epoch.
        is_batch: True if the first epoch is the only one.
        rewinds: number of rewinds of the checkpoint.
    """

    run_id: str
    left_out: frozenset[int]
    first_epoch: int = 0
    is_batch: bool = False
    rewinds: int = 0
    columns = PACKET_DDL

    @override
    def batches(
        self, plan: Plan, layout: Layout, packets: Iterator[Packet]
    ) -> Iterator[pa.RecordBatch]:
        first = next(packets, None)
        if first is None:
            return
        if first.dest != CONTROL:
            packets = chain([first], packets)
        yield from layout.to_batches(self.task(plan, [first]).write_all(packets))

    def task(self, plan: Plan, packets: Iterable[Packet]) -> OutputTask:
        """Return the writing of the current task of Spark, from packets that the task has."""
        controls = (packet for packet in packets if packet.dest == CONTROL)
        control = next(controls, None)
        number = None if control is None else Control.decode(control.payload).number
        return OutputTask(plan, self.context(number), self.left_out)

    def context(self, epoch: int | None = None) -> WriteContext:
        """Return the context of the writes of the current task, but for their step.

        Args:
            epoch: the epoch's number; ``None`` in a task without the epoch's control. Such a task
                has a property of Spark instead, but not over Spark Connect.
        """
        task = _task()
        if epoch is None:
            number = 0 if self.is_batch else int(task.getLocalProperty(_MICRO_BATCH) or -1)
            if number < 0:
                raise EngineError("Spark did not tell a task which epoch it belongs to")
            epoch = self.first_epoch + number
        return WriteContext("", epoch, task.partitionId(), self.run_id, self.rewinds)


def task_partition() -> int:
    """Return the number of the current task's partition."""
    return int(_task().partitionId())


def _task() -> SparkTask:
    task = SparkTask.get()
    if task is None:
        raise EngineError("a level runs in Spark tasks only: no Spark task runs in this thread")
    return task


def end_partition(
    shipped: ShippedPlan,
    layout: Layout,
    last_stage: LastStage,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Run the last stage over a partition of a flow without levels."""
    return last_stage.batches(shipped.plan(), layout, layout.from_batches(batches))
