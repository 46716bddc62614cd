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

import flow.operators as op
import flow_windowing as win
from flow import CheckpointError, Dataflow
from flow.connectors.files import JsonLinesSink, ParquetSink
from flow.testing import EOF, TestDriver, TestingSource
from flow_windowing import EventClock, TumblingWindower
from recovery import rewind, status, verify
from tests.recovery.checkpoints import change_identity, identity_of, run_flow, tree
from tests.recovery.damage import state_file
from tests.recovery.kept_flow import run_on

pytestmark = pytest.mark.usefixtures("spark")

HOLD = EventClock("at", "10m", on_idle="hold")
FORMATS = {"windows": "json", "totals": "parquet"}


def values(first: int, last: int) -> list[Any]:
    """Values of three keys, 400 s apart."""
    return [("abc"[n % 3], {"at": n * 400, "n": n}) for n in range(first, last)]


def add_value(total: int | None, value: dict[str, int]) -> tuple[int, int]:
    made = (total or 0) + value["n"]
    return made, made


def make_flow(directory: Path, items: list[Any]) -> Dataflow:
    """Return a flow from a list to directories of Parquet and JSON lines."""
    flow = Dataflow("rewound")
    stream = op.input("in", flow, TestingSource(items, batch_size=2))
    windows = win.collect_window("collected", stream, HOLD, TumblingWindower("30m"))
    rows = op.map("rows", windows.down, lambda one: {"key": one[0], "window": one[1][1]})
    op.output("windows", rows, JsonLinesSink(directory / "windows"))
    totals = op.stateful_map("summed", stream, add_value)
    pairs = op.map("pairs", totals, lambda one: {"key": one[0], "total": one[1]})
    op.output("totals", pairs, ParquetSink(directory / "totals"))
    return flow


def as_text(rows: list[Any]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def test_outputs_after_a_rewind_equal_those_without_one(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert run_flow(path, make_flow(tmp_path, [*values(0, 7), EOF()])).epochs == 4
    found = rewind(path, 1, yes=True)
    assert (found.epoch, found.undone, found.done) == (1, (2, 3), True)
    assert status(path).epochs == (0, 1)
    assert verify(path) == []
    # Epochs 0 and 1 have read four of the values. Epoch 3 reads others than it did before.
    run_flow(path, make_flow(tmp_path, values(0, 10)), drain=True)
    driver = TestDriver(make_flow(tmp_path, []))
    driver.send("in", values(0, 10))
    driver.end()
    for name, form in FORMATS.items():
        rows = ds.dataset(tmp_path / name, format=form).to_table().to_pylist()
        assert as_text(rows) == as_text(driver.received(name))


def test_without_yes_nothing_is_changed(copied: Path) -> None:
    before = tree(copied)
    found = rewind(copied, 1)
    assert tree(copied) == before
    assert (found.undone, found.done, found.now) == ((2, 3), False, "2023-12-14T10:00:00Z")
    logs = [f"spark/{kind}/{epoch}" for epoch in (3, 2) for kind in ("commits", "offsets")]
    assert found.moved == (*logs, "flow.json")
    assert str(found).splitlines()[:4] == [
        f"{copied} would be set back to epoch 1, at 2023-12-14T10:00:00Z",
        "  the next run would do epochs 2 to 3 again",
        f"  5 files would be moved to {found.backup}",
        "nothing has been changed: give --yes to do it",
    ]


def test_removed_files_are_backed_up_with_a_note_on_undoing(copied: Path) -> None:
    before = tree(copied)
    found = rewind(copied, 1, yes=True)
    assert re.fullmatch(r"rewound-\d{8}T\d{6}\.\d{6}Z", found.backup)
    backup = copied / found.backup
    assert (backup / "spark/offsets/3").read_bytes() == before["spark/offsets/3"]
    assert not (copied / "spark/offsets/3").exists()

    note = (backup / "how-to-undo.txt").read_text("utf-8")
    (command,) = re.findall(r"^  (cp -r .*)$", note, re.MULTILINE)
    subprocess.run(command, shell=True, cwd=copied, check=True)
    shutil.rmtree(backup)
    assert tree(copied) == before
    assert status(copied).epochs == (0, 1, 2, 3)


def test_snapshots_of_later_state_are_moved_too(copied: Path) -> None:
    """Spark counts back from the last it finds when it removes old state."""
    first = state_file(copied, 0, "zip", partition=1)
    needed, later = (state_file(copied, epoch, "zip", partition=1) for epoch in (2, 3))
    for file in (needed, later):
        file.write_bytes(first.read_bytes())
    found = rewind(copied, 2)
    assert found.moved[2:] == (later.relative_to(copied).as_posix(), "flow.json")


def test_an_unfinished_epoch_is_removed(copied: Path) -> None:
    (copied / "spark" / "commits" / "3").unlink()
    found = rewind(copied, 2, yes=True)
    assert (found.undone, found.moved) == ((3,), ("spark/offsets/3", "flow.json"))
    assert status(copied).begun is None


def test_a_rewind_to_the_last_epoch_changes_nothing(copied: Path) -> None:
    before = tree(copied)
    found = rewind(copied, 3, yes=True)
    assert (found.undone, found.moved) == ((), ())
    assert str(found) == f"epoch 3 is the last of {copied} already: nothing to do"
    assert tree(copied) == before


def test_another_package_version_is_no_recorded_change(copied: Path) -> None:
    kept = identity_of(copied)["recovery"]
    older = {**kept, "fingerprint": {**kept["fingerprint"], "versions": {"pyspark": "4.2.9"}}}
    change_identity(copied, earlier=[[3, older]])
    assert rewind(copied, 3).moved == ()
    found = rewind(copied, 2)
    assert ("flow.json" in found.moved, found.restores_steps) == (True, False)


@pytest.mark.extended
def test_the_oldest_retained_epoch_is_refused_and_the_next_one_continues(copied: Path) -> None:
    """Spark starts from the offsets of an epoch and of the one before."""
    for kind in ("commits", "offsets"):
        for name in ("0", ".0.crc"):
            (copied / "spark" / kind / name).unlink(missing_ok=True)
    assert status(copied).epochs == (2, 3)
    before = tree(copied)
    problem = r"^no run can continue after epoch 1 of .* choose one of 2 to 3$"
    with pytest.raises(CheckpointError, match=problem):
        rewind(copied, 1, yes=True)
    assert tree(copied) == before
    assert rewind(copied, 2, yes=True).undone == (3,)
    run_on(copied.parent)
    assert verify(copied) == []


@pytest.mark.parametrize("yes", [True, pytest.param(False, marks=pytest.mark.extended)])
def test_an_epoch_that_is_not_kept_or_has_lost_its_state_is_refused(
    copied: Path, yes: bool
) -> None:
    file = state_file(copied, 2, "changelog")
    file.unlink()
    before = tree(copied)
    with pytest.raises(CheckpointError) as caught:
        rewind(copied, 2, yes=yes)
    assert str(caught.value) == (
        f"the state of epoch 2 is not whole: {file.relative_to(copied)} is missing in {copied}; "
        "the last epoch before it that is whole is 1"
    )
    with pytest.raises(CheckpointError, match=r"epoch 9 is not kept in .*; kept are 0 to 3"):
        rewind(copied, 9, yes=yes)
    assert tree(copied) == before
