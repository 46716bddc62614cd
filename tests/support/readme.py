"""The flow of the README: its code, its input and its results."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq

README = Path(__file__).parents[2] / "README.md"


def code_block(heading: str) -> str:
    """Return the first Python block below a heading."""
    section = README.read_text("utf-8").split(f"\n## {heading}\n", 1)[1]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    if found is None:
        raise AssertionError(f"no Python block below {heading!r}")
    return found[1]


def write_departures(folder: Path) -> None:
    """Write the input of the flow in twenty lines: three departures on time, and a late one."""
    departures = [("JFK", "09:10", 5.0), ("JFK", "09:40", 7.0), ("JFK", "10:50", 1.0)]
    late = [("JFK", "09:50", 60.0)]
    lines = [
        json.dumps({"origin": origin, "departed_at": f"2013-01-01T{at}:00Z", "dep_delay": delay})
        for origin, at, delay in departures + late
    ]
    (folder / "data").mkdir()
    (folder / "data" / "flights.jsonl").write_text("\n".join(lines))


def check_departures(folder: Path) -> None:
    """Check the results of the flow in twenty lines."""
    rows = pq.read_table(folder / "out").sort_by("window_id").to_pylist()
    results = [
        (row["key"], row["open_time"].hour, row["flights"], row["delay"], row["worst"])
        for row in rows
    ]
    assert results == [("JFK", 9, 2, 6.0, [7.0, 5.0]), ("JFK", 10, 1, 1.0, [1.0])]
    (written,) = (folder / "late").rglob("*.txt")
    assert "2013-01-01T09:50:00Z" in written.read_text()
