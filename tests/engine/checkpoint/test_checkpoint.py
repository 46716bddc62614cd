"""A checkpoint's lock and identity: one run at a time, and only the flow that it belongs to."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flow import CheckpointError, EpochReport, run
from flow.connectors.source import Json
from flow.engine.checkpoint import lock
from flow.engine.checkpoint.checkpoint import Identity, check_spark_version
from flow.engine.checkpoint.lock import NAME, STALE_SECONDS, CheckpointLock
from flow.engine.checkpoint.storage import Storage
from flow.testing import TestingSink, TestingSource
from recovery import RecoveryConfig
from tests.support.one_stream import a_flow, as_read

pytestmark = pytest.mark.spark


@pytest.fixture
def storage(spark: SparkSession, tmp_path: Path) -> Storage:
    return Storage(spark, str(tmp_path / "checkpoint"))


def lock_content(**changes: Any) -> dict[str, Any]:
    """Return the content of a lock that this process holds, with changes."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": None,
        "since": "2024-01-01T00:00:00+00:00",
        "renewed": time.time(),
        "token": "other",
        **changes,
    }


def pid_without_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_a_lock_exists_while_it_is_held_only(storage: Storage) -> None:
    with CheckpointLock(storage):
        assert storage.read(NAME)["pid"] == os.getpid()
    assert not storage.exists(NAME)


def test_a_second_run_is_refused_with_the_holder_of_the_lock(storage: Storage) -> None:
    with CheckpointLock(storage):
        held = storage.read(NAME)
        with pytest.raises(CheckpointError) as caught, CheckpointLock(storage):
            pass
        holder = f"process {os.getpid()} on {socket.gethostname()}, since {held['since']}"
        assert holder in str(caught.value)
        assert storage.read(NAME) == held, "the refused run has changed nothing"


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(lambda: lock_content(pid=pid_without_process()), id="an ended process"),
        pytest.param(lambda: lock_content(started="1"), id="a number that another process has now"),
        pytest.param(lambda: lock_content(pid="?"), id="no process at all"),
        pytest.param(
            lambda: lock_content(host="elsewhere", renewed=time.time() - STALE_SECONDS - 1),
            id="another machine that fell silent",
        ),
    ],
)
def test_a_stale_lock_is_taken_over(gone: Any, storage: Storage) -> None:
    storage.write(NAME, gone())
    with CheckpointLock(storage):
        assert storage.read(NAME)["token"] != "other"
    assert not storage.exists(NAME)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not tell")
def test_a_killed_run_counts_as_ended_before_its_parent_waits_for_it(storage: Storage) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        storage.write(NAME, lock_content(pid=child.pid, started=fields[19]))
        with pytest.raises(CheckpointError, match=f"process {child.pid}"), CheckpointLock(storage):
            pass
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
        with CheckpointLock(storage):
            assert storage.read(NAME)["token"] != "other"


def test_a_foreign_lock_holds_while_it_or_a_file_beside_it_is_renewed(storage: Storage) -> None:
    now, old = time.time(), time.time() - STALE_SECONDS - 1
    for in_lock, beside in ((now, None), (old, now)):
        storage.write(NAME, lock_content(host="elsewhere", pid=1, renewed=in_lock))
        if beside is not None:
            storage.write("lock-other.json", {"renewed": beside})
        with (
            pytest.raises(CheckpointError, match="process 1 on elsewhere"),
            CheckpointLock(storage),
        ):
            pass
    storage.write("lock-other.json", {"renewed": old})
    with CheckpointLock(storage):
        assert storage.read(NAME)["token"] != "other"
    assert storage.names("") == []


def test_a_renewal_does_not_overwrite_a_lock_that_is_taken_over_meanwhile(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do it right before this one writes."""
    monkeypatch.setattr(lock, "RENEW_SECONDS", 0.1)
    put, renewed = Storage.write, threading.Event()

    def write(self: Storage, name: str, content: Any) -> None:
        put(self, NAME, lock_content(host="elsewhere", pid=7))
        put(self, name, content)
        renewed.set()

    with CheckpointLock(storage) as mine:
        monkeypatch.setattr(Storage, "write", write)
        assert renewed.wait(60)
        monkeypatch.setattr(Storage, "write", put)
        assert storage.read(NAME)["token"] == "other"
        time.sleep(0.3)
        with pytest.raises(CheckpointError, match="was taken over by process 7 on elsewhere"):
            mine.check()
    assert storage.names("") == [NAME]


def test_a_suspended_run_checks_its_lock(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the thread that renews the lock gets to do first."""
    with CheckpointLock(storage) as mine:
        storage.write(NAME, lock_content(host="elsewhere", pid=7))
        mine.check()
        later = SimpleNamespace(time=lambda: time.time() + 2 * lock.RENEW_SECONDS + 1)
        monkeypatch.setattr(lock, "time", later)
        with pytest.raises(CheckpointError, match="was taken over by process 7 on elsewhere"):
            mine.check()


def test_a_takeover_differs_from_removal(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def take(_: float) -> None:
        storage.write(NAME, lock_content(host="elsewhere", pid=7))

    with CheckpointLock(storage) as held:
        held.check_there()
        storage.remove(NAME)
        with pytest.raises(CheckpointError, match=r"lock\.json was removed while this run held it"):
            held.check_there()
        monkeypatch.setattr(lock, "time", SimpleNamespace(sleep=take, time=time.time))
        with pytest.raises(CheckpointError, match="was taken over by process 7 on elsewhere"):
            held.check_there()


def test_a_run_that_lost_its_lock_keeps_the_new_holders_lock(storage: Storage) -> None:
    with CheckpointLock(storage):
        storage.write(NAME, lock_content())
    assert storage.read(NAME)["token"] == "other"


@pytest.mark.extended
def test_a_run_that_lost_its_lock_cannot_commit(
    spark: SparkSession, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that was suspended for longer than others waited for it."""
    monkeypatch.setattr(lock, "RENEW_SECONDS", 0.3)

    def lose_it(_: EpochReport) -> None:
        for _ in range(10):  # again, since a renewal that has just looked may write over it once
            storage.write(NAME, lock_content(host="elsewhere", pid=7))
            time.sleep(0.1)

    out: list[int] = []
    flow = a_flow(as_read, source=TestingSource([1, 2, 3], batch_size=1), sink=TestingSink(out))
    message = (
        f"{storage.root} was taken over by process 7 on elsewhere, because this process did not"
    )
    with pytest.raises(CheckpointError, match=message):
        run(flow, spark=spark, recovery=RecoveryConfig(storage.root), on_epoch=lose_it)
    assert out == [1]
    assert storage.read(NAME)["token"] == "other"


def test_files_are_written_atomically_without_leftovers(storage: Storage, tmp_path: Path) -> None:
    storage.write("a/b.json", {"n": 1})
    storage.write("a/b.json", {"n": 2})
    assert storage.read("a/b.json") == {"n": 2}
    assert not storage.create("a/b.json", {"n": 3})
    assert storage.read("a/b.json") == {"n": 2}
    names = {path.name for path in (tmp_path / "checkpoint/a").iterdir()}
    assert names == {"b.json"}


def test_nobody_else_can_enter_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    storage = Storage(spark, str(tmp_path / "a/checkpoint"))
    before = os.umask(0o022)
    try:
        with CheckpointLock(storage):
            assert stat.S_IMODE(Path(storage.root).stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_an_identity_survives_a_round_trip() -> None:
    places = {"v": 1}, {"v": 2}, {"fingerprint": {}}, ("a", "b"), 3, ((8, {"fingerprint": 1}),)
    identity = Identity("f", "r", 4, 2, "4.3.0", 1, 7, *places)
    assert Identity.from_json(json.loads(json.dumps(identity.to_json())), "x") == identity
    assert (identity.spark, Identity("f", "r", 4, 2, "4.3.0").spark) == ("spark-1", "spark")


#   epochs    3  4  5  |  6  7  |  8
#   recovery  one      |  two   |  three
def test_an_identity_records_its_state_at_earlier_epochs() -> None:
    one = Identity("f", "r", 4, 2, "4.3.0", recovery="one")
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

    made = Identity("f", "r", 4, 2, "4.3.0", recovery=flow("wrong")).set_back(3, ("plan",))
    assert made.admitting(flow("right", "9s"), (), [3]).undone == ("plan",)
    for others in ({"inputs": {}}, {"tables": {"t": 1}}, {"keyed": {"w": "5s", "x": "1s"}}):
        other = made.admitting(flow("wrong", **others), (), [3])
        assert (other.undone, other.set_back(3, ("plan",)).undone) == ((), ())


def test_a_checkpoint_of_a_newer_spark_is_refused_and_one_of_an_older_spark_continues() -> None:
    made = Identity("f", "r", 4, 2, "4.2.1")
    for spark_version in ("4.2.0", "4.2.1", "4.3.0", "5.0.0"):
        check_spark_version(made, spark_version, "x")
    with pytest.raises(CheckpointError) as caught:
        check_spark_version(made, "4.1.4", "checkpoints/f")
    assert str(caught.value) == (
        "checkpoints/f was last written with Spark 4.2.1, and Spark 4.1.4 is older: use Spark 4.2 "
        "or newer, or start again with an empty directory"
    )
