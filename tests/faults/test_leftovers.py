"""Leftovers of killed runs: files that a later start removes, and processes that do no harm."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.conftest import Golden, Watch
from tests.faults.striking import Whom
from tests.support.faults import Child, Shop, Victims, assert_same

pytestmark = [pytest.mark.spark, pytest.mark.extended, pytest.mark.timeout(900)]
EPOCH = 3


@pytest.fixture
def tmpdir_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory of the runs that a test starts."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def directory_of(child: Child, folder: Path) -> Path | None:
    """The directory of a run, once it has made it."""
    return next(iter(folder.glob(f"flow-{child.process.pid}-*")), None)


def has_begun(child: Child, folder: Path) -> bool:
    """Return True once the JVM of the run is there."""
    return any(folder.glob(f"flow-{child.process.pid}-*/spark/*"))


def interrupt_twice(child: Child) -> None:
    """Interrupt a run whose epoch takes long, and once more while it still does."""
    child.process.send_signal(signal.SIGINT)
    assert child.wait_for(lambda: "a second Ctrl-C stops at once" in child.output)
    child.process.send_signal(signal.SIGINT)
    assert child.process.wait(60) == 130, child.output


@pytest.mark.parametrize(
    ("victims", "starting"),
    [
        (Victims.DRIVER, False),
        (Victims.EVERYTHING, True),
        pytest.param(None, False, id="interrupted twice"),
    ],
)
def test_the_next_start_removes_files_of_a_run_that_ended_early(
    victims: Victims | None, starting: bool, shop: Shop, tmpdir_of_runs: Path, watched: Watch
) -> None:
    """
    killed  ─ begins ─ is killed
    next                          begins ──── ends
    """
    if victims is None:
        killed = watched(shop.start_struck("level 1", at=20, whom=Whom.WAIT))
        assert killed.wait_for(lambda: (shop.home / "struck-0").exists())
        interrupt_twice(killed)
    else:
        killed = watched(shop.start())
        assert killed.wait_for(
            lambda: has_begun(killed, tmpdir_of_runs) if starting else 1 in killed.epochs
        )
        killed.kill(victims)
    killed.process.wait(60)
    killed.vanish()
    pids = [path.name.split("-")[1] for path in tmpdir_of_runs.iterdir()]
    assert pids == [str(killed.process.pid)]

    following = watched(shop.start())
    assert following.wait_for(lambda: following.epochs)
    assert list(tmpdir_of_runs.iterdir()) == [directory_of(following, tmpdir_of_runs)]
    following.finish()
    assert list(tmpdir_of_runs.iterdir()) == []


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder, but for those that nobody reads."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    parts = {path: path.relative_to(folder).parts for path in files}
    read = [path for path in files if not any(part.startswith(".") for part in parts[path])]
    return {str(path.relative_to(folder)): path.read_bytes() for path in read}


def test_a_resumed_jvm_of_a_killed_driver_changes_nothing_after_another_run(
    shop: Shop, golden: Golden, spark: SparkSession, watched: Watch
) -> None:
    """
    first driver   epochs 0 to 3 killed
    its JVM                      stopped ··························· continues, and ends
    second driver                        epochs 3 to the last
    """
    child = watched(shop.start())
    assert child.wait_for(lambda: shop.logged("offsets") >= EPOCH)
    jvm = child.jvm()
    assert jvm is not None
    os.kill(jvm, signal.SIGSTOP)
    child.kill(Victims.DRIVER)
    child.process.wait(30)
    shop.run_here(spark)
    assert_same(shop.results(), golden.results)
    before = contents(shop.checkpoint), contents(shop.home / "out")

    os.kill(jvm, signal.SIGCONT)
    child.vanish(60)
    checkpoint, out = contents(shop.checkpoint), contents(shop.home / "out")
    assert out == before[1]
    logs = [name for name in before[0] if "/offsets/" in name or "/commits/" in name]
    assert [name for name in logs if checkpoint.get(name) != before[0][name]] == []
    assert shop.state(spark) == golden.state
    shop.run_here(spark, drain=True)


def test_a_killed_jvm_is_an_error_and_the_next_run_resumes(
    shop: Shop, watched: Watch, assert_unharmed: Callable[[], None]
) -> None:
    child = watched(shop.start())
    assert child.wait_for(lambda: shop.logged("offsets") >= EPOCH)
    child.kill(Victims.JVM)
    assert child.process.wait(60) == 1
    child.vanish()
    assert "\nEngineError: Spark's JVM has ended; " in child.output
    assert_unharmed()
