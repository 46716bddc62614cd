"""Lateness on Spark while catching up, with backlogs of inputs, partitions and files."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EpochReport, FlowError, run
from flow.connectors.dataframe import DataFrameSource
from flow.connectors.files import JsonLinesSource
from flow.connectors.source import Source
from flow.engine.epoch.statistics import LateSource
from flow.execution import StopFlag
from flow.testing import ABORT, TestingSink, TestingSource
from recovery import RecoveryConfig

pytestmark = pytest.mark.spark
EXTENDED = pytest.mark.extended

HOUR = 3_600.0
MINUTE = 60


def rows(count: int, seed: int, disorder: float = 0.0) -> list[dict[str, Any]]:
    """Values spread over an hour, in the order of their arrival; `disorder` late at the most."""
    r = random.Random(seed)
    arrivals = sorted(r.uniform(0, HOUR) for _ in range(count))
    return [{"k": f"key {r.randrange(7)}", "at": at - r.uniform(0, disorder)} for at in arrivals]


def write(path: Path, values: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(value)}\n" for value in values))


class Counts:
    """A flow that counts values of each minute and key, and its results."""

    def __init__(self, *sources: Source[Any], joined: bool = False, wait: str = "0s") -> None:
        self.out: list[Any] = []
        self.late: list[Any] = []
        self.flow = Dataflow("counts")
        clock, minutes = win.EventClock("at", wait), win.TumblingWindower("1m")
        sides = [
            op.key_on(f"by key {n}", op.input(f"in {n}", self.flow, source), "k")
            for n, source in enumerate(sources)
        ]
        if joined:
            windows = win.join_window(
                "join", *sides, clock=clock, windower=minutes, insert_mode="product"
            )
        else:
            merged = op.merge("merge", *sides) if len(sides) > 1 else sides[0]
            windows = win.aggregate_window("count", merged, clock, minutes, n=win.Count())
        op.output("out", windows.down, TestingSink(self.out))
        op.output("late", windows.late, TestingSink(self.late))

    def totals(self) -> Counter[tuple[str, int]]:
        """The number of values of each key and minute."""
        found = [(key, meta.window_id) for key, (meta, _) in self.out]
        assert len(set(found)) == len(found), "a window came twice"
        return Counter({(key, meta.window_id): one["n"] for key, (meta, one) in self.out})


def expected(*inputs: Iterable[dict[str, Any]]) -> Counter[tuple[str, int]]:
    return Counter((row["k"], int(row["at"] // MINUTE)) for one in inputs for row in one)


@pytest.mark.parametrize(
    ("engine", "disorder"),
    [
        ("batch", 0),
        pytest.param("streaming", 30, marks=EXTENDED),
        pytest.param("batch", 30, marks=EXTENDED),
        pytest.param("streaming", 0, marks=EXTENDED),
    ],
)
def test_inputs_of_unequal_density_are_merged_with_nothing_late(
    spark: SparkSession, tmp_path: Path, engine: Any, disorder: int
) -> None:
    inputs = [rows(1_500, 1, disorder), rows(150, 2, disorder), rows(50, 3, disorder)]
    for n, values in enumerate(inputs):
        write(tmp_path / f"{n}.jsonl", values)
    sources = [JsonLinesSource(tmp_path / f"{n}.jsonl", bytes_per_epoch=25_000) for n in range(3)]
    counts = Counts(*sources, wait=f"{disorder}s")
    run(counts.flow, spark=spark, engine=engine, shards=2, partitions=1)
    assert counts.late == []
    assert counts.totals() == expected(*inputs)


@pytest.mark.parametrize("engine", ["batch", pytest.param("streaming", marks=EXTENDED)])
def test_inputs_of_unequal_density_are_joined_with_nothing_late(
    spark: SparkSession, tmp_path: Path, engine: Any
) -> None:
    dense, sparse = rows(3_000, 1), rows(100, 2)
    write(tmp_path / "dense.jsonl", dense)
    write(tmp_path / "sparse.jsonl", sparse)
    sources = [
        JsonLinesSource(tmp_path / f"{name}.jsonl", bytes_per_epoch=20_000)
        for name in ("dense", "sparse")
    ]
    counts = Counts(*sources, joined=True)
    run(counts.flow, spark=spark, engine=engine, shards=2, partitions=1)
    assert counts.late == []
    left, right = expected(dense), expected(sparse)
    pairs = Counter((key, meta.window_id) for key, (meta, _) in counts.out)
    assert pairs == Counter(
        {one: max(1, left[one]) * max(1, right[one]) for one in left.keys() | right.keys()}
    )


@pytest.mark.parametrize("engine", ["batch", pytest.param("streaming", marks=EXTENDED)])
def test_a_file_a_device_read_side_by_side_has_nothing_late(
    spark: SparkSession, tmp_path: Path, engine: Any
) -> None:
    devices = [rows(count, seed) for seed, count in enumerate((2_000, 40, 400, 1_000))]
    for n, values in enumerate(devices):
        write(tmp_path / f"in/device {n}.jsonl", values)
    source = JsonLinesSource(tmp_path / "in", bytes_per_epoch=20_000, order="parallel")
    counts = Counts(source)
    run(counts.flow, spark=spark, engine=engine, shards=2, partitions=1)
    assert counts.late == []
    assert counts.totals() == expected(*devices)


@pytest.mark.extended
@pytest.mark.parametrize("beside", [pytest.param(0, marks=EXTENDED), 20])
def test_a_backlog_that_spark_reads_has_nothing_late(
    spark: SparkSession, tmp_path: Path, beside: int
) -> None:
    """Four files, each in an epoch of its own; the input beside them is read at once."""
    files = [[{"k": "key 0", "at": n / 5 + at / 500} for at in range(100)] for n in range(4)]
    for n, values in enumerate(files):
        write(tmp_path / f"in/{n}.json", values)
        os.utime(tmp_path / f"in/{n}.json", (n, n))
    reader = spark.readStream.schema("k string, at double").option("maxFilesPerTrigger", 1)
    sources: list[Source[Any]] = [DataFrameSource(reader.json(str(tmp_path / "in")))]
    sparse = [{"k": "key 0", "at": 1.2 * at / beside} for at in range(beside)]
    if beside:
        sources.append(TestingSource(sparse))
    counts = Counts(*sources)
    options: dict[str, Any] = {"trigger": "available", "drain": True, "shards": 2, "partitions": 1}
    run(counts.flow, spark=spark, **options)
    assert counts.late == []
    assert counts.totals() == expected(*files, sparse)


@pytest.mark.extended
@pytest.mark.parametrize("engine", ["batch", "streaming"])
def test_a_run_reports_the_file_of_late_values(
    spark: SparkSession, tmp_path: Path, engine: Any
) -> None:
    in_order = [{"k": "key 0", "at": at} for at in range(3_000)]
    returning = [{"k": "key 0", "at": at} for at in (*range(0, 3_600, 10), 5, 6)]
    write(tmp_path / "in/device 0.jsonl", in_order)
    write(tmp_path / "in/device 1.jsonl", returning)
    counts = Counts(JsonLinesSource(tmp_path / "in", bytes_per_epoch=20_000, order="parallel"))
    summary = run(counts.flow, spark=spark, engine=engine, shards=2, partitions=1)
    assert [late.timestamp.timestamp() for _, late in counts.late] == [5, 6]
    name = f"{tmp_path / 'in/device 1.jsonl'} (input 'in 0')"
    assert summary.late_sources == {LateSource("count", name, name): 2}


@pytest.mark.extended
def test_a_stopped_and_resumed_backlog_gives_the_results_of_one_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    inputs = [rows(1_500, 1, 20), rows(100, 2, 20)]
    for n, values in enumerate(inputs):
        write(tmp_path / f"{n}.jsonl", values)
    sources = [JsonLinesSource(tmp_path / f"{n}.jsonl", bytes_per_epoch=20_000) for n in range(2)]
    counts = Counts(*sources, wait="20s")
    options: dict[str, Any] = {"spark": spark, "shards": 2, "partitions": 1}
    options["recovery"] = RecoveryConfig(str(tmp_path / "checkpoint"))
    for stop_after in (1, None):
        stop = StopFlag()

        def on_epoch(report: EpochReport, stop: Any = stop, last: Any = stop_after) -> None:
            if last is not None and report.epoch >= last:
                stop.ask()

        run(counts.flow, stop=stop, on_epoch=on_epoch, **options)
        assert (counts.totals() == expected(*inputs)) == (stop_after is None)
    assert counts.late == []


@pytest.mark.extended
#  dense    ▒▒▒▒▒▒▒▒ ✗ ▒▒▒▒▒▒▒▒▒▒▒▒     killed in the middle of both backlogs
#  sparse   ▒▒▒ ✗ ▒▒▒
def test_a_backlog_killed_within_an_epoch_gives_the_results_of_one_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    dense, sparse = rows(600, 1, 20), rows(60, 2, 20)
    dies: list[Any] = [*dense[:250], ABORT(), *dense[250:450], ABORT(), *dense[450:]]
    options: dict[str, Any] = {"spark": spark, "shards": 2, "partitions": 1, "system_time": 0}
    options["recovery"] = RecoveryConfig(str(tmp_path / "checkpoint"))
    counts = Counts(TestingSource(dies, 150), TestingSource(sparse, 20), wait="20s")
    runs = [run(counts.flow, **options) for _ in range(3)]
    assert [one.aborted for one in runs] == [True, True, False]
    assert counts.late == []
    assert counts.totals() == expected(dense, sparse)


#  far apart    dense ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒    an epoch reads 50 of 250 values of an hour, 20 of 60
#               sparse ▒▒ ▒▒ ▒▒ ▒▒ ▒▒    of an hour: every few epochs leave the sparse one out
@pytest.mark.parametrize(
    ("ends", "fails"),
    [
        pytest.param([None], False, marks=EXTENDED, id="uninterrupted"),
        pytest.param([2, None], False, marks=EXTENDED, id="stopped"),
        pytest.param([2, None], True, marks=EXTENDED, id="failed"),
    ],
)
def test_a_resumed_run_reads_its_inputs_in_the_epochs_of_an_uninterrupted_run(
    spark: SparkSession, tmp_path: Path, ends: list[int | None], fails: bool
) -> None:
    """Epochs that read the dense input alone postpone the sparse one."""
    options: dict[str, Any] = {"spark": spark, "shards": 2, "partitions": 1, "system_time": 0}
    options["engine"] = "streaming"
    options["recovery"] = RecoveryConfig(str(tmp_path / "checkpoint"), keep_epochs=3)
    counts = Counts(TestingSource(rows(250, 1), 50), TestingSource(rows(60, 2), 20))
    assert epochs_read(counts, ends, fails, options) == READ
    progress = {int(path.stem) for path in (tmp_path / "checkpoint/progress").glob("*.json")}
    assert progress == set(range(max(progress) - 3, max(progress) + 1))


READ = [(50, 20), (50, 20), (50, 0), (50, 20), (50, 0)]
"""The values of the dense and of the sparse input that each epoch reads."""


def epochs_read(
    counts: Counts, ends: Iterable[int | None], fails: bool, options: dict[str, Any]
) -> list[tuple[int, int]]:
    """Return how many values of each input the epochs with input read, over several runs.

    Args:
        counts: the flow.
        ends: the epoch in which each run ends; ``None`` to end with the input.
        fails: True if the runs fail before the epoch is finished, False if they stop after it.
        options: options of the runs.
    """
    read: dict[int, tuple[int, int]] = {}
    for last in ends:
        stop = StopFlag()

        def on_epoch(report: EpochReport, stop: StopFlag = stop, last: int | None = last) -> None:
            read[report.epoch] = (report.count("in 0", "out"), report.count("in 1", "out"))
            if last is not None and report.epoch >= last:
                if fails:
                    raise OSError("out of luck")
                stop.ask()

        failing = pytest.raises(FlowError) if fails and last is not None else nullcontext()
        with failing:
            run(counts.flow, stop=stop, on_epoch=on_epoch, **options)
    return [inputs for _, inputs in sorted(read.items()) if any(inputs)]
