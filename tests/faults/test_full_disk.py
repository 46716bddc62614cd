"""Full disks: errors that name the disk, and recovery once there is room."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flow import EngineError, FlowError, SinkError, run
from recovery import RecoveryConfig
from tests.faults.growing import make_flow, written
from tests.support.faults import PROJECT, Shop

pytestmark = [pytest.mark.spark, pytest.mark.extended, pytest.mark.timeout(900)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte or so."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1200k", "tmpfs", str(disk)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Fill a disk but for some bytes."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            file.truncate(max(0, file.tell() - leave))
    return filler


def test_a_full_disk_of_an_output_is_named_and_the_run_resumes_with_space(
    small_disk: Path, shop: Shop, spark: SparkSession, assert_unharmed: Callable[[], None]
) -> None:
    (shop.home / "out").symlink_to(small_disk)
    filler = fill(small_disk, 16_384)
    with pytest.raises(SinkError) as caught:
        shop.run_here(spark)
    assert "No space left on device" in str(caught.value)
    assert str(shop.home / "out") in str(caught.value)
    filler.unlink()
    assert_unharmed()


@pytest.fixture(scope="module")
def expected_lines(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The results of the growing flow when it is left alone."""
    home = tmp_path_factory.mktemp("expected_lines")
    run_growing(home / "checkpoint", home / "out", spark=spark)
    return written(home / "out")


def run_growing(checkpoint: Path, out: Path, **options: Any) -> None:
    recovery = RecoveryConfig(checkpoint)
    run(make_flow(out), recovery=recovery, shards=4, partitions=2, system_time=0, **options)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


@pytest.mark.parametrize("size", ["1200k", "1700k", "2m", "2500k", "4m", "6m"])
def test_state_that_outgrows_its_disk_is_reported_in_any_epoch(
    size: str, small_disk: Path, tmp_path: Path, expected_lines: list[str], spark: SparkSession
) -> None:
    resize(small_disk, size)
    checkpoint, out = small_disk / "checkpoint", tmp_path / "out"
    with pytest.raises((EngineError, FlowError)) as caught:
        run_growing(checkpoint, out, spark=spark)
    message = str(caught.value)
    assert "No space left on device" in message
    assert str(checkpoint) in message
    assert "\n" not in message
    assert "spark.local.dir" not in message, "the other disk has room"
    resize(small_disk, "64m")
    run_growing(checkpoint, out, spark=spark)
    assert written(out) == expected_lines


@pytest.mark.parametrize("size", ["1m", "3m", "5m"])
def test_a_full_disk_of_sparks_files_is_one_short_error(
    size: str, small_disk: Path, tmp_path: Path, expected_lines: list[str], spark: SparkSession
) -> None:
    resize(small_disk, size)
    command = [sys.executable, "-m", "flow.run", "tests.faults.growing:flow", "--quiet"]
    command += ["--recovery", str(tmp_path / "checkpoint"), "--master", "local[2]"]
    command += ["--shards", "4", "--partitions", "2", "--conf", f"spark.local.dir={small_disk}"]
    out = tmp_path / "out"
    env = {**os.environ, "PYTHONPATH": str(PROJECT), "GROWING_OUT": str(out)}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    (message,) = done.stderr.splitlines()
    place = f"No space left on device on the disk of Spark's temporary files, {small_disk}: "
    assert place in message
    assert "make room there, or set spark.local.dir to another disk" in message
    run_growing(tmp_path / "checkpoint", out, spark=spark)
    assert written(out) == expected_lines
