"""Runs on a checkpoint of an earlier version, with every kind of state."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import recovery
from flow.engine.spark.versions.supported import installed_version
from tests.recovery.every_state import FIRST, ITEMS, go_on

EARLIER = Path(__file__).parent / "earlier"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        installed_version().number < (4, 3), reason="the checkpoint was written with Spark 4.3"
    ),
]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The folder in which the earlier version ran, in another place."""
    shutil.unpack_archive(EARLIER / "checkpoint.zip", tmp_path)
    return tmp_path


def test_resumed_outputs_equal_those_of_the_earlier_version(
    spark: SparkSession, work: Path
) -> None:
    recovery.relocate(work / "checkpoint", yes=True)
    assert recovery.verify(work / "checkpoint") == []
    outputs = go_on(spark, work, [*FIRST, *ITEMS[300:]], drain=True)
    wanted = json.loads(gzip.decompress((EARLIER / "outputs.json.gz").read_bytes()))
    assert sorted(outputs) == sorted(wanted)
    for name in wanted:
        assert outputs[name] == wanted[name], name


def test_tools_read_the_state_of_every_step(spark: SparkSession, work: Path) -> None:
    recovery.relocate(work / "checkpoint", yes=True)
    status = recovery.status(work / "checkpoint")
    assert all(step.keys for step in status.steps)
    for step in status.steps:
        found = recovery.inspect(work / "checkpoint", step.step)
        assert "Inert" not in repr(found)
