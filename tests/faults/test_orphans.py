"""Processes of a driver that is killed: they end, or do no harm."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.conftest import Golden, Watch
from tests.support.faults import Shop, Victims, assert_same

pytestmark = [pytest.mark.spark, pytest.mark.extended, pytest.mark.timeout(900)]
EPOCH = 3


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
    its JVM                      stopped ··························· goes on, and ends
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
