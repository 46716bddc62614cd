"""Outputs of a Spark task, which collects items for sinks and writes them at its end."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from unittest.mock import Mock

import numpy as np
import pytest

import flow.operators as op
from flow import Dataflow
from flow.columns.chunks import Items, Pairs
from flow.connectors.sink import Sink, SinkBatch, WriteContext
from flow.engine.epoch.failures import decode_failure, encode_failure
from flow.engine.epoch.statistics import Stats, WorkPhase
from flow.engine.packets.packets import ERROR, STATS, Packet, encode_whole
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.plan import Plan
from flow.engine.spark import level_processor, shipping
from flow.engine.spark.level_processor import SparkLevel
from flow.engine.spark.shipping import Layout, ShippedPlan, TaskWriting
from flow.engine.steps.level import run_level
from flow.engine.steps.outputs import OutputTask
from flow.errors import EngineError, StepError
from flow.testing import TestingSource
from tests.support.one_stream import a_flow, step


@dataclass(frozen=True)
class RecordingSink(Sink[Any]):
    """Notes what it is asked to write, under a name."""

    name: str
    written: ClassVar[list[Any]] = []

    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> Any:
        items = [item for batch in batches for item in _items(batch)]
        self.written.append((self.name, context, items))
        return f"{self.name}: {len(items)}"

    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        raise AssertionError("tasks commit nothing")


@dataclass(frozen=True)
class FailingSink(RecordingSink):
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> Any:
        raise OSError("no room")


def _items(batch: SinkBatch) -> list[Any]:
    assert isinstance(batch, list)
    return batch


@pytest.fixture(autouse=True)
def _clear_records() -> None:
    RecordingSink.written.clear()


def two_outputs(second: Sink[Any] | None = None) -> Plan:
    flow = Dataflow("two")
    stream = op.input("in", flow, TestingSource([]))
    op.output("one", stream, RecordingSink("one"))
    op.output("two", stream, second or RecordingSink("two"))
    return compile_flow(flow)


def packet_for(plan: Plan, step_id: str, items: list[Any], *, seq: int = 0) -> Packet:
    edge = next(edge for edge in plan.outputs if edge.step_id == step_id)
    payload = encode_whole(Items(items, np.arange(seq, seq + len(items))), "in")
    return Packet(edge.dest, 0, 0, seq, payload)


COUNTS = Packet(STATS, 0, 0, 0, b"counts")
CONTEXT = WriteContext("", 7, 3, "run")


def test_each_sink_gets_all_of_a_task_s_items_once_in_order_of_position() -> None:
    plan = two_outputs()
    packets = [
        packet_for(plan, "one", ["c", "d"], seq=2),
        COUNTS,
        packet_for(plan, "two", ["x"]),
        packet_for(plan, "one", ["a", "b"]),
    ]
    outgoing = list(OutputTask(plan, CONTEXT).write_all(packets))
    assert RecordingSink.written == [
        ("one", WriteContext("one", 7, 3, "run"), ["a", "b", "c", "d"]),
        ("two", WriteContext("two", 7, 3, "run"), ["x"]),
    ]
    assert outgoing[0] == COUNTS
    *messages, times = outgoing[1:]
    assert [pickle.loads(one.payload) for one in messages] == ["one: 4", "two: 1"]
    assert [one.dest for one in messages] == [edge.dest for edge in plan.outputs]
    stats = Stats.decode(times.payload)
    assert set(stats.busy_ns) == {"one", "two"}
    ((work, ns),) = stats.work_ns.items()
    assert (work.stage, work.phase) == (1, WorkPhase.SINKS)
    assert ns >= sum(stats.busy_ns.values()) > 0


def test_nothing_is_written_before_all_items_have_arrived() -> None:
    plan = two_outputs()
    task = OutputTask(plan, CONTEXT)
    assert list(task.keep([packet_for(plan, "one", ["a"]), COUNTS])) == [COUNTS]
    assert not RecordingSink.written
    assert not task.is_done
    assert [packet.dest for packet in task.write()] == [plan.outputs[0].dest, STATS]
    assert task.is_done
    assert list(task.write()) == []


def test_a_task_that_has_failed_writes_nothing() -> None:
    plan = two_outputs()
    failure = Packet(ERROR, 0, 0, 0, encode_failure(StepError("map", "raised ValueError()")))
    packets = [packet_for(plan, "one", ["a"]), failure, packet_for(plan, "two", ["b"])]
    assert list(OutputTask(plan, CONTEXT).write_all(packets)) == [failure]
    assert not RecordingSink.written


def test_packets_of_outputs_written_elsewhere_pass_unchanged() -> None:
    plan = two_outputs()
    first, second = packet_for(plan, "one", ["a"]), packet_for(plan, "two", ["b"])
    task = OutputTask(plan, CONTEXT, left_out=frozenset({first.dest}))
    outgoing = list(task.write_all([first, second]))
    assert outgoing[0] == first
    assert [name for name, _, _ in RecordingSink.written] == ["two"]


def test_a_sink_that_fails_is_named() -> None:
    plan = two_outputs(FailingSink("two"))
    outgoing = list(OutputTask(plan, CONTEXT).write_all([packet_for(plan, "two", ["b"])]))
    assert [one.dest for one in outgoing] == [ERROR, STATS]
    assert (
        str(decode_failure(outgoing[0].payload)) == "step 'two': its sink raised OSError: no room"
    )


# --- tasks of Spark ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A task of Spark's, as far as it is asked."""

    partition: int
    properties: dict[str, str]

    def get(self) -> Task:
        return self

    def partitionId(self) -> int:
        return self.partition

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)


MICRO_BATCH = "streaming.sql.batchId"


def in_task(monkeypatch: pytest.MonkeyPatch, partition: int, batch: str | None = None) -> None:
    properties = {} if batch is None else {MICRO_BATCH: batch}
    monkeypatch.setattr(shipping, "SparkTask", Task(partition, properties))


@pytest.mark.parametrize(
    ("batch", "options", "context"),
    [
        ("4", {"first_epoch": 30, "rewinds": 2}, WriteContext("", 34, 1, "run", 2)),
        ("0", {}, WriteContext("", 0, 1, "run")),
        ("4", {"is_batch": True}, WriteContext("", 0, 1, "run")),
    ],
    ids=["counts on from the first epoch", "the first", "a batch within a foreign micro-batch"],
)
def test_an_epoch_s_number_is_that_of_the_micro_batch_after_the_first(
    batch: str, options: dict[str, Any], context: WriteContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_task(monkeypatch, 1, batch)
    assert TaskWriting("run", frozenset({9}), **options).context() == context


def test_only_tasks_that_know_their_epoch_write_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match="no Spark task runs in this thread"):
        TaskWriting("run", frozenset()).context()
    in_task(monkeypatch, 0)
    with pytest.raises(EngineError, match="did not tell a task which epoch it belongs to"):
        TaskWriting("run", frozenset()).context()


# --- the last level ---------------------------------------------------------------------------

SHARDS, PARTITIONS = 5, 2


def keyed_plan() -> Plan:
    counted = step(op.stateful_map, lambda n, _: (n, n))
    return compile_flow(a_flow(counted, sink=RecordingSink("out")))


@pytest.fixture
def last_level(monkeypatch: pytest.MonkeyPatch) -> SparkLevel:
    """The second of two partitions, which has shards 1 and 3; a shard makes its number."""
    plan = keyed_plan()
    dest = plan.outputs[0].dest

    def run_level(_plan: Plan, _level: int, _shards: int, shard: int, *_: Any) -> Iterator[Packet]:
        chunk = Pairs([f"k{shard}"], [shard], np.array([shard]))
        yield Packet(dest, shard, shard, 0, encode_whole(chunk, "count"))
        yield COUNTS

    monkeypatch.setattr(level_processor, "run_level", run_level)
    monkeypatch.setattr(level_processor, "SparkStore", Mock())
    in_task(monkeypatch, 1, batch="0")
    layout = Layout(SHARDS, PARTITIONS, 1)
    level = SparkLevel(ShippedPlan.pack(plan), layout, 1, "run", TaskWriting("run", frozenset()))
    level.open(None, None)
    return level


def run_shard(level: SparkLevel, shard: int) -> list[Any]:
    return list(level.run(Layout(SHARDS, PARTITIONS, 1).group_of(shard), iter(())))


def test_the_last_shard_of_a_partition_has_the_level_write(last_level: SparkLevel) -> None:
    assert [row.dest for row in run_shard(last_level, 3)] == [STATS]
    assert not RecordingSink.written
    with pytest.raises(EngineError, match="an epoch did not call 1 of the shards of a partition"):
        last_level.close()
    counts, message, times = run_shard(last_level, 1)
    assert (counts.dest, times.dest) == (STATS, STATS)
    assert pickle.loads(message.payload) == "out: 2"
    assert [items for _, _, items in RecordingSink.written] == [[("k1", 1), ("k3", 3)]]
    last_level.close()


def test_items_without_the_time_of_their_epoch_are_an_error() -> None:
    payload = encode_whole(Pairs(["k"], ["v"], np.zeros(1, np.int64)), "in")
    (made,) = run_level(keyed_plan(), 1, 1, 0, [Packet(0, 0, 0, 0, payload)], Mock())
    assert made.dest == ERROR
    error = decode_failure(made.payload)
    message = "an epoch sent items to level 1 without its system time"
    assert (type(error), str(error)) == (EngineError, message)
