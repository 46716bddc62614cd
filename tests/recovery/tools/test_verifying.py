"""Verification of a checkpoint: each kind of file missing, cut off or damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flow import CheckpointError
from recovery import Problem, verify
from tests.recovery.damage import cut_off, forget_checksums, replace, state_file

pytestmark = pytest.mark.spark


def only(problems: list[Problem]) -> Problem:
    (problem,) = problems
    return problem


def name_in(checkpoint: Path, file: Path) -> str:
    return file.relative_to(checkpoint).as_posix()


def test_a_whole_checkpoint_has_no_problem(copied: Path, spark: SparkSession) -> None:
    before = sorted(copied.rglob("*"))
    assert verify(copied, spark=spark) == []
    assert sorted(copied.rglob("*")) == before


def test_flow_json_missing(copied: Path, spark: SparkSession) -> None:
    (copied / "flow.json").unlink()
    problem = only(verify(copied, spark=spark))
    assert problem.file == "flow.json"
    assert "put it back from a copy" in problem.way_out


@pytest.mark.parametrize("forget", [True, False])
def test_flow_json_cut_off(copied: Path, spark: SparkSession, forget: bool) -> None:
    cut_off(copied / "flow.json")
    if forget:
        forget_checksums(copied / "flow.json")
    problem = only(verify(copied, spark=spark))
    assert problem.file == "flow.json"
    assert "\n" not in str(problem)


def test_the_log_of_the_newest_epoch_cut_off(copied: Path, spark: SparkSession) -> None:
    for kind in ("offsets", "commits"):
        cut_off(copied / "spark" / kind / "3")
    offsets, commits = verify(copied, spark=spark)
    assert (offsets.file, commits.file) == ("spark/offsets/3", "spark/commits/3")
    assert offsets.way_out == (
        f"set the checkpoint back to epoch 2: python -m recovery rewind {copied} --epoch 2"
    )


@pytest.mark.parametrize("kind", ["offsets", "commits"])
def test_the_log_of_the_newest_epoch_is_not_a_log(
    copied: Path, spark: SparkSession, kind: str
) -> None:
    replace(copied / "spark" / kind / "3", "v2\n{}\n{")
    if kind == "offsets":
        assert only(verify(copied, spark=spark)).file == "spark/offsets/3"
    else:  # an epoch whose commit names no state
        assert verify(copied, spark=spark) != []


def test_the_log_of_an_epoch_that_is_not_finished(copied: Path, spark: SparkSession) -> None:
    (copied / "spark" / "commits" / "3").unlink()
    assert verify(copied, spark=spark) == []  # the next run does it again
    cut_off(copied / "spark" / "offsets" / "3")
    problem = only(verify(copied, spark=spark))
    assert problem.file == "spark/offsets/3"
    assert problem.way_out.endswith("--epoch 2")


def test_a_commit_without_its_offset(copied: Path, spark: SparkSession) -> None:
    (copied / "spark" / "offsets" / "3").unlink()
    problem = only(verify(copied, spark=spark))
    assert (problem.file, problem.problem) == ("spark/offsets/3", "is missing")
    assert problem.way_out.endswith("--epoch 2")


@pytest.mark.parametrize("kind", ["offsets", "commits"])
def test_the_log_of_an_earlier_epoch(copied: Path, spark: SparkSession, kind: str) -> None:
    (copied / "spark" / kind / "1").unlink()
    problem = only(verify(copied, spark=spark))
    assert (problem.file, problem.problem) == (f"spark/{kind}/1", "is missing")
    assert problem.way_out == "only setting the checkpoint back to epoch 1 needs it"


def test_the_log_of_a_source(copied: Path, spark: SparkSession) -> None:
    log = copied / "sources" / "names"
    (entry,) = log.glob("*.json")
    assert entry.name == "000000000.page.json"
    (log / "000000002.json").write_text("[]")
    problem = only(verify(copied, spark=spark))
    assert (problem.file, problem.problem) == ("sources/names/000000001.json", "is missing")
    (log / "000000001.json").write_text("{cut")
    problem = only(verify(copied, spark=spark))
    assert problem.file == "sources/names/000000001.json"
    assert problem.problem.startswith("is not JSON")
    cut_off(entry)
    broken = [Path(one.file).name for one in verify(copied, spark=spark)]
    assert broken == ["000000000.page.json", "000000001.json"]


def test_an_input_that_is_kept_as_files(copied: Path, spark: SparkSession) -> None:
    folder = copied / "inputs" / "rates"
    spark.createDataFrame([(1,)], "n int").coalesce(1).write.parquet(str(folder))
    assert verify(copied, spark=spark) == []
    (part,) = folder.glob("part-*.parquet")
    cut_off(part)
    problem = only(verify(copied, spark=spark))
    assert problem.file == name_in(copied, part)
    assert problem.problem == "is not what was written: its checksum is another"


def damage_missing(file: Path) -> str:
    file.unlink()
    return "is missing"


def damage_short(file: Path) -> str:
    size = file.stat().st_size
    cut_off(file)
    return f"has {size // 2} bytes, and had {size}"


def damage_changed(file: Path) -> str:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return "is not what was written: its checksum is another"


DAMAGES = [damage_missing, damage_short, damage_changed]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("epoch", [3, 1])
def test_a_changelog(
    copied: Path, spark: SparkSession, damage: Callable[[Path], str], epoch: int
) -> None:
    file = state_file(copied, epoch, "changelog")
    message = damage(file)
    problem = only(verify(copied, spark=spark))
    assert (problem.file, problem.problem) == (name_in(copied, file), message)
    assert problem.way_out.endswith(f"--epoch {epoch - 1}")


@pytest.mark.parametrize("epoch", [3, 1])
def test_a_truncated_changelog_without_a_checksum(
    copied: Path, spark: SparkSession, epoch: int
) -> None:
    file = state_file(copied, epoch, "changelog", partition=1)
    cut_off(file)
    forget_checksums(file)
    problem = only(verify(copied, spark=spark))
    assert problem.file == name_in(copied, file)
    assert problem.problem.startswith("cannot be read: ")
    assert problem.way_out.endswith(f"--epoch {epoch - 1}")


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_snapshot_under_changelogs(
    copied: Path, spark: SparkSession, damage: Callable[[Path], str]
) -> None:
    file = state_file(copied, 0, "zip")
    message = damage(file)
    problem = only(verify(copied, spark=spark))
    assert (problem.file, problem.problem) == (name_in(copied, file), message)
    assert "put it back from a copy" in problem.way_out


def test_a_truncated_snapshot_without_a_checksum(copied: Path, spark: SparkSession) -> None:
    file = state_file(copied, 0, "zip")
    cut_off(file)
    forget_checksums(file)
    problem = only(verify(copied, spark=spark))
    assert problem.file == name_in(copied, file)
    assert problem.problem.startswith("cannot be read: ")


def shared_file(checkpoint: Path) -> Path:
    (file, *_) = (checkpoint / "spark" / "state" / "0" / "0" / "SSTs").glob("0*.sst")
    return file


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_a_snapshot_lists(
    copied: Path, spark: SparkSession, damage: Callable[[Path], str]
) -> None:
    file = shared_file(copied)
    message = damage(file)
    problem = only(verify(copied, spark=spark))
    assert (problem.file, problem.problem) == (name_in(copied, file), message)


def test_the_metadata_of_the_state(copied: Path, spark: SparkSession) -> None:
    file = copied / "spark" / "state" / "0" / "_metadata" / "v2" / "0"
    version, content = file.read_text("utf-8").splitlines()
    cut_off(file)
    assert only(verify(copied, spark=spark)).file == name_in(copied, file)
    file.unlink()
    assert only(verify(copied, spark=spark)).problem == "is missing"

    described = json.loads(content)
    store = described["stateStoreInfo"][0]
    (uri,) = store["stateSchemaFilePaths"]
    schema = uri.rpartition("/")[2]
    # Another place has this file, once; and one of which nothing is here.
    for name, way_out in (
        (schema, f"python -m recovery relocate {copied}"),
        ("0_x", "put it back from a copy of the checkpoint, or start over on another one"),
    ):
        path = f"file:/elsewhere/checkpoint/spark/state/0/_stateSchema/default/{name}"
        store["stateSchemaFilePaths"] = [path]
        replace(file, f"{version}\n{json.dumps(described)}")
        problem = only(verify(copied, spark=spark))
        assert problem.problem.startswith(f"names {path}, which is not there")
        assert problem.way_out == way_out


def test_the_state_that_a_new_generation_starts_with(copied: Path, spark: SparkSession) -> None:
    kept = json.loads((copied / "flow.json").read_text("utf-8"))
    start = {"v": 1, "now": 5, "down": 0, "end": 0, "at": {}, "read": []}
    moved = {**kept, "generation": 1, "first_epoch": 4, "start": start}
    replace(copied / "flow.json", json.dumps(moved))
    problem = only(verify(copied, spark=spark))
    assert (problem.file, problem.problem) == ("seed-1", "is missing")
    (copied / "seed-1").mkdir()
    (copied / "seed-1" / "part-0.parquet").write_bytes(b"")
    assert verify(copied, spark=spark) == []


def test_a_directory_without_a_checkpoint_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(CheckpointError, match=r"is not a flow's checkpoint: it has no flow\.json"):
        verify(tmp_path, spark=spark)
