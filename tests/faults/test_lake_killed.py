"""Runs that write a table of a lakehouse, killed around a commit, and started again."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from tests.faults.conftest import Watch
from tests.support import delta, iceberg
from tests.support.faults import Child

pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")

pytestmark = [pytest.mark.spark, pytest.mark.extended]

AT = 3


def start(home: Path, lake: ModuleType, mode: str, point: str) -> Child:
    command = [sys.executable, "-m", "tests.faults.lake_child", str(home), lake.__name__]
    return Child.start([*command, mode, point, str(AT)], home)


#  keys by epoch   0 1 4 | 4 1 0 | 1 4 4 | 1 0 1 | 4 4 1 | 0 1 4
@pytest.mark.parametrize(
    ("mode", "point"), [("upsert", "before"), ("upsert", "after"), ("append", "after")]
)
@pytest.mark.parametrize("lake", [delta, iceberg])
def test_a_run_killed_around_a_commit_loses_and_doubles_nothing(
    lake: ModuleType, mode: str, point: str, tmp_path: Path, watched: Watch
) -> None:
    watched(start(tmp_path, lake, mode, point)).die()
    assert lake.epochs(tmp_path / "t") == list(range(AT + (point == "after")))
    lake.compact(tmp_path / "t")
    watched(start(tmp_path, lake, mode, "nowhere")).finish()
    rows = Counter((row["key"], row["n"]) for row in lake.rows_of(tmp_path / "t"))
    last = {"key 0": 4, "key 1": 7, "key 4": 7}
    if mode == "append":
        assert rows == Counter((key, n) for key in last for n in range(1, last[key] + 1))
    else:
        assert rows == Counter(last.items())
