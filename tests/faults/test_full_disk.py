"""A disk that is full: the error says so and where, and with room again the flow goes on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flow import FlowError, SinkError
from tests.faults.conftest import Golden
from tests.support.faults import Shop, assert_same

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(900)]


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


@pytest.mark.parametrize("leave", [0, 8_192, 65_536, 200_000])
def test_a_checkpoint_on_a_full_disk_is_an_error_that_says_where_and_the_run_goes_on_with_room(
    leave: int, small_disk: Path, shop: Shop, golden: Golden, spark: SparkSession
) -> None:
    (small_disk / "checkpoint").mkdir()
    shop.checkpoint.symlink_to(small_disk / "checkpoint")
    filler = fill(small_disk, leave)
    with pytest.raises(FlowError) as caught:
        shop.run_here(spark)
    assert str(shop.checkpoint) in str(caught.value)
    assert "No space left on device" in str(caught.value)
    assert "\n" not in str(caught.value)
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    shop.run_here(spark)
    assert_same(shop.results(), golden.results)
    assert shop.state(spark) == golden.state


def test_an_output_on_a_full_disk_is_an_error_that_says_where_and_the_run_goes_on_with_room(
    small_disk: Path, shop: Shop, golden: Golden, spark: SparkSession
) -> None:
    (shop.home / "out").symlink_to(small_disk)
    filler = fill(small_disk, 16_384)
    with pytest.raises(SinkError) as caught:
        shop.run_here(spark)
    assert "No space left on device" in str(caught.value)
    assert str(shop.home / "out") in str(caught.value)
    filler.unlink()
    shop.run_here(spark)
    assert_same(shop.results(), golden.results)
    assert shop.state(spark) == golden.state
