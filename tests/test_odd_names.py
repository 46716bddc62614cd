"""Names of files and directories with odd characters: a run, all tools, and connectors of files."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import (
    CsvSink,
    CsvSource,
    JsonLinesSink,
    JsonLinesSource,
    ParquetSink,
    ParquetSource,
    TextSource,
)
from flow.connectors.source import Source
from flow.testing import run_source
from recovery import RecoveryConfig, export, inspect, relocate, rescale, rewind, status, verify

EVERY_ODD_CHARACTER = "a b#c%20d[e]é'f\"g;h:i{j,k}+&=100%"
NAMES = ["a b", "a#b", "a%20b", "100%", "a[b]", "a{b,c}", "a+b&c=d", "añ日本", "a'b\"c", "a;b:c"]
"""Names with one character that is odd or another."""
EXTENDED = [pytest.param(name, marks=pytest.mark.extended) for name in NAMES]
ROWS = [{"k": "a", "at": n} for n in range(6)]


def write(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return file


@pytest.mark.extended
@pytest.mark.spark
@pytest.mark.parametrize("name", [EVERY_ODD_CHARACTER, *EXTENDED])
def test_a_checkpoint_may_have_an_odd_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    source = write(home / "in", name)
    checkpoint = home / name

    def once(rows_per_epoch: int, drain: bool) -> list[dict[str, Any]]:
        flow = Dataflow("odd")
        lines = JsonLinesSource(home / "in", bytes_per_epoch=rows_per_epoch * 24)
        keyed = op.key_on("keyed", op.input("in", flow, lines), "k")
        clock, windows = win.EventClock("at", "0s", on_idle="hold"), win.TumblingWindower("4s")
        counts = win.aggregate_window("counts", keyed, clock, windows, n=win.Count())
        rows = op.map("rows", counts.down, lambda one: {"n": one[1][1]["n"]})
        op.output("out", rows, JsonLinesSink(tmp_path / f"out of {name}"))
        recovery = RecoveryConfig(checkpoint)
        options: dict[str, Any] = {"shards": 2, "partitions": 1, "engine": "streaming"}
        run(flow, spark=spark, recovery=recovery, drain=drain, **options)
        found = ds.dataset(str(tmp_path / f"out of {name}"), format="json")
        return found.to_table().to_pylist() if found.files else []

    assert source.exists()
    assert once(3, False) == [{"n": 4}]
    assert verify(checkpoint, spark=spark) == []
    assert status(checkpoint, spark=spark).steps[0].open_windows == 1
    (key,) = inspect(checkpoint, "counts", spark=spark).keys
    assert key.key == "a"
    assert export(checkpoint, "counts", home / "state.parquet", spark=spark).keys == 1
    assert relocate(checkpoint, spark=spark).files == ()
    assert rewind(checkpoint, 0, yes=True, spark=spark).done
    assert rescale(checkpoint, shards=3, spark=spark).keys == 1
    assert once(3, True) == [{"n": 4}, {"n": 2}]
    assert verify(checkpoint, spark=spark) == []


@pytest.mark.parametrize("name", [EVERY_ODD_CHARACTER, *NAMES])
def test_sources_of_files_read_odd_names(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    lines = write(folder / "lines", name)
    (folder / "csv").mkdir()
    with (folder / "csv" / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["k", "at"])
        writer.writeheader()
        writer.writerows(ROWS)
    (folder / "parquet").mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "parquet" / f"{name}.parquet")
    sources: list[Source[Any]] = [
        JsonLinesSource(lines),
        JsonLinesSource(folder / "lines"),
        ParquetSource(folder / "parquet" / f"{name}.parquet"),
        ParquetSource(folder / "parquet"),
        CsvSource(folder / "csv"),
        CsvSource(folder / "csv" / f"{name}.csv"),
    ]
    for source in sources:
        found = [{"k": one["k"], "at": int(one["at"])} for one in run_source(source)]
        assert found == ROWS, source
    assert len(run_source(TextSource(lines))) == len(ROWS)


@pytest.mark.spark
@pytest.mark.parametrize("name", [EVERY_ODD_CHARACTER, *EXTENDED])
def test_sinks_of_files_write_odd_names(spark: SparkSession, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    flow = Dataflow("sinks")
    rows = op.input("in", flow, JsonLinesSource(write(folder, name)))
    sinks = {"json": JsonLinesSink, "csv": CsvSink, "parquet": ParquetSink}
    for form, sink in sinks.items():
        op.output(form, rows, sink(folder / form / name))  # type: ignore[abstract]
    run(flow, spark=spark, engine="batch", shards=1, partitions=1)
    for form in sinks:
        found = ds.dataset(str(folder / form / name), format=form).to_table().to_pylist()
        assert sorted(found, key=lambda row: row["at"]) == ROWS, form
