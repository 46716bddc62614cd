"""Seeding of a flow with state made elsewhere."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import CheckpointError, Dataflow, StepError, run
from flow.errors import FlowBuildError, FlowTypeError
from flow.testing import TestingSink, TestingSource
from flow_windowing import EventClock, TumblingWindower, collect_window, dedup, join_asof
from flow_windowing.rules.key_state import DriverState, IntervalState, tag_of
from flow_windowing.time_joins.interval_matching import RIGHT
from recovery import RecoveryConfig, verify
from recovery.tools.exporting import read_states
from recovery.tools.layouts import seed

STATES = {"total": {"a": 10, "c": 30}, "last": {"c": (7,)}}


def total(kept: int | None, value: int) -> tuple[int, int]:
    return (kept or 0) + value, (kept or 0) + value


def make_flow(items: list[Any], totals: list[Any], lasts: list[Any]) -> Dataflow:
    flow = Dataflow("seeded")
    stream = op.input("in", flow, TestingSource(items))
    op.output("totals", op.stateful_map("total", stream, total), TestingSink(totals))
    op.output("lasts", op.reduce_final("last", stream, lambda a, b: b), TestingSink(lasts))
    return flow


@pytest.mark.extended
@pytest.mark.spark
def test_a_flow_starts_with_its_seeded_state(spark: SparkSession, tmp_path: Path) -> None:
    totals, lasts = list[Any](), list[Any]()
    flow = make_flow([("a", 1), ("b", 2), ("c", 3)], totals, lasts)
    keys = seed(tmp_path / "checkpoint", flow, STATES, shards=4, partitions=1, spark=spark)
    assert keys == 3
    run(flow, spark=spark, recovery=RecoveryConfig(tmp_path / "checkpoint"))
    assert sorted(totals) == [("a", 11), ("b", 2), ("c", 33)]
    assert sorted(lasts) == [("a", 1), ("b", 2), ("c", 3)]
    with pytest.raises(CheckpointError, match="holds a checkpoint already"):
        seed(tmp_path / "checkpoint", flow, STATES, spark=spark)


#  key a    its last value was of 1:00, at 1:00   │ a run at 4:00 reads those of 1:01 and 2:10
@pytest.mark.spark
def test_the_time_before_a_seeded_run_makes_no_value_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, out, late = tmp_path / "checkpoint", list[Any](), list[Any]()
    flow, clock = Dataflow("late"), EventClock(float, "5m")
    stream = op.input("in", flow, TestingSource([("a", 3660), ("a", 7800)], batch_size=1))
    windows = collect_window("windows", stream, clock, TumblingWindower("1h"))
    op.output("out", windows.down, TestingSink(out))
    op.output("late_out", windows.late, TestingSink(late))
    at_one = DriverState((3300_000000, 3600_000000), None, None, 0, 0, {}, (), {}, {})
    seed(path, flow, {"windows": {"a": at_one}}, shards=4, partitions=1, spark=spark)
    now = datetime(1970, 1, 1, 4, tzinfo=UTC)
    run(flow, spark=spark, recovery=RecoveryConfig(path), system_time=now)
    assert ([values for _, (_, values) in out], late) == ([[3660], [7800]], [])


@pytest.mark.spark
def test_steps_that_have_no_logic_of_a_key_are_seeded(spark: SparkSession, tmp_path: Path) -> None:
    path, passed, joined = tmp_path / "checkpoint", list[Any](), list[Any]()
    flow, clock = Dataflow("columnar"), EventClock(float, "5m")
    stream = op.input("in", flow, TestingSource([("a", 3660), ("a", 7800)], batch_size=1))
    ids = dedup("ids", stream, clock, ttl="1h").down
    later = op.map_value("later", stream, lambda second: second + 60)
    pairs = join_asof("pairs", stream, later, clock, "1h").down
    op.output("passed", ids, TestingSink(passed))
    op.output("joined", op.map_value("pair", pairs, lambda one: [*one[1]]), TestingSink(joined))
    at_one = (3300_000000, 3600_000000)
    right = IntervalState(at_one, 1, [(3300_000000, tag_of(0, RIGHT, 0), 3300)])
    states = {"ids": {"a": (at_one, [3660], [3660_000000])}, "pairs": {"a": right}}
    seed(path, flow, states, shards=4, partitions=1, spark=spark)
    run(flow, spark=spark, recovery=RecoveryConfig(path), system_time=3600)
    assert (passed, joined) == ([("a", 7800)], [("a", [3660, 3300]), ("a", [7800, None])])


@pytest.mark.spark
def test_a_seed_that_lacks_a_part_or_has_another_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, flow = tmp_path / "checkpoint", make_flow([("a", 1)], [], [])
    seed(path, flow, STATES, shards=4, partitions=1, spark=spark)
    first, second, *_ = sorted((path / "seed-1").glob("*.parquet"))
    assert verify(path, spark=spark) == []
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    found = [(one.file, one.problem) for one in verify(path, spark=spark)]
    changed = "is not what was written: its checksum is another"
    assert found == [(f"seed-1/{first.name}", "is missing"), (f"seed-1/{second.name}", changed)]
    with pytest.raises(CheckpointError, match=r"part-00\.parquet is missing"):
        run(flow, spark=spark, recovery=RecoveryConfig(path))


def test_a_step_that_keeps_no_state_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FlowBuildError, match="'in' keeps no state; those that do: 'total', 'last'"):
        seed(tmp_path, make_flow([], [], []), {"in": {}})


def test_a_state_that_a_step_cannot_restore_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="step 'last': cannot continue from a state") as caught:
        seed(tmp_path, make_flow([], [], []), {"last": {"k": 7}})
    assert "key:  'k'" in str(caught.value)


@pytest.mark.parametrize("key", [None, 1])
def test_a_key_that_is_no_text_is_an_error(tmp_path: Path, key: Any) -> None:
    with pytest.raises(FlowTypeError, match=r"step 'total': a key .* must be a text, got"):
        seed(tmp_path, make_flow([], [], []), {"total": {key: 7}})


def test_several_states_of_a_key_are_an_error(tmp_path: Path) -> None:
    file = tmp_path / "states.parquet"
    pq.write_table(pa.table({"key": ["b", "a", "a"], "state": [1, 2, 3]}), file)
    with pytest.raises(CheckpointError, match="has 2 rows of key 'a'"):
        read_states(file)


def test_states_are_read_from_a_parquet_file(tmp_path: Path) -> None:
    file = tmp_path / "states.parquet"
    pq.write_table(pa.table({"key": ["a", "b"], "state": [1, 2]}), file)
    assert read_states(file) == {"a": 1, "b": 2}


def test_pickled_snapshots_are_read_only_when_they_are_trusted(tmp_path: Path) -> None:
    file = tmp_path / "states.parquet"
    snapshots = [pickle.dumps((1, "x"))]
    pq.write_table(pa.table({"key": ["a"], "snapshot": snapshots}), file)
    with pytest.raises(CheckpointError, match="may run any code when they are read"):
        read_states(file)
    assert read_states(file, trust=True) == {"a": (1, "x")}


def test_a_file_without_states_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "states.parquet"
    pq.write_table(pa.table({"name": ["a"]}), file)
    with pytest.raises(CheckpointError, match="has the columns name: a seed needs 'key'"):
        read_states(file)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_states(tmp_path / "missing.parquet")
