"""File sources, driven as an engine drives them: plan, log, read in another place, continue."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings

from flow.connectors.source import BadInput, Invalid, Json, MemoryLog, Slice, Source, Split
from tests.support.sampling import ORDINARY, Test


def sampled_reads(test: Test) -> Test:
    """Return a property that reads files: 10 examples in an ordinary run, else 60."""
    ordinary = settings.get_current_profile_name() == ORDINARY
    examples, checks = 10 if ordinary else 60, [HealthCheck.function_scoped_fixture]
    chosen = settings(deadline=None, max_examples=examples, suppress_health_check=checks)
    return pytest.mark.sampled(chosen(test))


class JsonLog(MemoryLog):
    """A log that stores entries as JSON."""

    def append(self, entry: Json) -> None:
        super().append(json.loads(json.dumps(entry)))


@dataclass
class Run:
    """Items and bad lines that a run has read, with its slices and their ends."""

    items: list[Any] = field(default_factory=list)
    bad: list[BadInput] = field(default_factory=list)
    slices: list[list[Split]] = field(default_factory=list)
    ends: list[Json] = field(default_factory=list)
    items_at_end: list[int] = field(default_factory=list)

    @property
    def bad_lines(self) -> list[int]:
        return [int(one.where.rpartition(" ")[2]) for one in self.bad]


def run(
    source: Source[Any], parallelism: int = 1, log: MemoryLog | None = None, start: Json = None
) -> Run:
    """Play the engine: offsets and splits become JSON, the source is pickled to the workers."""
    source = pickle.loads(pickle.dumps(source))
    planner = source.planner(JsonLog() if log is None else log, parallelism)
    done = Run()
    while (planned := planner.next(start)) is not None:
        splits = [
            Split(json.loads(json.dumps(s.what)), s.partition, s.order) for s in planned.splits
        ]
        assert [split.order for split in splits] == list(range(len(splits)))
        assert {split.partition for split in splits} == {0}
        assert 1 <= len(splits) <= parallelism
        for split in splits:
            collect(source, split, done)
        assert planned.end != start
        assert not planner.finished(start)
        start = json.loads(json.dumps(planned.end))
        done.slices.append(splits)
        done.ends.append(start)
        done.items_at_end.append(len(done.items))
    assert planner.finished(start) == source.bounded
    return done


def first_slice(source: Source[Any], parallelism: int = 1) -> Slice:
    """Plan the first slice of a source."""
    planned = source.planner(JsonLog(), parallelism).next(None)
    assert planned is not None
    return planned


def collect(source: Source[Any], split: Split, done: Run) -> None:
    for batch in source.read(split):
        if isinstance(batch, Invalid):
            done.bad += batch.inputs
        else:
            done.items += batch.to_pylist() if isinstance(batch, pa.RecordBatch) else batch


def items(source: Source[Any]) -> list[Any]:
    done = run(source)
    assert done.bad == []
    return done.items


def only_bad(source: Source[Any]) -> BadInput:
    (bad,) = run(source).bad
    return bad


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def split_sizes(done: Run) -> list[list[int]]:
    return [
        [sum(piece["end"] - piece["start"] for piece in split.what) for split in splits]
        for splits in done.slices
    ]


def parquet(path: Path, start: int, end: int, group: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = list(range(start, end))
    table = pa.table({"n": numbers, "text": [str(n) for n in numbers]})
    pq.write_table(table, path, row_group_size=group)
    return path
