"""Readers of a view while its flow is killed and started again."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from flow.views import UnknownViewError, ViewError, open
from tests.faults.conftest import Watch
from tests.faults.stores_child import VIEW, VIEW_KEYS
from tests.support.faults import Child

pytestmark = [pytest.mark.spark, pytest.mark.extended]

EPOCHS, AT = 7, 4


class Seen(NamedTuple):
    """An answer: its epoch, the values in it, and the last epochs in Spark's logs.

    Attributes:
        epoch: the epoch that the answer names; -1 before the first.
        values: the values of all keys.
        done: the last epoch that was logged as done, before the answer.
        begun: the last epoch that was logged as begun, after the answer.
    """

    epoch: int
    values: frozenset[int]
    done: int
    begun: int


class Reader:
    """A thread that reads the whole view over and over."""

    def __init__(self, checkpoint: Path) -> None:
        self.seen: dict[Seen, None] = {}
        self._checkpoint = checkpoint
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def end(self) -> list[Seen]:
        """Return the different answers, in order."""
        self._ended.set()
        self._thread.join()
        return list(self.seen)

    def _read(self) -> None:
        while not self._ended.wait(0.005):
            done = self._logged("commits")
            try:
                page = open(self._checkpoint)[VIEW].range(limit=None)
            except (ViewError, UnknownViewError):
                continue  # Before the first run has made it.
            values = frozenset(entry.value for entry in page.entries)
            epoch = -1 if page.epoch is None else page.epoch
            self.seen[Seen(epoch, values, done, self._logged("offsets"))] = None

    def _logged(self, log: str) -> int:
        folder = self._checkpoint / "spark" / log
        names = [file.name for file in folder.iterdir()] if folder.exists() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reading = Reader(tmp_path / "checkpoint")
    yield reading
    reading.end()


def start(home: Path, point: str) -> Child:
    command = [sys.executable, "-m", "tests.faults.stores_child", str(home), "view"]
    return Child.start([*command, str(EPOCHS), point, str(AT)], home)


@pytest.mark.parametrize(
    ("point", "left"),
    [("before commit", AT - 1), ("before state", AT - 1), ("after commit", AT)],
)
def test_a_reader_sees_whole_committed_epochs_only(
    point: str, left: int, tmp_path: Path, reader: Reader, watched: Watch
) -> None:
    watched(start(tmp_path, point)).die()
    page = open(tmp_path / "checkpoint")[VIEW].range(limit=None)
    assert (page.epoch, {entry.value for entry in page.entries}) == (left, {left})
    watched(start(tmp_path, "nowhere")).finish()
    time.sleep(0.1)
    seen = [answer for answer in reader.end() if answer.epoch >= 0]
    assert {answer.epoch for answer in seen} >= {left, EPOCHS - 1}
    for answer in seen:
        assert answer.values == {answer.epoch}, (
            "an answer has all values of its epoch, and no other"
        )
        assert answer.done <= answer.epoch <= answer.begun, "an epoch that is done is in the view"
    epochs = [answer.epoch for answer in seen]
    assert epochs == sorted(epochs), "no epoch is taken back"
    page = open(tmp_path / "checkpoint")[VIEW].range(limit=None)
    assert [entry.key for entry in page.entries] == sorted(VIEW_KEYS)
