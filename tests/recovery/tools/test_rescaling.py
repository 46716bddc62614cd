"""Rescaling of state to another layout, and runs that go on with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import CheckpointError, Dataflow, StopFlag, run
from flow.connectors.dataframe import DataFrameSource
from flow.engine.checkpoint.lock import CheckpointLock
from flow.engine.checkpoint.storage import Storage
from flow.engine.plan.compiler import compile_flow
from flow.engine.state.header import Header
from flow.keyed.step import Stateful
from flow.testing import ABORT, EOF, TestingSink, TestingSource, key_by_key
from recovery import RecoveryConfig, verify
from recovery.tools.relayout import read_seed_rows
from recovery.tools.rescaling import rescale

pytestmark = pytest.mark.spark

KEYS = 40


def items(first: int, last: int) -> list[Any]:
    return [(f"key {number % KEYS}", number) for number in range(first, last)]


def count_value(total: int | None, value: int) -> tuple[int, int]:
    return (total or 0) + 1, (total or 0) + 1


class Case:
    """A flow that counts values by key, and collects them in windows on the stream's watermark."""

    def __init__(self, spark: SparkSession, path: Path, values: list[Any], more: bool = False):
        self.spark = spark
        self.recovery = RecoveryConfig(path)
        self.received: dict[str, list[Any]] = {"counts": [], "windows": []}
        self.flow = Dataflow("rescaled")
        stream = op.input("in", self.flow, TestingSource(values, batch_size=50))
        if more:  # one level more, below all that was there
            more = op.stateful_map("more", stream, count_value)
            stream = op.map_value("back", op.join("both", stream, more), lambda both: both[0])
        counts = op.stateful_map("counts", stream, count_value)
        clock = win.EventClock(float, "10s", on_idle="hold", scope="stream")
        windows = win.collect_window("windows", stream, clock, win.TumblingWindower("30s"))
        op.output("out", counts, TestingSink(self.received["counts"]))
        op.output("closed", windows.down, TestingSink(self.received["windows"]))

    def run(self, **options: Any) -> Any:
        settings = {"shards": 8, "partitions": 1, "system_time": 0, **options}
        return run(self.flow, spark=self.spark, recovery=self.recovery, **settings)

    def sorted(self) -> dict[str, list[str]]:
        return {name: sorted(map(repr, found)) for name, found in self.received.items()}


def settings_in(seed: str) -> dict[str, set[str]]:
    """Return the settings of each step in the headers that a generation starts with."""
    found: dict[str, set[str]] = {}
    for one in read_seed_rows(seed):
        if one.number is None:
            found.setdefault(one.step, set()).add(Header.decode(one.content, one.step).settings)
    return found


def settings_of_steps(flow: Dataflow) -> dict[str, str]:
    """Return the settings of each keyed step of a flow."""
    steps = compile_flow(flow).steps
    return {
        name: step.operator.settings
        for name, step in steps.items()
        if isinstance(step.operator, Stateful)
    }


@pytest.fixture(scope="module")
def golden(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    case = Case(spark, tmp_path_factory.mktemp("golden") / "checkpoint", items(0, 200))
    case.run()
    return case.sorted()


@pytest.mark.parametrize(("shards", "partitions"), [(3, 2), (32, 1), (None, None)])
def test_a_run_resumes_with_the_state_in_another_layout(
    shards: int | None,
    partitions: int | None,
    golden: dict[str, list[str]],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    case = Case(spark, tmp_path / "checkpoint", [*items(0, 120), EOF(), *items(120, 200)])
    case.run(drain=False)
    moved = rescale(case.recovery.path, shards=shards, partitions=partitions, spark=spark)
    assert (moved.shards, moved.partitions) == (shards or 8, partitions or 1)
    # Every key is counted; open windows have the 30 values from 90 on.
    assert moved.keys == KEYS + 30
    assert settings_in(f"{case.recovery.path}/seed-1") == {
        "counts": {""},
        "windows": {settings_of_steps(case.flow)["windows"]},
    }
    case.run()
    assert case.sorted() == golden


def test_a_rescale_in_a_backlog_makes_no_value_late(spark: SparkSession, tmp_path: Path) -> None:
    """The dense input is behind the other, whose values hold no window open for it."""
    out: list[Any] = []
    flow = Dataflow("merged")
    inputs = [
        op.input(name, flow, TestingSource(list(seconds), batch_size=10))
        for name, seconds in (("dense", range(120)), ("sparse", range(0, 120, 12)))
    ]
    clock = win.EventClock(float, "0s", on_idle="hold")
    merged = op.merge("merged", *inputs)
    counts = win.count_window("n", merged, clock, win.TumblingWindower("1m"), lambda _: "all")
    op.output("out", op.map("count", counts.down, lambda item: item[1][1]), TestingSink(out))
    stop = StopFlag()
    options: dict[str, Any] = {"spark": spark, "recovery": RecoveryConfig(tmp_path / "c")}
    options |= {"shards": 8, "partitions": 1, "system_time": 0}
    run(flow, on_epoch=lambda _: stop.ask(), stop=stop, **options)
    rescale(tmp_path / "c", partitions=2, spark=spark)
    done = run(flow, **options)
    assert done.counts.get(("n", "late"), 0) == 0
    assert out == [65, 65]


def test_a_step_that_ran_over_columns_goes_on_key_by_key_after_a_move(
    golden: dict[str, list[str]], spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(spark, tmp_path / "checkpoint", [*items(0, 120), EOF(), *items(120, 200)])
    case.run(drain=False)
    rescale(case.recovery.path, shards=3, spark=spark)
    with key_by_key():
        case.run()
    assert case.sorted() == golden


def test_an_interrupted_epoch_is_replayed_in_the_new_layout(
    golden: dict[str, list[str]], spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(spark, tmp_path / "checkpoint", [*items(0, 110), ABORT(), *items(110, 200)])
    assert case.run().aborted
    rescale(case.recovery.path, shards=5, spark=spark)
    case.run()
    assert case.sorted() == golden


def test_a_flow_with_another_level_resumes_once_its_state_has_moved(
    golden: dict[str, list[str]], spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"
    values = [*items(0, 120), EOF(), *items(120, 200)]
    first = Case(spark, path, values)
    first.run(drain=False)
    second = Case(spark, path, values, more=True)
    with pytest.raises(CheckpointError, match="python -m recovery rescale") as caught:
        second.run()
    assert "had 1 level of keyed steps, one after the other, and has 3" in str(caught.value)
    rescale(path, spark=spark)
    second.run()
    both = {name: first.received[name] + second.received[name] for name in first.received}
    assert {name: sorted(map(repr, found)) for name, found in both.items()} == golden


def test_state_can_be_moved_repeatedly(
    golden: dict[str, list[str]], spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(spark, tmp_path / "checkpoint", [*items(0, 70), EOF(), *items(70, 200)])
    case.run(drain=False)
    rescale(case.recovery.path, shards=3, spark=spark)
    case.run(drain=False, trigger="available")
    assert rescale(case.recovery.path, shards=7, spark=spark).shards == 7
    case.run()
    assert case.sorted() == golden
    assert json.loads((tmp_path / "checkpoint/flow.json").read_text())["generation"] == 2


def test_a_checkpoint_whose_steps_keep_no_key_is_moved(spark: SparkSession, tmp_path: Path) -> None:
    received: list[Any] = []
    flow = Dataflow("forgets")
    stream = op.input("in", flow, TestingSource([*items(0, 5), EOF(), *items(5, 7)]))
    op.output("out", op.stateful_map("last", stream, forget), TestingSink(received))
    config = RecoveryConfig(tmp_path / "checkpoint")
    options = {"spark": spark, "recovery": config, "drain": False}
    run(flow, **options, shards=4, partitions=1)
    assert rescale(config.path, shards=2, spark=spark).keys == 0
    assert verify(config.path, spark=spark) == []
    run(flow, **options)
    assert [number for _, number in received] == list(range(7))


def forget(_state: None, value: int) -> tuple[None, int]:
    return None, value


def test_a_checkpoint_in_use_is_not_moved(spark: SparkSession, tmp_path: Path) -> None:
    case = Case(spark, tmp_path / "checkpoint", items(0, 50))
    case.run()
    with (
        CheckpointLock(Storage(spark, case.recovery.path)),
        pytest.raises(CheckpointError, match="is in use by another run"),
    ):
        rescale(case.recovery.path, shards=3, spark=spark)


def test_inputs_that_spark_reads_cannot_be_moved(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text('{"id": "a"}\n')
    frame = spark.readStream.schema("id string").json(str(tmp_path / "in"))
    flow = Dataflow("foreign")
    keyed = op.key_on("key", op.input("in", flow, DataFrameSource(frame)), "id")
    op.output("out", op.stateful_map("n", keyed, count_value), TestingSink([]))
    recovery = RecoveryConfig(tmp_path / "checkpoint")
    run(flow, spark=spark, recovery=recovery, trigger="available", shards=2, partitions=1)
    with pytest.raises(CheckpointError, match="inputs that Spark itself reads"):
        rescale(recovery.path, shards=3, spark=spark)
