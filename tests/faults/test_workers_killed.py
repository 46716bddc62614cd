"""Python workers and executors killed in the middle of epochs."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import Watch
from tests.faults.striking import Whom
from tests.support.faults import Child, Shop

pytestmark = [pytest.mark.spark, pytest.mark.extended]
Unharmed = Callable[..., None]
RETRIES = "local[2,4]"
"""Two cores, and up to four attempts of a task."""


@pytest.mark.parametrize("point", ["level 1", "level 2"])
def test_a_task_whose_worker_dies_is_retried_and_counts_once(
    point: str, shop: Shop, watched: Watch, assert_unharmed: Unharmed
) -> None:
    options = ("--point", point, "--at", "140", "--whom", Whom.SELF.value, "--times", "2")
    watched(shop.start("--master", RETRIES, *options)).finish()
    assert {file.name for file in shop.home.glob("struck-*")} == {"struck-0", "struck-1"}
    assert_unharmed(is_over=True)


def test_workers_killed_at_random_either_change_nothing_or_end_the_run_with_an_error(
    shop: Shop, watched: Watch, assert_unharmed: Unharmed
) -> None:
    rng, failed, killed = random.Random(1), 0, 0
    child = watched(shop.start("--master", RETRIES))
    while True:
        killed += kill_workers(child, rng, 12 - killed)
        if child.process.wait(200) == 0:
            break
        assert child.output.splitlines()[-1].startswith("EngineError: "), child.output
        assert "Traceback" not in child.output
        child.vanish()
        failed += 1
        child = watched(shop.start("--master", RETRIES))
    print(f"{killed} workers killed, {failed} runs failed")  # noqa: T201
    assert killed >= 3
    assert_unharmed(is_over=True)


def kill_workers(child: Child, rng: random.Random, most: int) -> int:
    """Kill workers of a run, one now and then, from its first epoch on; how many."""
    child.wait_for(lambda: child.epochs)
    killed = 0
    while killed < most and not child.ended:
        time.sleep(0.3 * rng.random())
        workers = child.workers()
        if workers and not child.ended:
            os.kill(rng.choice(workers), signal.SIGKILL)
            killed += 1
    return killed


@pytest.mark.cluster
def test_a_run_survives_the_kill_of_one_of_two_executors(
    shop: Shop,
    watched: Watch,
    assert_unharmed: Unharmed,
    master: str,
    monkeypatch: pytest.MonkeyPatch,
    bare_python: str,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", bare_python)
    conf = ("--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1")
    child = watched(shop.start("--master", master, *conf))
    assert child.wait_for(lambda: shop.logged("offsets") >= 1)
    first = executors()
    assert len(first) == 2
    os.kill(first[0], signal.SIGKILL)
    child.finish()
    assert_unharmed(is_over=True)


def executors() -> list[int]:
    """The executors of the cluster that this process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_text()
        except OSError:
            continue
        if "CoarseGrainedExecutorBackend" in line and os.getpid() in ancestors(int(folder.name)):
            found.append(int(folder.name))
    return sorted(found)


def ancestors(pid: int) -> list[int]:
    """The processes that a process comes from."""
    found = []
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        found.append(pid)
    return found
