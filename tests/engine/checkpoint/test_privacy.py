"""Files for the user alone: Spark's log, and checkpoints."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, run
from flow.engine import temporary
from flow.engine.spark.session.spark_log import SparkLog
from flow.engine.temporary import ProcessDirectory, process_directory, remove_leftovers
from flow.testing import TestingSink, TestingSource
from recovery import RecoveryConfig


@pytest.fixture(autouse=True)
def other_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Leaves the directory alone in which a session of these tests has its files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(temporary, "_current", None)
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("tmp")))
        yield


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_sparks_log_is_in_a_private_directory(tmp_path: Path) -> None:
    one, other = ProcessDirectory.make(tmp_path), ProcessDirectory.make(tmp_path)
    os.write(one.log_descriptor, b"a line")
    assert one.log.read_bytes() == b"a line"
    assert one.log.parent != other.log.parent
    assert (mode(one.log.parent), mode(one.log)) == (0o700, 0o600)
    one.leave()
    other.leave()
    assert not one.log.parent.exists()


def test_a_log_that_an_error_names_is_kept() -> None:
    log = SparkLog()
    log.opened()
    directory = process_directory()
    assert str(directory.log) == str(log)
    directory.leave()
    assert directory.log.exists()


def test_a_link_at_the_path_of_the_log_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by the start that makes a directory, nor by one that looks for leftovers."""
    (tmp_path / "theirs").write_text("theirs")
    made = tmp_path / "flow-1-abcdefgh"
    made.mkdir()
    (made / "spark.log").symlink_to(tmp_path / "theirs")
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: str(made))
    with pytest.raises(OSError, match="File exists"):
        ProcessDirectory.make(tmp_path)
    remove_leftovers(tmp_path)
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert (made / "spark.log").is_symlink()


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
