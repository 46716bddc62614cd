"""Runs that write an Iceberg table, killed around the commit of an epoch, and started again."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.faults.conftest import Watch
from tests.support import iceberg
from tests.support.faults import Child

pytest.importorskip("pyiceberg")

pytestmark = [pytest.mark.spark, pytest.mark.extended]

AT = 3


def start(home: Path, mode: str, point: str) -> Child:
    command = [sys.executable, "-m", "tests.faults.lake_child", str(home), mode, point]
    return Child.start([*command, str(AT)], home)


#  keys by epoch   0 1 4 | 4 1 0 | 1 4 4 | 1 0 1 | 4 4 1 | 0 1 4
@pytest.mark.parametrize(
    ("mode", "point"), [("upsert", "before"), ("upsert", "after"), ("append", "after")]
)
def test_a_run_killed_around_a_commit_loses_and_doubles_nothing(
    mode: str, point: str, tmp_path: Path, watched: Watch
) -> None:
    watched(start(tmp_path, mode, point)).die()
    epochs = [one["flow.epoch"] for one in iceberg.snapshots(tmp_path)]
    assert epochs == [str(epoch) for epoch in range(AT + (point == "after"))]
    with iceberg.opened(tmp_path) as table:
        table.maintenance.expire_snapshots().older_than(datetime(2100, 1, 1, tzinfo=UTC)).commit()
    watched(start(tmp_path, mode, "nowhere")).finish()
    rows = Counter((row["key"], row["n"]) for row in iceberg.rows_of(tmp_path))
    last = {"key 0": 4, "key 1": 7, "key 4": 7}
    if mode == "append":
        assert rows == Counter((key, n) for key in last for n in range(1, last[key] + 1))
    else:
        assert rows == Counter(last.items())
