"""Verification of a checkpoint: each kind of file missing, cut off or damaged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flow import CheckpointError
from recovery import Problem, verify
from tests.recovery.checkpoints import change_identity, tree
from tests.recovery.damage import cut_off, forget_checksums, replace, state_file

pytestmark = pytest.mark.usefixtures("spark")

CHANGED = "is not what was written: its checksum is another"
PUT_BACK = "put it back from a copy of the checkpoint, or start over on another one"
OFFSETS, COMMITS = "spark/offsets/", "spark/commits/"


def only(problems: list[Problem]) -> Problem:
    (problem,) = problems
    return problem


def test_a_whole_checkpoint_has_no_problem(copied: Path, spark: SparkSession) -> None:
    before = tree(copied)
    assert verify(copied, spark=spark) == []
    assert tree(copied) == before


def test_the_log_of_the_newest_epoch_cut_off(copied: Path) -> None:
    for log in (OFFSETS, COMMITS):
        cut_off(copied / log / "3")
    offsets, commits = verify(copied)
    assert (offsets.file, commits.file) == (f"{OFFSETS}3", f"{COMMITS}3")
    assert offsets.way_out == (
        f"set the checkpoint back to epoch 2: python -m recovery rewind {copied} --epoch 2"
    )


@pytest.mark.extended
def test_the_log_of_the_newest_epoch_is_not_a_log(copied: Path) -> None:
    replace(copied / COMMITS / "3", "v2\n{}\n{")  # names no state
    assert verify(copied) != []
    replace(copied / OFFSETS / "3", "v2\n{}\n{")
    assert f"{OFFSETS}3" in {problem.file for problem in verify(copied)}


@pytest.mark.extended
def test_the_log_of_an_epoch_that_is_not_finished(copied: Path) -> None:
    (copied / COMMITS / "3").unlink()
    assert verify(copied) == []  # the next run does it again
    cut_off(copied / OFFSETS / "3")
    problem = only(verify(copied))
    assert problem.file == f"{OFFSETS}3"
    assert problem.way_out.endswith("--epoch 2")


@pytest.mark.parametrize(
    ("file", "way_out"),
    [
        # Its commit is there.
        pytest.param(f"{OFFSETS}3", "--epoch 2", marks=pytest.mark.extended),
        (f"{OFFSETS}1", "only setting the checkpoint back to epoch 1 needs it"),
        pytest.param(
            f"{COMMITS}1",
            "only setting the checkpoint back to epoch 1 needs it",
            marks=pytest.mark.extended,
        ),
    ],
)
def test_a_missing_log(copied: Path, file: str, way_out: str) -> None:
    (copied / file).unlink()
    problem = only(verify(copied))
    assert (problem.file, problem.problem) == (file, "is missing")
    assert problem.way_out.endswith(way_out)


@pytest.mark.extended
def test_the_log_of_a_source(copied: Path) -> None:
    log = copied / "sources" / "names"
    (entry,) = log.glob("*.json")
    assert entry.name == "000000000.page.json"
    (log / "000000002.page.json").write_text('{"version": 1, "entries": []}')
    problem = only(verify(copied))
    assert (problem.file, problem.problem) == ("sources/names/000000001.page.json", "is missing")
    (log / "000000001.page.json").write_text("{cut")
    problem = only(verify(copied))
    assert problem.file == "sources/names/000000001.page.json"
    assert problem.problem.startswith("is not JSON")
    cut_off(entry)
    broken = [Path(one.file).name for one in verify(copied)]
    assert broken == ["000000000.page.json", "000000001.page.json"]


@pytest.mark.extended
def test_an_input_that_is_kept_as_files(copied: Path, spark: SparkSession) -> None:
    folder = copied / "inputs" / "rates"
    spark.createDataFrame([(1,)], "n int").coalesce(1).write.parquet(str(folder))
    assert verify(copied) == []
    (part,) = folder.glob("part-*.parquet")
    cut_off(part)
    problem = only(verify(copied))
    assert (problem.file, problem.problem) == (f"inputs/rates/{part.name}", CHANGED)


def remove(file: Path) -> str:
    file.unlink()
    return "is missing"


def shorten(file: Path) -> str:
    size = file.stat().st_size
    cut_off(file)
    return f"has {size // 2} bytes, and had {size}"


def shorten_without_a_checksum(file: Path) -> str:
    cut_off(file)
    forget_checksums(file)
    return "cannot be read: .*"


def change(file: Path) -> str:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return CHANGED


FILES: dict[str, Callable[[Path], Path]] = {
    "newest changelog": lambda copied: state_file(copied, 3, "changelog"),
    "earlier changelog": lambda copied: state_file(copied, 1, "changelog", partition=1),
    "snapshot under changelogs": lambda copied: state_file(copied, 0, "zip"),
    "file that a snapshot lists": lambda copied: min(copied.glob("spark/state/0/0/SSTs/0*.sst")),
}


@pytest.mark.parametrize("damage", [remove, shorten, shorten_without_a_checksum])
def test_the_metadata_of_the_flow(copied: Path, damage: Callable[[Path], str]) -> None:
    damage(copied / "flow.json")
    problem = only(verify(copied))
    assert problem.file == "flow.json"
    assert "put it back from a copy" in problem.way_out
    assert "\n" not in str(problem)


@pytest.mark.parametrize(
    ("name", "damages", "way_out"),
    [
        ("newest changelog", (remove, shorten, change), "--epoch 2"),
        ("earlier changelog", (shorten_without_a_checksum,), "--epoch 0"),
        pytest.param(
            "snapshot under changelogs",
            (remove, shorten, shorten_without_a_checksum, change),
            PUT_BACK,
            marks=pytest.mark.extended,
        ),
        ("file that a snapshot lists", (shorten,), PUT_BACK),
        pytest.param(
            "file that a snapshot lists", (remove, change), PUT_BACK, marks=pytest.mark.extended
        ),
    ],
)
def test_a_file_of_state_is_missing_cut_off_or_changed(
    name: str,
    damages: tuple[Callable[[Path], str], ...],
    way_out: str,
    copied: Path,
) -> None:
    file = FILES[name](copied)
    kept = {path: path.read_bytes() for path in file.parent.glob(f"*{file.name}*")}
    for damage in damages:
        message = damage(file)
        problem = only(verify(copied))
        assert problem.file == file.relative_to(copied).as_posix()
        assert re.fullmatch(message, problem.problem)
        assert problem.way_out.endswith(way_out)
        for path, content in kept.items():
            path.write_bytes(content)


@pytest.mark.extended
def test_the_metadata_of_the_state(copied: Path) -> None:
    name = "spark/state/0/_metadata/v2/0"
    version, content = (copied / name).read_text("utf-8").splitlines()
    cut_off(copied / name)
    assert only(verify(copied)).file == name
    (copied / name).unlink()
    assert only(verify(copied)).problem == "is missing"

    described = json.loads(content)
    store = described["stateStoreInfo"][0]
    (uri,) = store["stateSchemaFilePaths"]
    # Another place has this file, once; and one of which nothing is here.
    for schema, way_out in (
        (uri.rpartition("/")[2], f"python -m recovery relocate {copied}"),
        ("0_x", PUT_BACK),
    ):
        path = f"file:/elsewhere/checkpoint/spark/state/0/_stateSchema/default/{schema}"
        store["stateSchemaFilePaths"] = [path]
        replace(copied / name, f"{version}\n{json.dumps(described)}")
        problem = only(verify(copied))
        assert problem.problem.startswith(f"names {path}, which is not there")
        assert problem.way_out == way_out


def test_the_state_that_a_new_generation_starts_with(copied: Path) -> None:
    start = {"v": 1, "now": 5, "down": 0, "end": 0, "at": {}, "read": []}
    change_identity(copied, generation=1, first_epoch=4, start=start)
    problem = only(verify(copied))
    assert (problem.file, problem.problem) == ("seed-1/sums.json", "is missing")


def test_a_directory_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"is not a flow's checkpoint: it has no flow\.json"):
        verify(tmp_path)
