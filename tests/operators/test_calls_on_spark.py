"""Async calls in Spark's workers: clients that outlive epochs, and replays with equal call ids."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import TextSource
from flow.testing import ABORT, TestingSink, TestingSource
from recovery import RecoveryConfig, rewind
from tests.support.one_stream import a_flow, step

pytestmark = pytest.mark.spark


class Log:
    """A client that notes its calls in a file, as a server would."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def note(self, *fields: Any) -> None:
        """Append a line; a line this short is written as a whole."""
        await asyncio.sleep(0.001)
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(" ".join(map(str, (os.getpid(), id(self), *fields))) + "\n")


async def call(log: Log, pair: tuple[str, int]) -> tuple[str, tuple[int, str]]:
    key, value = pair
    await log.note(key, value, op.call_id())
    return key, (value, op.call_id())


def calls(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text("utf-8").splitlines()]


def with_calls(items: list[Any], path: Path, out: list[Any], late: list[Any]) -> Dataflow:
    """Return a flow with calls before and after a keyed step."""
    flow, log = Dataflow("calls"), str(path)
    s = op.input("in", flow, TestingSource(items, batch_size=3))
    first = op.map_async("first", s, call, resource=lambda: Log(log))
    op.output("out", first, TestingSink(out))
    total = op.stateful_map("total", s, lambda total, n: ((total or 0) + n, (total or 0) + n))
    op.output(
        "late", op.map_async("second", total, call, resource=lambda: Log(log)), TestingSink(late)
    )
    return flow


#  run       1                          2
#  items     a1 b2 a3 │ b4 a5 ABORT     b4 a5 │ a6 │ end
#  commit       x           -             x      x    x
@pytest.mark.extended
def test_a_replay_makes_calls_again_with_the_same_ids(spark: SparkSession, tmp_path: Path) -> None:
    path, out, late = tmp_path / "calls", list[Any](), list[Any]()
    items = [("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5), ABORT(), ("a", 6)]
    options: dict[str, Any] = {"spark": spark, "shards": 4, "partitions": 1}
    recovery = RecoveryConfig(str(tmp_path / "checkpoint"))

    assert run(with_calls(items, path, out, late), recovery=recovery, **options).aborted
    first_run = calls(path)
    run(with_calls(items, path, out, late), recovery=recovery, **options)

    made = Counter((key, int(value), found) for _, _, key, value, found in calls(path))
    received = [(key, value, found) for key, (value, found) in [*out, *late]]
    assert sorted(value for _, (value, _) in out) == [1, 2, 3, 4, 5, 6]
    assert sorted(value for _, (value, _) in late) == [1, 2, 4, 6, 9, 15]
    assert set(made) == set(received)
    assert len({found for _, _, found in made}) == len(made) == 12
    repeated = {(key, value) for (key, value, _), times in made.items() if times == 2}
    assert repeated == {("b", 4), ("a", 5), ("b", 6), ("a", 9)}
    assert set(made.values()) == {1, 2}
    assert {(key, int(value)) for _, _, key, value, _ in first_run} >= repeated


#  run        1                  rewind     2
#  items      a0 a1 a2 │ a3 a4 a5 │ a6 a7   a3 a4 a5 │ a6 a7 │ b8
def test_a_rewind_keeps_the_ids_of_calls(spark: SparkSession, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "calls", tmp_path / "checkpoint"
    options: dict[str, Any] = {"spark": spark, "shards": 4, "partitions": 1}
    options |= {"recovery": RecoveryConfig(checkpoint)}
    items = [("a", n) for n in range(8)]
    run(with_calls(items, path, [], []), **options)
    first = {tuple(of_call) for _, _, *of_call in calls(path)}
    path.unlink()
    for epoch in (1, 0):  # The second rewind keeps the plans of the first.
        rewind(checkpoint, epoch, yes=True, spark=spark)
    run(with_calls([*items, ("b", 8)], path, [], []), **options)
    again = {tuple(of_call) for _, _, *of_call in calls(path)}
    assert len(again & first) == 2 * 5
    assert {key for key, *_ in again - first} == {"b"}


def test_a_worker_keeps_its_client_for_all_epochs(spark: SparkSession, tmp_path: Path) -> None:
    path, log = tmp_path / "calls", str(tmp_path / "calls")
    calling = step(op.map_async, call, resource=lambda: Log(log))
    flow = a_flow(calling, source=TestingSource([("a", n) for n in range(4)], batch_size=2))
    assert run(flow, spark=spark, engine="streaming", shards=2, partitions=1).epochs == 3
    clients: dict[str, set[str]] = {}
    for pid, client, *_ in calls(path):
        clients.setdefault(pid, set()).add(client)
    assert {len(of_worker) for of_worker in clients.values()} == {1}
    assert str(os.getpid()) not in clients


def test_a_batch_makes_each_call_once(spark: SparkSession, tmp_path: Path) -> None:
    path, out, late = tmp_path / "calls", list[Any](), list[Any]()
    flow = with_calls([("a", n) for n in range(20)], path, out, late)
    run(flow, spark=spark, engine="batch")
    assert [value for _, (value, _) in out] == list(range(20))
    assert len({found for *_, found in calls(path)}) == len(calls(path)) == 40


async def identified(line: str) -> tuple[str, str]:
    return op.call_id(), line


def test_slices_of_a_batch_have_calls_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("1\n2\n3\n4\n")
    flow, out = Dataflow("calls"), list[Any]()
    lines = op.input("in", flow, TextSource(tmp_path, order="parallel", bytes_per_epoch=4))
    called = op.map_async("call", lines, identified)
    op.output("out", called, TestingSink(out))
    clock = win.EventClock(lambda pair: float(pair[1]), "1s")
    hours = win.TumblingWindower("1h")
    op.output("counts", win.count_window("n", called, clock, hours, one_key).down, TestingSink([]))
    run(flow, spark=spark, engine="batch")
    assert len({found for found, _ in out}) == len(out) == 8


def one_key(_: Any) -> str:
    return "k"
