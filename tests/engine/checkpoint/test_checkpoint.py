"""A checkpoint's lock and identity: one run at a time, and only the flow that it belongs to."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from flow import CheckpointError, EpochReport, run
from flow.connectors.source import Json
from flow.engine.checkpoint.checkpoint import check_spark_version
from flow.engine.checkpoint.identity import Identity
from flow.engine.checkpoint.lock import CheckpointLock, holder_of
from flow.engine.checkpoint.storage import LocalStorage, Storage
from flow.testing import TestingSink, TestingSource
from recovery import RecoveryConfig
from tests.support.one_stream import a_flow, as_read


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return LocalStorage(str(tmp_path / "checkpoint"))


@pytest.mark.spark
@pytest.mark.extended
def test_a_run_that_lost_its_lock_cannot_commit(spark: SparkSession, storage: Storage) -> None:
    """As one does that was suspended for longer than others waited for it."""

    def lose_it(_: EpochReport) -> None:
        storage.create("lock.2.json", {"host": "elsewhere", "pid": 7, "token": "other"})

    out: list[int] = []
    flow = a_flow(as_read, source=TestingSource([1, 2, 3], batch_size=1), sink=TestingSink(out))
    message = f"{storage.root} was taken over by process 7 on elsewhere, since None, because this"
    with pytest.raises(CheckpointError, match=message):
        run(flow, spark=spark, recovery=RecoveryConfig(storage.root), on_epoch=lose_it)
    assert out == [1]
    holder = holder_of(storage)
    assert holder is not None
    assert holder.content["token"] == "other"


def test_nobody_else_can_enter_a_checkpoint(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "a/checkpoint"))
    before = os.umask(0o022)
    try:
        with CheckpointLock(storage):
            assert stat.S_IMODE(Path(storage.root).stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_an_identity_survives_a_round_trip() -> None:
    places = {"v": 1}, {"v": 2}, {"fingerprint": {}}, ("a", "b"), 3, ((8, {"fingerprint": 1}),)
    identity = Identity("f", "r", 4, 2, "4.3.0", "transformWithState", 1, 7, *places)
    assert Identity.from_json(json.loads(json.dumps(identity.to_json())), "x") == identity
    first = Identity("f", "r", 4, 2, "4.3.0", "transformWithState")
    assert (identity.spark, first.spark) == ("spark-1", "spark")


#   epochs    3  4  5  |  6  7  |  8
#   recovery  one      |  two   |  three
def test_an_identity_records_its_state_at_earlier_epochs() -> None:
    one = Identity("f", "r", 4, 2, "4.3.0", "transformWithState", recovery="one")
    two = one.admitting("two", ("old",), [3, 4, 5])
    assert (two.recovery, two.dropping, two.earlier) == ("two", ("old",), ((5, "one"),))
    failed = two.admitting("failed", (), [3, 4, 5])
    assert failed.earlier == ((5, "one"),), "no epoch was done with it"
    three = two.admitting("three", (), [4, 5, 6, 7])
    found = [three.set_back(epoch).recovery for epoch in (4, 5, 6, 7, 8)]
    assert found == ["one", "one", "two", "two", "three"]
    assert three.set_back(6).earlier == ((5, "one"),)
    assert (two.set_back(5).dropping, two.set_back(6).dropping) == ((), ("old",))
    assert [two.rewinds, two.set_back(5).set_back(5).rewinds] == [0, 2]
    assert three.admitting("three", (), [6, 7, 8]).earlier == ((7, "two"),), "others are not kept"
    assert one.admitting("two", (), []).earlier == ()


def test_plans_of_undone_epochs_fit_only_the_flow_that_they_were_made_for() -> None:
    def flow(code: str, wait: str = "5s", **others: Json) -> Json:
        known = {"inputs": {"a": 1}, "tables": {}, "keyed": {"w": wait}, **others}
        return {"graph": code, "names": {}, "fingerprint": known}

    first = Identity("f", "r", 4, 2, "4.3.0", "transformWithState", recovery=flow("wrong"))
    made = first.set_back(3, ("plan",))
    assert made.admitting(flow("right", "9s"), (), [3]).undone == ("plan",)
    for others in ({"inputs": {}}, {"tables": {"t": 1}}, {"keyed": {"w": "5s", "x": "1s"}}):
        other = made.admitting(flow("wrong", **others), (), [3])
        assert (other.undone, other.set_back(3, ("plan",)).undone) == ((), ())


def test_a_checkpoint_of_a_newer_spark_is_refused_and_one_of_an_older_spark_continues() -> None:
    made = Identity("f", "r", 4, 2, "4.2.1", "transformWithState")
    for spark_version in ("4.2.0", "4.2.1", "4.3.0", "5.0.0"):
        check_spark_version(made, spark_version, "x")
    with pytest.raises(CheckpointError) as caught:
        check_spark_version(made, "4.1.4", "checkpoints/f")
    assert str(caught.value) == (
        "checkpoints/f was last written with Spark 4.2.1, and Spark 4.1.4 is older: use Spark 4.2 "
        "or newer, or start again with an empty directory"
    )


def test_a_checkpoint_needs_a_pyspark_with_its_adapter() -> None:
    """A vendor's Spark 4.0 may have an adapter that other 4.0 lack."""
    made = Identity("f", "r", 4, 2, "4.0.1", "transformWithStateInTables")
    with pytest.raises(CheckpointError) as caught:
        check_spark_version(made, "4.3.0", "checkpoints/f")
    assert str(caught.value) == (
        "checkpoints/f was made with transformWithStateInTables of PySpark, which PySpark "
        f"{pyspark.__version__} lacks: use the Spark that wrote it, 4.0.1"
    )
