"""Following files on Spark while the log of the list is compacted: stops, kills and rewinds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from recovery import rewind, status, verify
from tests.support.followed_files import compact_at_once, count_lines

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[1]


def put(home: Path, *numbers: int) -> None:
    (home / "in").mkdir(exist_ok=True)
    for number in numbers:
        written = home / f".{number}"
        written.write_text(f"line {number:02d}\n")
        written.rename(home / "in" / f"{number:02d}")


def counts(home: Path) -> dict[str, list[int]]:
    """Return the counts of each line in the output."""
    lines = [
        json.loads(line)
        for file in sorted((home / "out").rglob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    found: dict[str, list[int]] = {}
    for row in lines:
        found.setdefault(row["line"], []).append(row["count"])
    return {line: sorted(found[line]) for line in sorted(found)}


def each_once(*numbers: int) -> dict[str, list[int]]:
    return {f"line {number:02d}": [1] for number in numbers}


def log_of(home: Path) -> Counter[str]:
    """The kinds of files in the log of the list, each with their number."""
    names = [one.name for one in (home / "checkpoint" / "sources" / "lines").iterdir()]
    files = [name for name in names if not name.startswith(".")]
    assert {name for name in names if name.endswith(".crc")} <= {f".{one}.crc" for one in files}
    return Counter(name.partition(".")[2] for name in files)


@pytest.mark.parametrize("order", ["sequence", "parallel"])
def test_a_repeatedly_stopped_flow_reads_each_file_once(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    compact_at_once(monkeypatch.setattr)
    for first in (0, 5, 10):
        put(tmp_path, *range(first, first + 5))
        count_lines(tmp_path, spark, order)
    assert counts(tmp_path) == each_once(*range(15))
    log = log_of(tmp_path)
    assert log["summary"] == 1
    assert log["page.json"] <= 2
    assert verify(tmp_path / "checkpoint", spark=spark) == []


def test_a_rewound_checkpoint_finds_its_files_again(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    compact_at_once(monkeypatch.setattr)
    checkpoint = tmp_path / "checkpoint"
    put(tmp_path, *range(9))
    count_lines(tmp_path, spark)
    assert log_of(tmp_path)["summary"] == 1
    oldest, *later = status(checkpoint, spark=spark).epochs
    assert later
    rewind(checkpoint, oldest, yes=True, spark=spark)
    put(tmp_path, 9)
    count_lines(tmp_path, spark)
    assert counts(tmp_path) == each_once(*range(10))


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_killed_during_a_compaction_resumes(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    compact_at_once(monkeypatch.setattr)
    for first in (0, 3):
        put(tmp_path, *range(first, first + 3))
        count_lines(tmp_path, spark)
    assert log_of(tmp_path)["summary"] == 1
    put(tmp_path, *range(6, 9))
    command = [sys.executable, "-m", "tests.support.followed_child", str(tmp_path), when]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert log_of(tmp_path)["summary"] == 2, "the one that is replaced is there still"
    assert verify(tmp_path / "checkpoint", spark=spark) == []
    count_lines(tmp_path, spark)
    assert counts(tmp_path) == each_once(*range(9))
    put(tmp_path, *range(9, 13))
    count_lines(tmp_path, spark)
    assert counts(tmp_path) == each_once(*range(13))
    assert log_of(tmp_path)["summary"] == 1
