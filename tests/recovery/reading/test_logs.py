"""Logs of epochs in a later generation of a checkpoint."""

from __future__ import annotations

from typing import Any, cast

import pytest

from flow import CheckpointError
from flow.engine.checkpoint.identity import Identity
from recovery.reading.checkpoint_reader import CheckpointReader


class Logs:
    """Names of the logs of a checkpoint in its first later generation."""

    root = "here"

    @property
    def storage(self) -> Logs:
        return self

    def names(self, folder: str) -> list[str]:
        return ["0", "1"]

    def exists(self, name: str) -> bool:
        return name in {f"spark-1/{log}/{n}" for log in ("offsets", "commits") for n in (0, 1)}


def test_epochs_of_a_later_generation_go_on_counting() -> None:
    identity = Identity("f", "r", 4, 1, "4.3.0", "transformWithState", generation=1, first_epoch=40)
    checkpoint = CheckpointReader(cast("Any", Logs()), identity)
    assert (checkpoint.committed, checkpoint.batch(41)) == ([40, 41], 1)
    assert checkpoint.identity.log_file("commits", 41) == "spark-1/commits/1"
    with pytest.raises(CheckpointError, match="epoch 1 is not kept in here; kept are 40 to 41"):
        checkpoint.chosen(1)
