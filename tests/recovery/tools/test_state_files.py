"""Lineage of a version of the state: the snapshot and changelogs that it is made of."""

from __future__ import annotations

from typing import Any, cast

import pytest

from flow import CheckpointError
from flow.engine.checkpoint.identity import Identity
from recovery.reading.checkpoint_reader import CheckpointReader, EpochLog, StateIds
from recovery.reading.file_problems import FileProblem
from recovery.tools.verifying import StateFiles, check_state, newest_whole

FOLDER = "spark/state/0/0"

EVERY = ["5_e.zip", "6_f.changelog", "7_g.changelog", "8_h.zip", "8_h.changelog", "9_i.changelog"]
LINEAGES = {
    "6_f.changelog": [(5, "e")],
    "7_g.changelog": [(5, "e"), (6, "f")],
    "8_h.changelog": [(5, "e"), (6, "f"), (7, "g")],
    "9_i.changelog": [(8, "h")],
}
IDS = {5: "e", 6: "f", 7: "g", 8: "h", 9: "i"}


class Files:
    """State of one partition: versions 5 to 9, with snapshots of 5 and of 8."""

    root = "here"

    def __init__(self, missing: str = "") -> None:
        self.read: list[str] = []
        self._there = {f"{FOLDER}/{name}" for name in EVERY if name != missing}
        self._there |= {f"{FOLDER}/SSTs/{part}.sst" for part in ("five", "eight")} - {missing}
        self._there.add("spark/state/0/_metadata/v2/0")

    @property
    def storage(self) -> Files:
        return self

    def exists(self, name: str) -> bool:
        return name in self._there

    def names(self, folder: str) -> list[str]:
        batches = {"spark/offsets", "spark/commits"}
        if folder in batches:
            return [str(version - 1) for version in IDS]
        return ["0"] if folder.endswith("/_metadata/v2") else []

    def text(self, name: str) -> str:
        self.check(name)
        return 'v2\n{"stateStoreInfo": []}'

    def check(self, name: str) -> None:
        self.read.append(name.removeprefix(f"{FOLDER}/"))
        if name not in self._there:
            raise FileProblem(name, "is missing")

    def size(self, name: str) -> int:
        return 7

    def changelog_lineage(self, name: str, codec: str) -> list[tuple[int, str]]:
        assert codec == "zstd"
        return LINEAGES[name.removeprefix(f"{FOLDER}/")]

    def snapshot_parts(self, name: str) -> list[tuple[str, int]]:
        return [("five.sst" if "/5_" in name else "eight.sst", 7)]


class StubReader(CheckpointReader):
    """A checkpoint with valid logs."""

    @property
    def spark_files(self) -> Any:  # type: ignore[override]
        return self.files

    def log(self, epoch: int) -> EpochLog:
        return EpochLog(cast("Any", None), (), "zstd")

    def commit(self, epoch: int) -> StateIds:
        return {0: (IDS[epoch + 1],)}


def kept(files: Files) -> StubReader:
    identity = Identity("f", "r", 4, 1, "4.3.0", "transformWithState")
    return StubReader(cast("Any", files), identity)


@pytest.mark.parametrize(
    ("epoch", "needed"),
    [
        (4, ["5_e.zip", "SSTs/five.sst"]),
        (5, ["6_f.changelog", "5_e.zip", "SSTs/five.sst"]),
        (6, ["7_g.changelog", "5_e.zip", "SSTs/five.sst", "6_f.changelog"]),
        (7, ["8_h.zip", "SSTs/eight.sst"]),
        (8, ["9_i.changelog", "8_h.zip", "SSTs/eight.sst"]),
    ],
)
def test_a_version_is_the_last_snapshot_and_later_changelogs(epoch: int, needed: list[str]) -> None:
    files = Files()
    assert StateFiles(kept(files)).problems(epoch) == []
    assert files.read[1:] == needed  # after what says how the state is kept


@pytest.mark.parametrize(
    ("missing", "broken"),
    [
        ("5_e.zip", {4, 5, 6}),
        (f"{FOLDER}/SSTs/five.sst", {4, 5, 6}),
        ("6_f.changelog", {5, 6}),
        ("7_g.changelog", {6}),
        # With the snapshot gone, version 8 is version 7 and what changed; 9 knows no other way.
        ("8_h.zip", {8}),
        ("8_h.changelog", set()),
        ("9_i.changelog", {8}),
    ],
)
def test_a_missing_file_breaks_the_versions_that_need_it(missing: str, broken: set[int]) -> None:
    state = StateFiles(kept(Files(missing)))
    problems = {epoch: state.problems(epoch) for epoch in range(4, 9)}
    assert {epoch for epoch, found in problems.items() if found} == broken
    named = {one.file.removeprefix(f"{FOLDER}/") for found in problems.values() for one in found}
    assert named <= {missing.removeprefix(f"{FOLDER}/"), "5_e.changelog"}


def test_changelogs_back_to_the_first_version_need_its_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark would load them, and take one variable for another."""
    monkeypatch.setitem(LINEAGES, "6_f.changelog", [(1, "a")])
    (problem,) = StateFiles(kept(Files())).problems(5)
    assert (problem.file, problem.problem) == (f"{FOLDER}/1_a.zip", "is missing")


def test_names_the_last_complete_epoch() -> None:
    checkpoint = kept(Files("7_g.changelog"))
    assert newest_whole(checkpoint, 6) == 5
    assert newest_whole(kept(Files("5_e.zip")), 6) is None
    with pytest.raises(CheckpointError) as caught:
        check_state(checkpoint, 6)
    assert str(caught.value) == (
        f"the state of epoch 6 is not whole: {FOLDER}/7_g.changelog is missing in here; "
        "the last epoch before it that is whole is 5"
    )
