"""Progress of inputs: which inputs are far ahead, and the log of it in a checkpoint."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from flow.engine.checkpoint.storage import LocalStorage
from flow.engine.feed.input_progress import InputProgress, ProgressLog

SECOND = 1_000_000
BOTH = frozenset({("fast", 0), ("slow", 0)})
GROUPS = [("fast", "slow")]


def after(*epochs: dict[str, int]) -> InputProgress:
    """Return the progress after epochs, given by the seconds that their inputs reach."""
    progress = InputProgress()
    for epoch in epochs:
        reached = {(name, 0): seconds * SECOND for name, seconds in epoch.items()}
        progress = progress.after(reached, epoch.keys(), BOTH)
    return progress


# --- inputs that are far ahead ----------------------------------------------------------------


EARLY, LATER = {"fast": 50, "slow": 10}, {"fast": 100, "slow": 20}

#  lead of fast over slow    40 s · 80 s      slow gains 10 s an epoch: known from its second on
AHEAD: dict[str, tuple[list[Any], Any, Any, set[str]]] = {
    "a gain that is not known": ([EARLY], GROUPS, BOTH, set()),
    "a lead over the gain": ([EARLY, LATER], GROUPS, BOTH, {"fast"}),
    "a lead of a gain": ([{"fast": 15, "slow": 10}, {"fast": 30, "slow": 20}], GROUPS, BOTH, set()),
    "read to its end": ([EARLY, LATER], GROUPS, {("fast", 0)}, set()),
    "no progress of the other": ([{"fast": 50}, {"fast": 100}], GROUPS, BOTH, set()),
    "inputs of different steps": ([EARLY, LATER], [("fast",), ("slow",)], BOTH, set()),
}


@pytest.mark.parametrize(("epochs", "groups", "unread", "ahead"), AHEAD.values(), ids=AHEAD)
def test_an_input_is_ahead_once_its_lead_exceeds_what_the_last_input_gains(
    epochs: list[Any], groups: Any, unread: Any, ahead: set[str]
) -> None:
    assert after(*epochs).ahead(groups, unread) == ahead


def test_an_input_keeps_its_gain_while_it_is_postponed() -> None:
    progress = after(EARLY, LATER, {"slow": 25})
    assert progress.gained == {"fast": 50 * SECOND, "slow": 5 * SECOND}
    assert progress.reached["fast", 0] == 100 * SECOND


def test_the_least_partition_of_an_input_counts() -> None:
    progress = InputProgress({("in", 0): 7, ("in", 1): 5})
    assert progress.least({("in", 0), ("in", 1)}) == {"in": 5}
    assert progress.least({("in", 0)}) == {"in": 7}


def test_progress_survives_json() -> None:
    progress = after(EARLY, LATER)
    assert InputProgress.from_json(progress.to_json()) == progress


# --- the log in a checkpoint ------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> ProgressLog:
    return ProgressLog(LocalStorage(str(tmp_path)), kept_epochs=2)


def test_the_log_has_the_progress_after_retained_epochs(log: ProgressLog, tmp_path: Path) -> None:
    for epoch in range(5):
        log.write(epoch, InputProgress({("in", 0): epoch}))
    assert {path.name for path in (tmp_path / "progress").iterdir()} == {
        "2.json",
        "3.json",
        "4.json",
    }
    assert log.read(3).reached == {("in", 0): 3}
    assert log.read(1) == log.read(9) == log.read(-1) == InputProgress()


def test_the_log_removes_progress_of_epochs_no_longer_kept(
    log: ProgressLog, tmp_path: Path
) -> None:
    for epoch in range(3):
        log.write(epoch, InputProgress())
    (tmp_path / "progress/notes.txt").touch()
    log.remove_before(2)
    assert {path.name for path in (tmp_path / "progress").iterdir()} == {"2.json", "notes.txt"}


@pytest.mark.parametrize("content", ["", "[]", '{"reached": [[1]], "gained": {}}', "null"])
def test_a_damaged_file_is_reported_and_counts_as_no_progress(
    log: ProgressLog, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    log.write(0, InputProgress({("in", 0): 1}))
    (tmp_path / "progress/0.json").write_text(content)
    with caplog.at_level(logging.WARNING, "flow"):
        assert log.read(0) == InputProgress()
    (record,) = caplog.records
    assert f"{tmp_path}/progress/0.json is damaged" in record.getMessage()
