"""The commands of ``docs/how_to/upgrading.md``, from the page, on a small flow."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from recovery.__main__ import main as recovery_main
from tests.support.commandline import run_main

PAGE = Path(__file__).parents[2] / "docs/how_to/upgrading.md"

MODULE = """\
import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.connectors.files import JsonLinesSink, JsonLinesSource


def row(result):
    key, (window, totals) = result
    return {"origin": key, "hour": window.open_time.isoformat(), **totals}


def make_flow(out):
    flow = Dataflow("departures")
    flights = op.input("flights", flow, JsonLinesSource("in/*.jsonl"))
    hourly = win.aggregate_window(
        "hourly",
        op.key_on("by_origin", flights, "origin"),
        clock=win.EventClock("at", "0s"),
        windower=win.TumblingWindower("1h"),
        flights=win.Count(),
    )
    op.output("out", op.map("row", hourly.down, row), JsonLinesSink(out))
    return flow
"""
TEST_OPTIONS = ["--trigger", "available", "--no-drain", "--quiet", "--shards=2", "--partitions=1"]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the page's module and the first file of its input."""
    (tmp_path / "departures.py").write_text(MODULE)
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    add_file(tmp_path, 0)
    yield tmp_path
    sys.modules.pop("departures", None)


def add_file(work: Path, number: int) -> None:
    """Add a flight of each half hour of half a day."""
    flights = [
        {"origin": "JFK" if half % 3 else "EWR", "at": f"2024-01-0{number + 1}T{half // 2:02}:30Z"}
        for half in range(24)
    ]
    text = "".join(json.dumps(flight) + "\n" for flight in flights)
    (work / "in" / f"{number}.jsonl").write_text(text)


def commands(section: str) -> list[str]:
    """Return the lines of the shell blocks of a section of the page."""
    page = PAGE.read_text("utf-8")
    (text,) = re.findall(rf"^## {section}$(.*?)^## ", page, re.DOTALL | re.MULTILINE)
    return "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)).splitlines()


def execute(line: str) -> str:
    """Execute a command; those of this project in this process, on its Spark session."""
    words = shlex.split(line)
    if words[:3] == ["python", "-m", "flow.run"]:
        assert run_main([*words[3:], *TEST_OPTIONS]) == 0
        return ""
    if words[:3] == ["python", "-m", "recovery"]:
        assert recovery_main(words[3:]) == 0
        return ""
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.spark
@pytest.mark.extended
def test_green_on_a_copy_writes_what_blue_writes(spark: SparkSession, work: Path) -> None:
    before = "python -m flow.run 'departures:make_flow(\"out\")' --recovery checkpoint"
    execute(before)
    copy, *rest = commands("Blue and green")
    execute(copy)
    add_file(work, 1)
    said = [execute(line) for line in rest]
    assert said[-1] == "equal\n"
    files = work.glob("out-green/*/*.jsonl")
    rows = [line for file in files for line in file.read_text("utf-8").splitlines()]
    # Of each file 12 hours of JFK and 8 of EWR. The last one of each origin is open.
    assert len(rows) == len(set(rows)) == 2 * 20 - 2
