"""The store of state in Spark with local copies, which always agree with Spark's state."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from flow.engine.spark import spark_store
from flow.engine.spark.session.spark_failures import StateLost
from flow.engine.spark.spark_store import SparkStore
from flow.engine.state.step_state import Header
from flow.engine.state.store import PROGRESS_SEGMENT
from flow.instants import NEVER

MANY = range(40)


class SparkState:
    """A `MapState` in a dict, in the place of Spark's and of the calls that reach it."""

    def __init__(self) -> None:
        self.kept: dict[Any, bytes] = {}
        self.reads = 0

    def getValue(self, key: Any) -> tuple[bytes] | None:
        self.reads += 1
        return (self.kept[key],) if key in self.kept else None

    def updateValue(self, key: Any, value: tuple[bytes]) -> None:
        self.kept[key] = value[0]

    def removeKey(self, key: Any) -> None:
        self.kept.pop(key, None)

    def get(self, keys: Iterable[Any]) -> list[bytes | None]:
        numbers = list(keys)
        self.reads += len(numbers)
        return [self.kept.get(key) for key in numbers]

    def put(self, values: Iterable[tuple[Any, bytes | None]]) -> None:
        for key, value in values:
            if value is None:
                self.kept.pop(key, None)
            else:
                self.kept[key] = value


class Shard:
    """One shard's state, as tasks on some machines see it."""

    def __init__(self, folder: Path | None, names: Mapping[str, str] | None = None) -> None:
        self.headers, self.segments = SparkState(), SparkState()
        self._folder, self._names = folder, names or {}

    def task(self, machine: str = "here") -> SparkStore:
        """The store of a task that has been called with the shard."""
        folder = None if self._folder is None else self._folder / machine
        store = SparkStore(self.headers, self.segments, self._names, folder)
        store.enter(3)
        return store

    def reads_of(self, numbers: Iterable[int]) -> tuple[list[bytes | None], int]:
        """Some segments, and how many of them Spark was asked for."""
        before, store = self.segments.reads, self.task()
        store.read_header("step")
        return store.read_segments("step", list(numbers)), self.segments.reads - before


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_store, "state_calls", lambda state: state)


def header_of(segments: int, keys: int = 7) -> bytes:
    return Header(np.full(segments, NEVER, np.int64), keys).encode()


def contents_of(numbers: Iterable[int], epoch: int = 0) -> dict[int, bytes | None]:
    return {number: f"{number} of epoch {epoch} ".encode() * 40 for number in numbers}


def write(store: SparkStore, contents: Mapping[int, bytes | None], segments: int = 40) -> None:
    store.read_header("step")
    store.write_segments("step", contents)
    store.write_header("step", header_of(segments))


def test_most_segments_of_a_shard_are_read_from_the_copy(tmp_path: Path) -> None:
    shard, contents = Shard(tmp_path), contents_of(MANY)
    write(shard.task(), contents)
    assert shard.reads_of(MANY) == (list(contents.values()), 0)


def test_few_segments_are_read_from_spark(tmp_path: Path) -> None:
    shard, contents = Shard(tmp_path), contents_of(MANY)
    write(shard.task(), contents)
    assert shard.reads_of([5, 6]) == ([contents[5], contents[6]], 2)


def test_segments_missing_in_the_copy_are_read_from_spark(tmp_path: Path) -> None:
    shard, first, then = Shard(tmp_path), contents_of(MANY), contents_of(range(20), epoch=1)
    write(shard.task(), first)
    write(shard.task(), then)
    assert shard.reads_of(MANY) == (list((first | then).values()), 20)


def test_a_later_write_of_a_segment_removes_the_copy(tmp_path: Path) -> None:
    shard, first, then = Shard(tmp_path), contents_of(MANY), contents_of([5], epoch=1)
    write(shard.task(), first)
    write(shard.task(), then)
    assert shard.reads_of(MANY) == (list((first | then).values()), 40)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_write_without_a_header_invalidates_the_copy(tmp_path: Path) -> None:
    shard, first, then = Shard(tmp_path), contents_of(MANY), contents_of([5], epoch=1)
    write(shard.task(), first)
    task = shard.task()
    task.write_segments("step", then)
    assert shard.headers.kept["step",] == header_of(40)
    assert shard.reads_of(MANY) == (list((first | then).values()), 40)


def test_writing_stream_progress_keeps_the_copy(tmp_path: Path) -> None:
    shard, contents = Shard(tmp_path), contents_of(MANY)
    write(shard.task(), contents)
    shard.task().write_segments("step", {PROGRESS_SEGMENT: b"far"})
    assert shard.reads_of(MANY) == (list(contents.values()), 0)
    assert shard.reads_of([PROGRESS_SEGMENT]) == ([b"far"], 1)


def test_on_another_machine_segments_are_read_from_spark(tmp_path: Path) -> None:
    shard, contents = Shard(tmp_path), contents_of(MANY)
    write(shard.task("there"), contents)
    assert shard.reads_of(MANY) == (list(contents.values()), 40)


def test_without_a_folder_nothing_is_copied() -> None:
    shard, contents = Shard(None), contents_of(MANY)
    write(shard.task(), contents)
    assert shard.headers.kept["step",] == header_of(40)
    assert shard.reads_of(MANY) == (list(contents.values()), 40)


def test_a_reader_without_copies_finds_the_header(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    write(shard.task(), contents_of(MANY))
    stamped = shard.headers.kept["step",]
    assert len(stamped) > len(header_of(40))
    assert Header.decode(stamped, "step").encode() == header_of(40)
    assert shard.task().read_header("step") == header_of(40)


def test_a_header_of_moved_state_names_no_copy(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    write(shard.task(), contents_of(MANY))
    task, moved = shard.task(), contents_of(MANY, epoch=1)
    task.put("step", None, shard.headers.kept["step",])
    for number, content in moved.items():
        task.put("step", number, content or b"")
    assert shard.reads_of(MANY) == (list(moved.values()), 40)


def test_dropped_segments_are_removed(tmp_path: Path) -> None:
    shard = Shard(tmp_path, {"step": "kept name"})
    write(shard.task(), contents_of(MANY))
    assert {name for name, _ in shard.segments.kept} == {"kept name"}
    shard.task().drop("kept name")
    assert (shard.headers.kept, shard.segments.kept) == ({}, {})
    assert shard.task().read_header("step") is None
    assert shard.reads_of(MANY)[0] == [None] * 40


def test_dropped_stream_progress_is_removed_from_a_shard_without_keys() -> None:
    shard = Shard(None)
    shard.task().write_segments("step", {PROGRESS_SEGMENT: b"far"})
    shard.task().drop("step")
    assert shard.segments.kept == {}


@pytest.mark.parametrize("seed", range(20))
def test_failed_and_moved_tasks_read_sparks_state(tmp_path: Path, seed: int) -> None:
    rng, shard = random.Random(seed), Shard(tmp_path)
    expected: dict[int, bytes | None] = {}
    for epoch in range(30):
        before = dict(shard.headers.kept), dict(shard.segments.kept)
        for attempt in range(3):
            task = shard.task(rng.choice("ab"))
            task.read_header("step")
            numbers = rng.sample(MANY, rng.choice([1, 10, 40]))
            assert task.read_segments("step", numbers) == [expected.get(one) for one in numbers]
            written = contents_of(rng.sample(MANY, rng.choice([0, 1, 10, 40])), epoch)
            written |= dict.fromkeys(rng.sample(MANY, rng.choice([0, 0, 3, 40])))
            if written:
                task.write_segments("step", written)
            if rng.random() < 0.7 or "step" not in {name for (name,) in shard.headers.kept}:
                task.write_header("step", header_of(40, epoch))
            if attempt == 2 or rng.random() < 0.5:
                expected |= written
                break
            shard.headers.kept, shard.segments.kept = dict(before[0]), dict(before[1])


def closed(*_: Any) -> Any:
    raise EOFError


@pytest.mark.parametrize("method", ["getValue", "updateValue", "get", "put"])
def test_a_closed_connection_names_full_disks(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shard, disks = Shard(None), Mock(full=Mock(return_value=("/data/checkpoint",)))
    store = SparkStore(shard.headers, shard.segments, {}, None, disks)
    store.check()
    monkeypatch.setattr(SparkState, method, closed)
    calls = {
        "getValue": lambda: store.read_header("step"),
        "updateValue": lambda: store.write_header("step", header_of(1)),
        "get": lambda: store.read_segments("step", [0]),
        "put": lambda: store.write_segments("step", contents_of([0])),
    }
    with pytest.raises(StateLost, match=r"^No space left on device: /data/checkpoint$"):
        calls[method]()
    with pytest.raises(StateLost, match=r"^No space"):  # whatever a step has made of the first
        store.check()


def test_a_closed_connection_names_no_disk_with_free_space(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Shard(None).task()
    monkeypatch.setattr(SparkState, "getValue", closed)
    with pytest.raises(StateLost, match=r"^EOFError$"):
        store.read_header("step")
