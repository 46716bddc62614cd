"""Following files on Spark while the log of the list is compacted: stops and a rewind."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSink, TextSource, file_list
from flow.engine.feed import feed
from recovery import RecoveryConfig, rewind, status, verify


def numbered(count: int | None, line: str) -> tuple[int, dict[str, Any]]:
    return (count or 0) + 1, {"line": line, "count": (count or 0) + 1}


def count_lines(home: Path, spark: SparkSession, order: Any) -> None:
    """Count how often each line has come, a file an epoch, until there is nothing new."""
    flow = Dataflow("followed")
    source = TextSource(home / "in", bytes_per_epoch=8, follow=True, order=order)
    keyed = op.key_on("by_line", op.input("lines", flow, source), lambda line: line)
    rows = op.map("row", op.stateful_map("count", keyed, numbered), lambda pair: pair[1])
    op.output("out", rows, JsonLinesSink(home / "out"))
    recovery = RecoveryConfig(home / "checkpoint", keep_epochs=2)
    options: dict[str, Any] = {"shards": 1, "partitions": 1, "trigger": "available"}
    run(flow, spark=spark, recovery=recovery, drain=False, **options)


def put(home: Path, numbers: range) -> None:
    (home / "in").mkdir(exist_ok=True)
    for number in numbers:
        (home / "in" / f"{number:02d}").write_text(f"line {number:02d}\n")


def lines_and_counts(home: Path) -> list[tuple[str, int]]:
    """The lines of the output with their counts, sorted."""
    rows = [
        json.loads(line)
        for file in (home / "out").rglob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    return sorted((row["line"], row["count"]) for row in rows)


def log_of(home: Path) -> Counter[str]:
    """The kinds of files in the log of the list, each with their number."""
    names = [one.name for one in (home / "checkpoint" / "sources" / "lines").iterdir()]
    files = [name for name in names if not name.startswith(".")]
    assert {name for name in names if name.endswith(".crc")} <= {f".{one}.crc" for one in files}
    return Counter(name.partition(".")[2] for name in files)


#  run 1    00 .. 02      run 2    03 .. 05      rewound by an epoch      run 3    05 .. 06
@pytest.mark.extended
@pytest.mark.parametrize("order", ["sequence", "parallel"])
def test_a_stopped_and_rewound_flow_reads_each_file_once(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(file_list, "LEAST_FILES", 2)
    monkeypatch.setattr(feed, "RELEASE_EPOCHS", 1)
    checkpoint = tmp_path / "checkpoint"
    for first in (0, 3):
        put(tmp_path, range(first, first + 3))
        count_lines(tmp_path, spark, order)
    log = log_of(tmp_path)
    assert log["summary"] == 1
    assert log["page.json"] <= 2
    assert verify(checkpoint, spark=spark) == []
    oldest, *later = status(checkpoint, spark=spark).epochs
    assert later
    rewind(checkpoint, oldest, yes=True, spark=spark)
    put(tmp_path, range(6, 7))
    count_lines(tmp_path, spark, order)
    assert lines_and_counts(tmp_path) == [(f"line {number:02d}", 1) for number in range(7)]
