"""The epochs of a `TestingSource`."""

from __future__ import annotations

from flow.connectors.source import MemoryLog
from flow.testing import ABORT, TestingSource


def test_an_abort_after_the_last_item_of_an_epoch_fails_that_epoch() -> None:
    source = TestingSource(["a", "b", ABORT(), "c"], batch_size=2)
    part = source.planner(MemoryLog(), 1).next(None)
    assert part is not None
    assert part.abort
    assert [list(source.read(split)) for split in part.splits] == [[["a", "b"]]]


def test_a_run_fails_once_at_the_abort_of_a_checkpoint() -> None:
    """Over Spark Connect each run has a copy of the mark, which the program made."""
    log = MemoryLog()
    parts = [
        TestingSource(["a", ABORT(), "b"], batch_size=1).planner(log, 1).next(None)
        for _ in range(2)
    ]
    assert [part is not None and part.abort for part in parts] == [True, False]
