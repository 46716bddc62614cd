"""Runs that write a table of a lakehouse, killed around a commit, and started again."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.faults.conftest import Watch
from tests.support import iceberg, lakes
from tests.support.faults import Child

pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")

pytestmark = [pytest.mark.spark, pytest.mark.extended]

AT = 3


def start(home: Path, table_format: str, mode: str, point: str) -> Child:
    command = [
        sys.executable,
        "-m",
        "tests.faults.lake_child",
        str(home),
        table_format,
        mode,
        point,
    ]
    return Child.start([*command, str(AT)], home)


def epochs(home: Path) -> list[int]:
    """Return the epochs that an Iceberg table or a Delta table has."""
    if (home / "t").exists():
        numbers = [
            [one["txn"]["version"] for one in each if "txn" in one]
            for each in lakes.commits(home / "t")
        ]
        # A commit also has the number of rewinds, 0; the first creates the table.
        return [max(pair) for pair in numbers if pair]
    return [int(one["flow.epoch"]) for one in iceberg.snapshots(home)]


def expire(home: Path) -> None:
    """Remove the snapshots before the newest from an Iceberg table."""
    with iceberg.opened(home) as table:
        table.maintenance.expire_snapshots().older_than(datetime(2100, 1, 1, tzinfo=UTC)).commit()


#  keys by epoch   0 1 4 | 4 1 0 | 1 4 4 | 1 0 1 | 4 4 1 | 0 1 4
@pytest.mark.parametrize(
    ("mode", "point"), [("upsert", "before"), ("upsert", "after"), ("append", "after")]
)
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_run_killed_around_a_commit_loses_and_doubles_nothing(
    table_format: str, mode: str, point: str, tmp_path: Path, watched: Watch
) -> None:
    watched(start(tmp_path, table_format, mode, point)).die()
    assert epochs(tmp_path) == list(range(AT + (point == "after")))
    if table_format == "iceberg":
        expire(tmp_path)
    watched(start(tmp_path, table_format, mode, "nowhere")).finish()
    found = lakes.rows_of(tmp_path / "t") if table_format == "delta" else iceberg.rows_of(tmp_path)
    rows = Counter((row["key"], row["n"]) for row in found)
    last = {"key 0": 4, "key 1": 7, "key 4": 7}
    if mode == "append":
        assert rows == Counter((key, n) for key in last for n in range(1, last[key] + 1))
    else:
        assert rows == Counter(last.items())
