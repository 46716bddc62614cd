"""Relocation of a checkpoint that has been moved."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import CheckpointError, Dataflow
from flow.connectors.dataframe import DataFrameSource
from flow.testing import ABORT, EOF, Advance, TestingSink, TestingSource
from recovery import relocate, rescale, rewind, status, verify
from tests.recovery.checkpoints import identity_of, run_flow, tree

pytestmark = pytest.mark.usefixtures("spark")

METADATA = "spark/state/0/_metadata/v2/0"
A = {"id": "a", "n": 1}


def count_value(count: int | None, value: Any) -> tuple[int, int]:
    return (count or 0) + 1, (count or 0) + 1


class Case:
    """A flow that reads or counts by key the rows of a static frame and later items."""

    def __init__(self, spark: SparkSession, items: list[Any], keyed: bool = True) -> None:
        self.received: list[Any] = []
        self.flow = Dataflow("odd: relocated/1")
        rows = spark.createDataFrame([("a", 0), ("b", 0)], "id string, n long").coalesce(1)
        frame = op.input("a frame/static?", self.flow, DataFrameSource(rows))
        later = op.input("later", self.flow, TestingSource(items, batch_size=1))
        stream = op.merge("both", frame, later)
        if keyed:
            stream = op.stateful_map("count", op.key_on("key", stream, "id"), count_value)
        op.output("out", stream, TestingSink(self.received))

    def run(self, path: Path) -> list[Any]:
        """Run the flow on a checkpoint, and return the received items, sorted."""
        self.received.clear()
        run_flow(path, self.flow, shards=2)
        return sorted(self.received, key=str)


def move_checkpoint(path: Path) -> Path:
    """Move a checkpoint, so that nothing is left where it was."""
    return Path(shutil.move(path, path.with_name("moved")))


#  run      1         2              moved, relocated, 3
#  reads    a b a     a │ ABORT      a
def test_a_moved_checkpoint_is_refused_until_it_is_relocated(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    case = Case(spark, [A, EOF(), A, Advance("0s"), ABORT(), A])
    assert case.run(made) == [("a", 1), ("a", 2), ("b", 1)]
    assert case.run(made) == [("a", 3)]
    path = move_checkpoint(made)

    with pytest.raises(CheckpointError) as caught:
        case.run(path)
    message = str(caught.value)
    assert f"{METADATA} names file:{made}/spark/state/0/_stateSchema/" in message
    assert f"not there: the checkpoint was moved: python -m recovery relocate {path}" in message
    assert f"names {made}/inputs/a%20frame%2Fstatic%3F/part-00000" in message
    assert {one.way_out for one in verify(path)} == {f"python -m recovery relocate {path}"}

    found = relocate(path, yes=True)
    assert found.places == (str(made),)
    offsets = [f"spark/offsets/{epoch}" for epoch in (0, 1, 2)]
    others = [one for one in found.files if one not in offsets]
    assert others[0] == "sources/a%20frame%2Fstatic%3F/000000000.page.json"
    assert {one.rpartition("/")[0] for one in others[1:]} == {"spark/state/0/_metadata/v2"}
    kept = {name: text for name, text in tree(path).items() if found.backup not in name}
    assert [name for name, text in kept.items() if str(made).encode() in text] == []
    assert verify(path) == []
    assert case.run(path) == [("a", 4)]
    assert status(path).steps[0].keys == 2


def test_the_plans_of_undone_epochs_are_relocated(spark: SparkSession, tmp_path: Path) -> None:
    made = tmp_path / "made"
    Case(spark, [A, A]).run(made)
    rewind(made, 0, yes=True)
    path = move_checkpoint(made)
    relocate(path, yes=True)
    first, *_ = identity_of(path)["undone"]
    assert first == json.loads((path / "spark/offsets/0").read_text("utf-8").splitlines()[2])


def test_files_that_change_are_backed_up(
    checkpoint: Path, copied: Path, printed: Callable[..., str]
) -> None:
    before = tree(copied)
    first, second, last = printed("relocate", copied).splitlines()
    assert tree(copied) == before
    assert first == f"{copied} was in {checkpoint}; files that say so: 1"
    assert second.startswith("  these files would be rewritten, and the old files copied to reloca")
    assert last == "nothing has been changed: give --yes to do it"

    done = json.loads(printed("relocate", copied, "--yes", "--json"))
    after = tree(copied)
    changed = {name for name in before if after.get(name) != before[name]}
    assert {name for name in changed if not name.endswith(".crc")} == {*done["files"]} == {METADATA}
    assert after[f"{done['backup']}/{METADATA}"] == before[METADATA]
    assert str(copied) in (copied / done["backup"] / "why-this-is-here.txt").read_text("utf-8")

    again = relocate(copied, yes=True)
    assert (again.files, tree(copied)) == ((), after)
    assert str(again) == f"all paths in {copied} are up to date: nothing to do"


@pytest.mark.extended
def test_an_interrupted_epoch_reads_its_data_frame_in_the_new_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(spark, [ABORT()], keyed=False)
    case.run(tmp_path / "made")
    path = move_checkpoint(tmp_path / "made")
    with pytest.raises(CheckpointError, match="python -m recovery relocate"):
        case.run(path)
    relocate(path, yes=True)
    assert [row["id"] for row in case.run(path)] == ["a", "b"]


@pytest.mark.extended
def test_a_new_generation_finds_its_seed_in_the_new_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    case = Case(spark, [A, EOF(), ABORT(), A])
    case.run(made)
    rescale(made, shards=4)
    case.run(made)  # as if it had been cut off in the epoch that puts the seed in place:
    for name in ("commits/*", "offsets/[1-9]", "offsets/.[1-9].crc"):
        for log in made.glob(f"spark-1/{name}"):
            log.unlink()
    path = move_checkpoint(made)
    relocate(path, yes=True)
    offset = (path / "spark-1" / "offsets" / "0").read_text("utf-8").splitlines()[2]
    assert json.loads(offset)["seed"] == f"{path}/seed-1"
    assert case.run(path) == [("a", 3)]
