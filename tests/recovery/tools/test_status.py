"""Summary of a checkpoint by `status`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flow import CheckpointError, FlowError
from recovery import StepStatus, status
from recovery.reading.checkpoint_reader import open_checkpoint
from recovery.reading.epoch_state import EpochState, totals
from tests.recovery.checkpoints import change_identity, identity_of, used_by_a_run

pytestmark = pytest.mark.usefixtures("spark")


def test_summarises_a_checkpoint(
    checkpoint: Path, spark: SparkSession, printed: Callable[..., str]
) -> None:
    found = status(checkpoint, spark=spark)
    run_id = identity_of(checkpoint)["run_id"]
    assert (found.path, found.flow, found.run_id) == (str(checkpoint), "visits", run_id)
    assert (found.shards, found.partitions, found.generation) == (4, 2, 0)
    assert (found.epochs, found.last, found.begun) == ((0, 1, 2, 3), 3, None)
    assert (found.now, found.ended, found.in_use) == ("2023-12-14T10:00:00Z", False, None)
    # Six values and the mark of the end of the list; all of the one file.
    assert [(one.step, one.offset) for one in found.sources] == [
        ("clicks", 7),
        ("names", {"file": 1, "at": 0}),
    ]
    assert [
        (one.step, one.keys, one.open_windows, one.buffered_values, one.due) for one in found.steps
    ] == [
        # Each key has the window from 10:00 to 11:00; nothing but data moves the watermark, for
        # which 11:00 of a and 10:40 of b wait.
        ("hourly", 2, 2, 2, None),
        # They wait for ten minutes more.
        ("sessions", 2, 2, 2, "2023-12-14T10:10:00Z"),
        # By the stream's own time the windows close at 11:00.
        ("whole", 2, 2, 1, "2023-12-14T11:00:00Z"),
        ("baskets", 2, None, None, None),
        ("counts", 2, None, None, None),
        ("named", 1, None, None, None),
    ]
    assert all(one.bytes > 0 and one.segments >= 1 for one in found.steps)

    for_programs = json.loads(printed("status", checkpoint, "--json"))
    assert for_programs["epochs"] == [0, 1, 2, 3]
    assert StepStatus(**for_programs["steps"][1]).due == "2023-12-14T10:10:00Z"


def test_counts_windows_and_not_keys(checkpoint: Path) -> None:
    first = EpochState(open_checkpoint(checkpoint), 0)
    assert totals(first.headers()["hourly"]).counts == (0, 2)  # the value of each key waits


def test_is_a_table_for_people(checkpoint: Path, printed: Callable[..., str]) -> None:
    lines = printed("status", checkpoint).splitlines()
    assert lines[0] == f"flow visits, checkpoint {checkpoint}"
    assert lines[1].endswith(", 4 shards, 2 partitions")
    assert lines[2] == "last epoch 3 at 2023-12-14T10:00:00Z; epochs kept: 0 to 3"
    assert lines[4:7] == ["source  offset", "clicks  7", 'names   {"file": 1, "at": 0}']
    head, hourly, sessions, *_ = lines[8:]
    assert head.split("  ")[0] == "step"
    assert head.endswith("open windows  buffered values  next due")
    assert (hourly.split()[0], hourly.split()[4:]) == ("hourly", ["2", "2", "never"])
    assert sessions.split()[4:] == ["2", "2", "2023-12-14T10:10:00Z"]


def test_reports_an_unfinished_epoch(copied: Path) -> None:
    (copied / "spark" / "commits" / "3").unlink()
    found = status(copied)
    assert (found.epochs, found.last, found.begun) == ((0, 1, 2), 2, 3)
    assert found.sources[0].offset == 6
    assert "epoch 3 was begun and not finished: the next run does it again" in str(found)


def test_a_checkpoint_without_a_finished_epoch_has_no_state(copied: Path) -> None:
    for file in (copied / "spark" / "commits").iterdir():
        file.unlink()
    found = status(copied)
    assert (found.epochs, found.last, found.now, found.steps) == ((), None, None, ())
    assert "no epoch is finished" in str(found)


def test_a_new_generation_starts_where_the_last_one_ended(copied: Path) -> None:
    start = {"v": 1, "now": 5, "down": 0, "end": 0, "at": {"clicks": 7}, "read": []}
    change_identity(copied, generation=1, first_epoch=4, start=start)
    found = status(copied)
    assert (found.generation, found.epochs, found.last) == (1, (), None)
    assert [(one.step, one.offset) for one in found.sources] == [("clicks", 7), ("names", None)]


def test_names_the_process_that_uses_the_checkpoint(copied: Path) -> None:
    with used_by_a_run(copied):
        assert f"process {os.getpid()} on " in str(status(copied).in_use)
    (copied / "lock.1.json").write_text("not JSON")
    assert status(copied).in_use == "lock.1.json, which cannot be read"


def test_steps_are_listed_by_id_and_removed_steps_last(copied: Path) -> None:
    kept = identity_of(copied)["recovery"]
    keyed = kept["fingerprint"]["keyed"]
    keyed["new counts"] = keyed.pop("counts")
    del keyed["hourly"]
    change_identity(copied, recovery={**kept, "names": {"new counts": "counts"}})
    steps = {one.step: one.open_windows for one in status(copied).steps}
    assert list(steps.items())[-2:] == [("new counts", None), ("hourly", 2)]
    assert "counts" not in steps


def test_a_directory_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"^there is no directory .*nowhere$"):
        status(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"is not a flow's checkpoint: it has no flow\.json"):
        status(tmp_path)
    newer = {"version": 99, "flow_id": "f", "run_id": "r", "shards": 4, "partitions": 1}
    (tmp_path / "flow.json").write_text(json.dumps(newer))
    with pytest.raises(CheckpointError, match=r"flow\.json has format 99, .* run the version that"):
        status(tmp_path)
    with pytest.raises(FlowError, match="a checkpoint needs a directory's path, got int 7"):
        status(7)  # type: ignore[arg-type]
