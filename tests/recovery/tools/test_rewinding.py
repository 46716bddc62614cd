"""Rewinds of a checkpoint, and the outputs of the runs after them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import CheckpointError, Dataflow, run
from flow.connectors.files import JsonLinesSink, ParquetSink
from flow.engine.checkpoint.lock import CheckpointLock
from flow.engine.checkpoint.storage import Storage
from flow.testing import EOF, TestingSource
from flow_windowing import EventClock, TumblingWindower
from recovery import RecoveryConfig, rewind, status, verify
from tests.recovery.damage import state_file
from tests.recovery.kept_flow import run_on

pytestmark = pytest.mark.spark

HOLD = EventClock("at", "10m", on_idle="hold")


def values(first: int, last: int) -> list[Any]:
    """Values of three keys, 400 s apart."""
    return [("abc"[n % 3], {"at": n * 400, "n": n}) for n in range(first, last)]


def add_value(total: int | None, value: dict[str, int]) -> tuple[int, int]:
    made = (total or 0) + value["n"]
    return made, made


class Case:
    """A flow from a list to directories of Parquet and JSON lines, for several runs."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.checkpoint = directory / "checkpoint"

    def run(self, items: list[Any], drain: bool = True) -> Any:
        flow = Dataflow("rewound")
        stream = op.input("in", flow, TestingSource(items, batch_size=2))
        windows = win.collect_window("windows", stream, HOLD, TumblingWindower("40m"))
        rows = op.map("rows", windows.down, lambda one: {"key": one[0], "window": one[1][1]})
        op.output("windows_out", rows, JsonLinesSink(self.directory / "windows"))
        totals = op.stateful_map("totals", stream, add_value)
        pairs = op.map("pairs", totals, lambda one: {"key": one[0], "total": one[1]})
        op.output("totals_out", pairs, ParquetSink(self.directory / "totals"))
        return run(
            flow,
            spark=self.spark,
            recovery=RecoveryConfig(self.checkpoint),
            drain=drain,
            system_time=0,
            shards=4,
            partitions=2,
        )

    def written(self) -> dict[str, list[str]]:
        """Return the rows of each output, sorted."""
        found = {}
        for name, form in (("windows", "json"), ("totals", "parquet")):
            rows = ds.dataset(self.directory / name, format=form).to_table().to_pylist()
            found[name] = sorted(json.dumps(row, sort_keys=True) for row in rows)
        return found


@pytest.fixture(scope="module")
def interrupted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six epochs, 0 to 5, whose windows stay open; not to be changed."""
    case = Case(spark, tmp_path_factory.mktemp("interrupted"))
    assert case.run([*values(0, 11), EOF()], drain=False).epochs == 6
    return case.directory


def tree(directory: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() if path.is_file() else None
        for path in directory.rglob("*")
    }


def test_outputs_after_a_rewind_equal_those_without_one(
    interrupted: Path, spark: SparkSession, tmp_path: Path
) -> None:
    golden = Case(spark, tmp_path / "golden")
    golden.run(values(0, 20))
    case = Case(spark, interrupted)  # the last test that needs its checkpoint as it was
    found = rewind(case.checkpoint, 2, yes=True, spark=spark)
    assert (found.epoch, found.undone, found.done) == (2, (3, 4, 5), True)
    assert status(case.checkpoint, spark=spark).epochs == (0, 1, 2)
    assert verify(case.checkpoint, spark=spark) == []
    # Epochs 0 to 2 have read six of the values. Epoch 3 reads others than it did before.
    case.run([*values(0, 6), *values(6, 20)])
    assert case.written() == golden.written()
    assert verify(case.checkpoint, spark=spark) == []


def test_without_yes_nothing_is_changed(copied: Path, spark: SparkSession) -> None:
    before = tree(copied)
    found = rewind(copied, 1, spark=spark)
    assert tree(copied) == before
    assert (found.undone, found.done, found.now) == ((2, 3), False, "2023-12-14T10:00:00Z")
    assert found.moved == (
        "spark/commits/3",
        "spark/offsets/3",
        "spark/commits/2",
        "spark/offsets/2",
        "flow.json",
    )
    assert str(found).splitlines()[:4] == [
        f"{copied} would be set back to epoch 1, at 2023-12-14T10:00:00Z",
        "  the next run would do epochs 2 to 3 again",
        f"  5 files would be moved to {found.backup}",
        "nothing has been changed: give --yes to do it",
    ]


def test_removed_files_are_backed_up_with_a_note_on_undoing(
    copied: Path, spark: SparkSession
) -> None:
    before = tree(copied)
    found = rewind(copied, 1, yes=True, spark=spark)
    assert re.fullmatch(r"rewound-\d{8}T\d{6}\.\d{6}Z", found.backup)
    backup = copied / found.backup
    assert (backup / "spark/offsets/3").read_bytes() == before["spark/offsets/3"]
    assert not (copied / "spark/offsets/3").exists()

    note = (backup / "how-to-undo.txt").read_text("utf-8")
    (command,) = re.findall(r"^  (cp -r .*)$", note, re.MULTILINE)
    subprocess.run(command, shell=True, cwd=copied, check=True)
    shutil.rmtree(backup)
    assert tree(copied) == before
    assert status(copied, spark=spark).epochs == (0, 1, 2, 3)


def test_snapshots_of_later_state_are_moved_too(copied: Path, spark: SparkSession) -> None:
    """Spark counts back from the last it finds when it removes old state."""
    first = state_file(copied, 0, "zip", partition=1)
    needed, later = (state_file(copied, epoch, "zip", partition=1) for epoch in (2, 3))
    for file in (needed, later):
        file.write_bytes(first.read_bytes())
    found = rewind(copied, 2, spark=spark)
    assert found.moved[2:] == (later.relative_to(copied).as_posix(), "flow.json")


def test_an_unfinished_epoch_is_removed(copied: Path, spark: SparkSession) -> None:
    (copied / "spark" / "commits" / "3").unlink()
    found = rewind(copied, 2, yes=True, spark=spark)
    assert (found.undone, found.moved) == ((3,), ("spark/offsets/3", "flow.json"))
    assert status(copied, spark=spark).begun is None


def test_a_rewind_to_the_last_epoch_changes_nothing(copied: Path, spark: SparkSession) -> None:
    before = tree(copied)
    found = rewind(copied, 3, yes=True, spark=spark)
    assert (found.undone, found.moved) == ((), ())
    assert str(found) == f"epoch 3 is the last of {copied} already: nothing to do"
    assert tree(copied) == before


def test_another_package_version_is_no_recorded_change(copied: Path, spark: SparkSession) -> None:
    file = copied / "flow.json"
    kept = json.loads(file.read_text("utf-8"))
    older = {**kept["recovery"]["fingerprint"], "versions": {"pyspark": "4.2.9"}}
    kept["earlier"] = [[3, {**kept["recovery"], "fingerprint": older}]]
    file.write_text(json.dumps(kept), "utf-8")
    (copied / ".flow.json.crc").unlink(missing_ok=True)
    assert rewind(copied, 3, spark=spark).moved == ()
    found = rewind(copied, 2, spark=spark)
    assert ("flow.json" in found.moved, found.restores_steps) == (True, False)


def test_an_epoch_that_is_not_kept_is_refused(copied: Path, spark: SparkSession) -> None:
    with pytest.raises(CheckpointError, match=r"epoch 9 is not kept in .*; kept are 0 to 3"):
        rewind(copied, 9, yes=True, spark=spark)


def test_the_oldest_retained_epoch_is_refused_and_the_next_one_continues(
    copied: Path, spark: SparkSession
) -> None:
    """Spark starts from the offsets of an epoch and of the one before."""
    for kind in ("commits", "offsets"):
        for name in ("0", ".0.crc"):
            (copied / "spark" / kind / name).unlink(missing_ok=True)
    assert status(copied, spark=spark).epochs == (2, 3)
    before = tree(copied)
    problem = r"^no run can continue after epoch 1 of .* choose one of 2 to 3$"
    with pytest.raises(CheckpointError, match=problem):
        rewind(copied, 1, yes=True, spark=spark)
    assert tree(copied) == before
    assert rewind(copied, 2, yes=True, spark=spark).undone == (3,)
    run_on(spark, copied.parent)
    assert verify(copied, spark=spark) == []


@pytest.mark.parametrize("yes", [True, False])
def test_an_epoch_whose_state_is_gone_is_refused(
    copied: Path, spark: SparkSession, yes: bool
) -> None:
    file = state_file(copied, 2, "changelog")
    file.unlink()
    before = tree(copied)
    with pytest.raises(CheckpointError) as caught:
        rewind(copied, 2, yes=yes, spark=spark)
    assert str(caught.value) == (
        f"the state of epoch 2 is not whole: {file.relative_to(copied)} is missing in {copied}; "
        "the last epoch before it that is whole is 1"
    )
    assert tree(copied) == before


@pytest.mark.parametrize("yes", [True, False])
def test_a_checkpoint_that_a_run_uses_is_refused(
    copied: Path, spark: SparkSession, yes: bool
) -> None:
    before = tree(copied)
    with (
        CheckpointLock(Storage(spark, str(copied))),
        pytest.raises(CheckpointError, match=r"is in use by another run: process \d+ on"),
    ):
        rewind(copied, 1, yes=yes, spark=spark)
    assert tree(copied) == before
