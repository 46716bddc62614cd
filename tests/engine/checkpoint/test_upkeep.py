"""Upkeep of a checkpoint: Spark's maintenance, also of what earlier runs have left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import flow.operators as op
from flow import run
from flow.engine.checkpoint import checkpoint
from flow.engine.checkpoint.checkpoint import MAX_CHANGES, Upkeep, changes_since_snapshot
from flow.engine.checkpoint.storage import LocalStorage
from flow.engine.spark.session.jvm import SPARK_LOG
from flow.testing import TestingSource
from recovery import RecoveryConfig
from tests.support.one_stream import a_flow, running_total, step

UNLOAD = "spark.sql.streaming.stateStore.unloadOnCommit"


def test_changes_count_from_the_newest_snapshot() -> None:
    names = ["9_a.changelog", "10_b.changelog", "10_b.zip", "11_c.changelog", "12_d.changelog"]
    assert changes_since_snapshot(names) == 2
    assert changes_since_snapshot(["3.zip", "3.changelog", "20.changelog"]) == 17


def test_an_empty_store_has_no_changes() -> None:
    assert changes_since_snapshot([]) == 0
    assert changes_since_snapshot(["SSTs", "_metadata", ".12_d.changelog.crc"]) == 0


def run_once(spark: SparkSession, checkpoint: Path, items: int) -> None:
    source = TestingSource([("a", 1)] * items, batch_size=1)
    flow = a_flow(step(op.stateful_map, running_total), source=source)
    run(flow, spark=spark, recovery=RecoveryConfig(checkpoint), shards=2, partitions=1, drain=False)


@pytest.mark.extended
@pytest.mark.spark
def test_epochs_ask_for_maintenance_often_and_the_first_one_does_it_where_it_is_overdue(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs with shards that have no keys write nothing to Spark's log."""
    intervals = settings_of_epochs(
        monkeypatch, "spark.sql.streaming.stateStore.maintenanceInterval"
    )
    unloads, before = settings_of_epochs(monkeypatch, UNLOAD), SPARK_LOG.size()
    assert before > 0
    run_once(spark, tmp_path / "checkpoint", 2)
    assert len(unloads) >= 2
    assert (set(intervals), set(unloads)) == ({"10s"}, {"false"})
    unloads.clear()
    monkeypatch.setattr(checkpoint, "MAX_CHANGES", 0)
    run_once(spark, tmp_path / "checkpoint", 5)
    assert unloads[0] == "true"
    assert len(unloads) >= 3  # on a busy machine there are epochs that read nothing besides
    assert set(unloads[1:]) == {"false"}
    assert spark.conf.get(UNLOAD) == "false"
    assert "doesn't contain key" not in SPARK_LOG.written_since(before)


def settings_of_epochs(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """Return the list that a setting of the planning session is added to in each epoch."""
    found: list[Any] = []
    end_first_epoch = Upkeep.end_first_epoch

    def record(self: Upkeep, frame: DataFrame) -> None:
        found.append(frame.sparkSession.conf.get(name))
        end_first_epoch(self, frame)

    monkeypatch.setattr(Upkeep, "end_first_epoch", record)
    return found


@pytest.mark.parametrize(("newest", "overdue"), [(MAX_CHANGES, False), (MAX_CHANGES + 1, True)])
def test_maintenance_is_overdue_by_the_files_of_the_first_store(
    tmp_path: Path, newest: int, overdue: bool
) -> None:
    store = tmp_path / "spark" / "state" / "0" / "0"
    store.mkdir(parents=True)
    for name in ("1_a.zip", *(f"{version}_a.changelog" for version in range(1, newest + 1))):
        (store / name).touch()
    conf = Upkeep(LocalStorage(str(tmp_path)), "spark").conf
    assert conf == ({UNLOAD: "true"} if overdue else {})
