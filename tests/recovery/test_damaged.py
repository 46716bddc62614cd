"""Runs on a damaged checkpoint: refused with the damaged file named and nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import CheckpointError, Dataflow
from flow.testing import EOF, TestingSink, TestingSource
from recovery import verify
from tests.recovery.checkpoints import Prepared, change_identity, run_flow, tree
from tests.recovery.damage import cut_off, state_file


def total(kept: int | None, value: int) -> tuple[int, int]:
    return (kept or 0) + value, (kept or 0) + value


def make_flow() -> Dataflow:
    flow = Dataflow("damaged")
    items = [*[("a", 1)] * 6, EOF(), ("a", 1)]
    stream = op.input("in", flow, TestingSource(items, batch_size=2))
    op.output("out", op.stateful_map("total", stream, total), TestingSink([]))
    return flow


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A checkpoint of four epochs, 0 to 3."""
    path = tmp_path_factory.mktemp("whole") / "checkpoint"
    return Prepared(path, lambda path: run_flow(path, make_flow()))


@pytest.fixture
def whole(prepared: Prepared) -> Path:
    return prepared.restored()


def remove(file: Path) -> None:
    file.unlink()


def remove_it_and_the_one_before(file: Path) -> None:
    file.unlink()
    (file.parent / str(int(file.name) - 1)).unlink()


def newer(file: Path) -> None:
    change_identity(file.parent, version=99)


EXTENDED = [("spark/offsets/2", cut_off), ("spark/commits/3", cut_off), ("changelog", remove)]
CASES: list[tuple[str, Callable[[Path], Any], str]] = [
    ("spark/offsets/3", cut_off, "spark/offsets/3 "),
    ("spark/offsets/2", cut_off, "spark/offsets/2 "),
    ("spark/commits/3", cut_off, "spark/commits/3 "),
    ("spark/commits/3", remove_it_and_the_one_before, "spark/commits/2 is missing"),
    ("changelog", cut_off, ".changelog "),
    ("changelog", remove, ".changelog is missing"),
    ("flow.json", remove, "has a Spark checkpoint but no flow.json"),
    ("flow.json", cut_off, "flow.json"),
    ("flow.json", newer, "flow.json has format 99"),
]


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        pytest.param(
            *(name, damage, message),
            marks=[pytest.mark.extended] if (name, damage) in EXTENDED else [],
            id=f"{name} {damage.__name__}",
        )
        for name, damage, message in CASES
    ],
)
def test_a_run_refuses_a_damaged_checkpoint_without_changing_it(
    name: str, damage: Callable[[Path], Any], message: str, whole: Path
) -> None:
    damage(state_file(whole, 2, "changelog") if name == "changelog" else whole / name)
    before = tree(whole)
    with pytest.raises(CheckpointError) as caught:
        run_flow(whole, make_flow())
    assert message in str(caught.value)
    assert tree(whole) == before


def test_unfinished_files_are_not_part_of_a_checkpoint(whole: Path) -> None:
    folders = [one for one in sorted(whole.rglob("*")) if one.is_dir()]
    for folder in folders:
        # As Spark calls a file until it is whole.
        (folder / ".9.ba0d684b-a06c-4a17-a57c-aeac7ee1d144.tmp").touch()
    assert whole / "spark/state/0/_metadata/v2" in folders
    assert verify(whole) == []
    assert run_flow(whole, make_flow()).count("total", "in") == 1
