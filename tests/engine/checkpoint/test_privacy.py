"""What is for the user alone: Spark's log, and checkpoints."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, run
from flow.engine.spark.session.session import SparkLog
from flow.testing import TestingSink, TestingSource
from recovery import RecoveryConfig


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_sparks_log_is_in_a_directory_of_its_own_that_is_private() -> None:
    log, other = SparkLog(), SparkLog()
    with log.opened() as file:
        file.write(b"a line")
    assert log.path.parent != other.path.parent
    assert (mode(log.path.parent), mode(log.path)) == (0o700, 0o600)
    log._remove()
    other._remove()
    assert not log.path.parent.exists()


def test_a_log_that_an_error_spoke_of_stays() -> None:
    log = SparkLog()
    log.opened().close()
    assert str(log.path) == str(log)
    log._remove()
    assert log.path.exists()


def test_a_link_in_the_place_of_the_log_is_not_followed(tmp_path: Path) -> None:
    log = SparkLog()
    (tmp_path / "theirs").write_text("theirs")
    log.path.symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="symbolic link"):
        log.opened()
    log._remove()
    assert (tmp_path / "theirs").read_text() == "theirs"


@pytest.mark.spark
def test_nobody_else_can_enter_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    flow = Dataflow("private")
    op.output("out", op.input("in", flow, TestingSource([1])), TestingSink([]))
    before = os.umask(0o022)
    try:
        run(flow, spark=spark, recovery=RecoveryConfig(tmp_path / "a/checkpoint"), shards=1)
    finally:
        os.umask(before)
    assert mode(tmp_path / "a/checkpoint") == 0o700
