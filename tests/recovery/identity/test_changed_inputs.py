"""Inputs that change between runs: new input is read, or the run is refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typing_extensions import override

import flow.operators as op
import flow_windowing as win
from flow import CheckpointError, Dataflow
from flow.connectors.dataframe import DataFrameSource
from flow.connectors.files import JsonLinesSource
from flow.connectors.source import Json, PartitionedSource, Source
from flow.engine.plan.compiler import compile_flow
from flow.errors import FlowTypeError
from flow.execution import StopFlag
from flow.testing import TestingSink
from recovery import RecoveryConfig
from recovery.identity.fingerprint import Effect, compare, fingerprint, input_continues
from tests.recovery.checkpoints import run_flow

DAYS = [1_700_006_400 + 86_400 * day for day in range(3)]
"""Midnights, in Unix seconds."""


def write(path: Path, day: int, count: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"k": "k", "at": DAYS[day] + 3_600 * hour} for hour in range(count)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


class Job:
    """A flow that counts values by day and by key, for several runs on one checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint

    def run(
        self, source: Source[Any], reset_steps: Sequence[str] = (), **options: Any
    ) -> tuple[list[int], list[int]]:
        """Return how many values each day that has closed has, and the running totals."""
        daily: list[Any] = []
        totals: list[Any] = []
        flow = Dataflow("job")
        keyed = op.key_on("keyed", op.input("in", flow, source), "k")
        counts = win.aggregate_window(
            "daily", keyed, win.EventClock("at", "1h"), win.TumblingWindower("1d"), n=win.Count()
        )
        op.output("days", counts.down, TestingSink(daily))
        running = op.stateful_map("total", keyed, lambda count, _: ((count or 0) + 1,) * 2)
        op.output("totals", running, TestingSink(totals))
        recovery = RecoveryConfig(self._checkpoint, reset_steps=reset_steps)
        options = {"drain": None, "system_time": None, "engine": "streaming", **options}
        run_flow(self._checkpoint, flow, recovery=recovery, **options)
        return [figures["n"] for _, (_, figures) in daily], [total for _, total in totals]


@pytest.fixture
def job(tmp_path: Path, spark: SparkSession) -> Job:
    return Job(tmp_path / "checkpoint")


@pytest.mark.extended
def test_a_daily_job_over_another_directory_reads_it(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for day in range(3):
        write(tmp_path / f"data/{day}/a.jsonl", day, day + 2)
    assert job.run(JsonLinesSource(tmp_path / "data/0")) == ([2], [1, 2])
    assert caplog.messages == []
    assert job.run(JsonLinesSource(tmp_path / "data/1")) == ([3], [3, 4, 5])
    assert caplog.messages == [
        f"{tmp_path}/checkpoint: step 'in' reads something else: "
        f"paths was ['{tmp_path}/data/0'] and is ['{tmp_path}/data/1']: "
        "files that are listed already are read to their end, then those that are new",
        f"1 file is new since the run before, such as {tmp_path}/data/1/a.jsonl: "
        "read after those that were there",
    ]
    assert job.run(JsonLinesSource(tmp_path / "data/*")) == ([4], [6, 7, 8, 9])


@pytest.mark.extended
def test_a_following_source_with_a_new_end_reads_later_files(job: Job, tmp_path: Path) -> None:
    write(tmp_path / "data/0.jsonl", 0, 3)
    stop = StopFlag()
    following = JsonLinesSource(tmp_path / "data", follow=True)
    found = job.run(following, stop=stop, on_epoch=lambda *_: stop.ask())
    assert found == ([], [1, 2, 3])
    write(tmp_path / "data/1.jsonl", 1, 4)
    assert job.run(JsonLinesSource(tmp_path / "data")) == ([3, 4], [4, 5, 6, 7])


@pytest.mark.extended
def test_a_static_data_frame_of_another_folder_is_refused_until_its_input_is_reset(
    job: Job, spark: SparkSession, tmp_path: Path
) -> None:
    for day in range(2):
        write(tmp_path / f"data/{day}/a.json", day, day + 2)

    def frame(folder: str) -> DataFrameSource:
        return DataFrameSource(spark.read.schema("k string, at long").json(f"{tmp_path}/{folder}"))

    assert job.run(frame("data/0")) == ([2], [1, 2])
    assert job.run(frame("data/0")) == ([], [])
    with pytest.raises(CheckpointError, match=r"folders was .*data/0.* and is .*data/1") as caught:
        job.run(frame("data/1"))
    assert "reset these steps: RecoveryConfig(..., reset_steps=['in'])" in str(caught.value)
    assert job.run(frame("data/1"), reset_steps=["in"]) == ([3], [3, 4, 5])


def test_a_static_data_frame_that_streams_now_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "a.json", 0, 2)
    schema = "k string, at long"
    static = DataFrameSource(spark.read.schema(schema).json(str(tmp_path)))
    streaming = DataFrameSource(spark.readStream.schema(schema).json(str(tmp_path)))
    assert static.continues(streaming.identity()) is None
    assert streaming.continues(static.identity()) is None


class Shelf(PartitionedSource[Any]):
    """User-written source that identifies its offsets."""

    def __init__(self, name: Any, rows: Sequence[Any], on: str | None = None) -> None:
        self.name, self.rows, self.on = name, rows, on

    @override
    def identity(self) -> Json:
        return {"shelf": self.name}

    @override
    def continues(self, before: Json) -> str | None:
        return self.on

    @override
    def partitions(self) -> Sequence[str]:
        return ["all"]

    @override
    def first_offset(self, partition: str) -> Json:
        return 0

    @override
    def next_offset(self, partition: str, start: Json) -> Json | None:
        return None if start == len(self.rows) else len(self.rows)

    @override
    def read_partition(self, partition: str, start: Json, end: Json) -> Iterable[Sequence[Any]]:
        yield self.rows[start:end]


def test_a_source_of_another_identity_says_whether_it_goes_on() -> None:
    def found(now: Shelf) -> list[tuple[Effect, str]]:
        plans = []
        for source in (Shelf("a", []), now):
            flow = Dataflow("f")
            op.output("out", op.input("in", flow, source), TestingSink([]))
            plans.append(compile_flow(flow))
        changes = compare(*map(fingerprint, plans), input_continues(plans[1]))
        return [(one.effect, one.what) for one in changes]

    other = "reads something else: shelf was 'a' and is 'b'"
    assert found(Shelf("a", [])) == []
    assert found(Shelf("b", [])) == [(Effect.WRONG_STATE, other)]
    assert found(Shelf("b", [], on="its rows continue")) == [
        (Effect.CONTINUES, f"{other}: its rows continue")
    ]


@pytest.mark.extended
def test_a_user_written_source_identifies_its_offsets(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"k": "k", "at": DAYS[0] + n} for n in range(4)]
    assert job.run(Shelf("a", rows[:2])) == ([2], [1, 2])
    refused = r"step 'in': reads something else: shelf was 'a' and is 'b'"
    with pytest.raises(CheckpointError, match=refused):
        job.run(Shelf("b", rows))
    assert job.run(Shelf("b", rows, on="its rows continue"))[1] == [3, 4]
    assert caplog.messages == [
        f"{tmp_path}/checkpoint: step 'in' reads something else: "
        "shelf was 'a' and is 'b': its rows continue"
    ]


def test_an_identity_must_be_json(tmp_path: Path) -> None:
    flow = Dataflow("f")
    op.output("out", op.input("in", flow, Shelf({1, 2}, [])), TestingSink([]))
    with pytest.raises(FlowTypeError, match=r"step 'in': Shelf\.identity\(\) must return JSON"):
        fingerprint(compile_flow(flow))


def test_identities_of_files_are_absolute_and_without_credentials() -> None:
    source = JsonLinesSource(["s3://me:secret@bucket/b", "/data//a"])
    assert source.identity() == {"paths": ["/data/a", "s3://bucket/b"]}
