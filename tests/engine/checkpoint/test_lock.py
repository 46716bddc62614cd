"""The lock of a checkpoint: one run at a time has it, by whatever clock, host name and pid."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from flow import CheckpointError
from flow.connectors.source import MemoryLog
from flow.engine.checkpoint import lock
from flow.engine.checkpoint.lock import (
    STALE_SECONDS,
    CheckpointLock,
    CheckpointWatch,
    Claim,
    LockOfRun,
    holder_of,
)
from flow.engine.checkpoint.storage import LocalStorage, Storage
from flow.engine.feed.clocks import wall_time
from flow.engine.feed.offsets import EpochOffset
from flow.testing import TestingSource
from tests.support.feeding import feed_of
from tests.support.stores import RemoteStore

PROJECT = Path(__file__).parents[3]


@pytest.fixture(params=["local", "remote"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return LocalStorage(str(tmp_path / "checkpoint")) if request.param == "local" else RemoteStore()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Make waiting instant; each second of it calls the functions of the list."""
    now, calls = [0.0], list[Callable[[], object]]()

    def sleep(seconds: float) -> None:
        now[0] += seconds
        for call in calls:
            call()

    clocks = SimpleNamespace(sleep=sleep, monotonic=lambda: now[0], time=lambda: 0.0)
    monkeypatch.setattr(lock, "time", clocks)
    calls.append(lambda: now[0])
    return calls


def claim_of(**changes: Any) -> dict[str, Any]:
    """Return the content of a claim of another machine, with changes."""
    since = "2024-01-01T00:00:00+00:00"
    return {"host": "box", "pid": 7, "boot": "b", "since": since, "token": "other", **changes}


def taken_over(storage: Storage) -> None:
    """Take the lock over as another run does."""
    holder = holder_of(storage)
    number = 0 if holder is None else holder.number
    assert storage.create(Claim(number + 1, {}).name, claim_of()) is not None
    storage.remove(Claim(number, {}).name)


def test_a_lock_exists_while_it_is_held_only(storage: Storage) -> None:
    with CheckpointLock(storage) as held:
        assert storage.read("lock.1.json")["pid"] == os.getpid()
        held.check()
    assert storage.names("") == []


def test_another_process_of_a_run_checks_and_releases_its_lock_alone(storage: Storage) -> None:
    with CheckpointLock(storage, "mine"):
        LockOfRun(storage, "mine").check()
        LockOfRun(storage, "other").release()
        with pytest.raises(CheckpointError, match="is no longer this run's: process"):
            LockOfRun(storage, "other").check()
        LockOfRun(storage, "mine").release()
        with pytest.raises(CheckpointError, match="is no longer this run's: no run has its lock"):
            LockOfRun(storage, "mine").check()
    assert storage.names("") == []


def test_a_second_run_is_refused_with_the_holder_of_the_lock(storage: Storage, waits: Any) -> None:
    with CheckpointLock(storage):
        held = storage.read("lock.1.json")
        waits.append(lambda: storage.write(f"lock-{held['token']}.json", {"renewals": 1}))
        with pytest.raises(CheckpointError) as caught, CheckpointLock(storage):
            pass
        holder = f"process {os.getpid()} on {socket.gethostname()}, since {held['since']}"
        assert f"is in use by another run: {holder}. Stop that one" in str(caught.value)
        assert storage.read("lock.1.json") == held, "the refused run has changed nothing"


FOREIGN: dict[str, dict[str, Any]] = {
    "of another host": {},
    "of a host whose clock is ahead": {"since": "2124-01-01T00:00:00+00:00"},
    "of a container with this host name": {"host": socket.gethostname(), "pid": 2**22 + 1},
    "with the pid of this process": {"host": socket.gethostname(), "pid": os.getpid()},
}


@pytest.mark.parametrize("changes", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_holder_has_the_lock_while_it_renews_it(changes: Any, waits: Any) -> None:
    storage = RemoteStore()
    storage.write("lock.4.json", claim_of(**changes))
    renewals = iter([0] * 200 + [1] * 200)
    waits.append(lambda: storage.write("lock-other.json", {"renewals": next(renewals)}))
    with pytest.raises(CheckpointError, match="is in use by another run"), CheckpointLock(storage):
        pass
    waits.pop()
    with CheckpointLock(storage):
        assert waits[0]() > STALE_SECONDS
        assert storage.names("") == ["lock.5.json"]


#  the file has no lock, and: the boot of its claim · the directory is on a disk
@pytest.mark.parametrize(
    ("boot", "is_on_disk", "seconds"),
    [("b", True, 0), (lock._boot_id(), False, 0), ("b", False, STALE_SECONDS), (None, False, 300)],
)
def test_a_claim_without_a_living_holder_is_taken_over_at_once(
    boot: Any, is_on_disk: bool, seconds: float, tmp_path: Path, waits: Any, monkeypatch: Any
) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.write("lock.1.json", claim_of(boot=boot))
    monkeypatch.setattr(LocalStorage, "is_on_disk", is_on_disk)
    with CheckpointLock(storage):
        assert waits[0]() >= seconds
        assert waits[0]() <= seconds + 2
        assert storage.names("") == ["lock.2.json"]


def test_a_claim_of_a_greater_number_stops_the_run_before_its_own_is_removed(
    storage: Storage,
) -> None:
    with CheckpointLock(storage) as held:
        storage.create(Claim(2, {}).name, claim_of())
        with pytest.raises(CheckpointError, match=r"was taken over by .*box"):
            held.check()


def test_a_run_that_lost_its_lock_stops_and_names_the_holder(storage: Storage) -> None:
    with CheckpointLock(storage) as held:
        taken_over(storage)
        with pytest.raises(CheckpointError, match="was taken over by process 7 on box, since"):
            held.check()
    assert storage.names("") == ["lock.2.json"], "it is that of the other run"


@pytest.mark.parametrize(
    ("then", "message"),
    [(lambda _: None, "was removed or damaged while this run"), (taken_over, "was taken over by")],
)
def test_a_takeover_differs_from_removal(then: Any, message: str, storage: Storage) -> None:
    with CheckpointLock(storage) as held:
        storage.remove("lock.1.json")
        then(storage)
        with pytest.raises(CheckpointError, match=message):
            held.check()


def test_a_renewal_of_a_run_that_lost_its_lock_writes_nothing(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "RENEW_SECONDS", 0.01)
    with CheckpointLock(storage):
        until = time.monotonic() + 10
        while len(storage.names("")) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert len(storage.names("")) == 2
        taken_over(storage)
    assert storage.names("") == ["lock.2.json"]


#  seconds since the last check by the monotonic clock and by the wall clock
@pytest.mark.parametrize(
    ("passed", "is_checked"),
    [((20, 20), False), ((40, 40), True), ((1, 900), True), ((1, -900), True)],
)
def test_a_run_checks_its_lock_before_it_asks_sources(
    passed: Any, is_checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks them all the time, and may have been suspended since it last did."""
    now, storage = [0.0, 0.0], RemoteStore()
    clocks = SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[1], sleep=lambda _: None)
    monkeypatch.setattr(lock, "time", clocks)
    for name in ("flow.json", "spark/metadata"):
        storage.write(name, {})
    with CheckpointLock(storage) as held:
        watch = CheckpointWatch(storage, "spark", held)
        planner = Mock(wraps=TestingSource([1]).planner(MemoryLog(), 1))

        def check() -> bool:
            watch.check_regularly()
            return False

        feed = feed_of({"in": planner}, wall_time, check=check)
        taken_over(storage)
        now[:] = passed
        error = pytest.raises(CheckpointError, match="was taken over by process 7")
        with error if is_checked else nullcontext():
            feed.next(EpochOffset())
        assert planner.next.called is not is_checked


def winners(starts: list[CheckpointLock]) -> list[str]:
    """Return how many of some starts at the same time get the lock, and what the others say."""
    gate, done = (threading.Barrier(len(starts), timeout=20) for _ in range(2))

    def start(one: CheckpointLock) -> str:
        gate.wait()
        try:
            with one:
                done.wait()
                one.check()
                return "got it"
        except CheckpointError as error:
            done.wait()
            return str(error)

    with ThreadPoolExecutor(len(starts)) as pool:
        return sorted(pool.map(start, starts))


def test_of_runs_that_start_together_on_an_empty_checkpoint_one_gets_the_lock(
    tmp_path: Path,
) -> None:
    """300 times, with starts as close together as threads get; the others say who has it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(300):
            storage = LocalStorage(str(tmp_path / str(number)))
            refused, got = winners([CheckpointLock(storage), CheckpointLock(storage)])
            assert got == "got it"
            assert f"is in use by another run: process {os.getpid()} on" in refused
    finally:
        sys.setswitchinterval(before)


def test_on_a_store_without_an_exclusive_create_the_last_start_gets_the_lock(
    waits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = RemoteStore(is_exclusive=False)
    waits.append(lambda: storage.write("lock.1.json", claim_of()))
    with pytest.raises(CheckpointError, match="is in use by another run: process 7 on box"):
        CheckpointLock(storage).__enter__()
    assert {name: storage.read(name) for name in storage.files} == {"lock.1.json": claim_of()}


def test_a_slow_start_yields_to_a_run_that_began_anew_meanwhile(waits: Any) -> None:
    storage = RemoteStore()
    storage.write("lock.5.json", claim_of())

    def begin_anew() -> None:
        if storage.exists("lock.6.json"):
            storage.remove("lock.5.json")
            storage.write("lock.1.json", claim_of(token="newer"))

    waits.append(begin_anew)
    with pytest.raises(CheckpointError, match="is in use by another run"), CheckpointLock(storage):
        pass
    assert storage.names("") == ["lock.1.json"]


CHILD = """
import sys
from flow.engine.checkpoint.lock import CheckpointLock
from flow.errors import CheckpointError
from flow.engine.checkpoint.storage import LocalStorage
try:
    with CheckpointLock(LocalStorage(sys.argv[1])):
        print("got it", flush=True)
        sys.stdin.read()
except CheckpointError as error:
    print(error, flush=True)
"""
APART = ["unshare", "--fork", "--kill-child", "--pid", "--mount-proc"]
"""A command in a PID namespace of its own, as in a container with the network of its host."""


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run([*APART, "true"], capture_output=True, check=False).returncode != 0,
    reason="this user may not make PID namespaces (unshare)",
)
def test_processes_in_pid_namespaces_of_their_own_exclude_each_other(tmp_path: Path) -> None:
    """Each has the same host name and the pid 1; a killed one releases the lock at once."""

    def start() -> subprocess.Popen[str]:
        command = [*APART, sys.executable, "-c", CHILD, str(tmp_path / "checkpoint")]
        env = {**os.environ, "PYTHONPATH": str(PROJECT)}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True)

    with start() as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "got it\n"
        said = start().communicate("")[0]
        assert f"is in use by another run: process 1 on {socket.gethostname()}, since" in said
        first.kill()
    assert start().communicate("")[0] == "got it\n"
