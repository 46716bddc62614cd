"""Runs on a damaged checkpoint: refused with the damaged file named and nothing changed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import CheckpointError, Dataflow, run
from flow.testing import EOF, TestingSink, TestingSource
from recovery import RecoveryConfig, verify
from tests.recovery.damage import cut_off, state_file

pytestmark = pytest.mark.spark


def total(kept: int | None, value: int) -> tuple[int, int]:
    return (kept or 0) + value, (kept or 0) + value


def make_flow(name: str = "damaged") -> Dataflow:
    flow = Dataflow(name)
    items = [*[("a", 1)] * 6, EOF(), ("a", 1)]
    stream = op.input("in", flow, TestingSource(items, batch_size=2))
    op.output("out", op.stateful_map("total", stream, total), TestingSink([]))
    return flow


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of four epochs, 0 to 3."""
    path = tmp_path_factory.mktemp("whole") / "checkpoint"
    recovery = RecoveryConfig(path)
    run(make_flow(), spark=spark, recovery=recovery, drain=False, shards=2, partitions=1)
    return path


def content(directory: Path) -> dict[str, str]:
    """Return a hash of every file of a directory, by path."""
    return {
        str(file.relative_to(directory)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }


def remove(file: Path) -> None:
    file.unlink()


def remove_it_and_the_one_before(file: Path) -> None:
    file.unlink()
    (file.parent / str(int(file.name) - 1)).unlink()


def newer(file: Path) -> None:
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({**kept, "version": 99}))
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def file_of(checkpoint: Path, name: str) -> Path:
    """A file by its name, or by what it is."""
    if name == "changelog":
        return state_file(checkpoint, 2, "changelog")
    file = checkpoint / name
    if file.name != "newest":
        return file
    return max(file.parent.iterdir(), key=lambda one: int(one.name) if one.name.isdecimal() else -1)


Damage = Callable[[Path], Any]

CASES: list[tuple[str, Damage, str]] = [
    ("spark/offsets/newest", cut_off, "spark/offsets/"),
    ("spark/offsets/2", cut_off, "spark/offsets/2 "),
    ("spark/commits/newest", cut_off, "spark/commits/"),
    ("spark/commits/newest", remove_it_and_the_one_before, "spark/commits/2 is missing"),
    ("changelog", cut_off, ".changelog "),
    ("changelog", remove, ".changelog is missing"),
    ("flow.json", remove, "has a Spark checkpoint but no flow.json"),
    ("flow.json", cut_off, "flow.json"),
    ("flow.json", newer, "was written in format 99"),
]


@pytest.mark.parametrize(
    ("name", "damage", "message"), CASES, ids=[f"{case[0]} {case[1].__name__}" for case in CASES]
)
def test_a_run_refuses_a_damaged_checkpoint_without_changing_it(
    name: str, damage: Damage, message: str, whole: Path, spark: SparkSession
) -> None:
    # Spark reads a checkpoint only in its own place, so the whole one is put aside meanwhile.
    aside = whole.with_name("aside")
    shutil.copytree(whole, aside)
    try:
        damage(file_of(whole, name))
        before = content(whole)
        with pytest.raises(CheckpointError) as caught:
            run(make_flow(), spark=spark, recovery=RecoveryConfig(whole), drain=False)
        assert message in str(caught.value)
        assert content(whole) == before
    finally:
        shutil.rmtree(whole)
        aside.rename(whole)


def test_unfinished_files_are_not_part_of_a_checkpoint(whole: Path, spark: SparkSession) -> None:
    aside = whole.with_name("aside")
    shutil.copytree(whole, aside)
    try:
        folders = [one for one in sorted(whole.rglob("*")) if one.is_dir()]
        for folder in folders:
            # As Spark calls a file until it is whole.
            (folder / ".9.ba0d684b-a06c-4a17-a57c-aeac7ee1d144.tmp").touch()
        assert whole / "spark/state/0/_metadata/v2" in folders
        assert verify(whole, spark=spark) == []
        summary = run(make_flow(), spark=spark, recovery=RecoveryConfig(whole), drain=False)
        assert summary.count("total", "in") == 1
    finally:
        shutil.rmtree(whole)
        aside.rename(whole)


def test_a_flow_resumes_from_a_whole_checkpoint(whole: Path, spark: SparkSession) -> None:
    summary = run(make_flow(), spark=spark, recovery=RecoveryConfig(whole), drain=False)
    assert summary.count("total", "in") == 1


def test_another_flows_checkpoint_is_refused(whole: Path, spark: SparkSession) -> None:
    before = content(whole)
    with pytest.raises(CheckpointError, match="is the checkpoint of flow 'damaged', not of 'x'"):
        run(make_flow("x"), spark=spark, recovery=RecoveryConfig(whole))
    assert content(whole) == before
