"""The flow of the README."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

README = (Path(__file__).parents[1] / "README.md").read_text()


def code_block(heading: str) -> str:
    """The first Python block below a heading."""
    section = README.split(f"\n## {heading}\n", 1)[1]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    if found is None:
        raise AssertionError(f"no Python block below {heading!r}")
    return found[1]


@pytest.mark.spark
def test_the_flow_in_twenty_lines_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spark  # started, so that the flow runs in it
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    departures = [("JFK", "09:10", 5.0), ("JFK", "09:40", 7.0), ("JFK", "10:50", 1.0)]
    late = [("JFK", "09:50", 60.0)]
    lines = [
        json.dumps({"origin": origin, "departed_at": f"2013-01-01T{at}:00Z", "dep_delay": delay})
        for origin, at, delay in departures + late
    ]
    (tmp_path / "data" / "flights.jsonl").write_text("\n".join(lines))
    exec(code_block("A flow in twenty lines"), {"__name__": "departures"})
    rows = pq.read_table(tmp_path / "out").sort_by("window_id").to_pylist()
    figures = [
        (row["key"], row["open_time"].hour, row["flights"], row["delay"], row["worst"])
        for row in rows
    ]
    assert figures == [("JFK", 9, 2, 6.0, [7.0, 5.0]), ("JFK", 10, 1, 1.0, [1.0])]
    (written,) = (tmp_path / "late").rglob("*.txt")
    assert "2013-01-01T09:50:00Z" in written.read_text()
