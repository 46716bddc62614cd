"""Logs of epochs: their retention, and the order of their removal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from flow import CheckpointError
from flow.engine.checkpoint.checkpoint import Identity
from recovery.reading.checkpoint import CheckpointReader
from recovery.tools.rewinding import _logs


class Logs:
    """Names of the logs of a checkpoint."""

    root = "here"

    def __init__(self, offsets: Sequence[int], commits: Sequence[int]) -> None:
        self._numbers = {"spark/offsets": set(offsets), "spark/commits": set(commits)}

    def exists(self, name: str) -> bool:
        folder, _, number = name.rpartition("/")
        return int(number) in self._numbers[folder]

    def names(self, folder: str) -> list[str]:
        return sorted(map(str, self._numbers[folder]))

    def remove(self, name: str) -> None:
        folder, _, number = name.rpartition("/")
        self._numbers[folder].remove(int(number))

    def checkpoint(self) -> CheckpointReader:
        identity = Identity("f", "r", 4, 1)
        return CheckpointReader(cast("Any", None), cast("Any", self), identity)


@pytest.mark.parametrize("commits", [range(6), range(5)])
def test_an_interrupted_removal_leaves_valid_logs(commits: Sequence[int]) -> None:
    """At any time the last epoch is one that was committed, or one to be done again."""
    logs = Logs(range(6), commits)
    for name in list(_logs(logs.checkpoint(), [3, 4, 5])):
        logs.remove(name)
        remaining = logs.checkpoint()
        last = remaining.committed[-1]
        assert remaining.committed == list(range(last + 1))
        assert remaining.begun in (None, last + 1)
        assert remaining.logged == list(range(last + (1 if remaining.begun is None else 2)))
    assert (logs.checkpoint().committed, logs.checkpoint().begun) == ([0, 1, 2], None)


def test_epochs_of_a_later_generation_go_on_counting() -> None:
    logs = Logs([0, 1], [0, 1])
    logs._numbers = {f"spark-1/{name[6:]}": of for name, of in logs._numbers.items()}
    identity = Identity("f", "r", 4, 1, generation=1, first_epoch=40)
    checkpoint = CheckpointReader(cast("Any", None), cast("Any", logs), identity)
    assert (checkpoint.committed, checkpoint.batch(41)) == ([40, 41], 1)
    assert checkpoint.log_file("commits", 41) == "spark-1/commits/1"
    with pytest.raises(CheckpointError, match="epoch 1 is not kept in here; kept are 40 to 41"):
        checkpoint.chosen(1)
