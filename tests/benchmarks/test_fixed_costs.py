"""Flows that measure the fixed cost of an epoch."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.windows.large_state import Touches
from benchmarks.windows.small_epochs import SKIPPED, TIMED, flow_of_levels
from flow.testing import TestDriver, run_source


# The second level waits a minute longer than its results take.
@pytest.mark.parametrize(("levels", "waiting"), [(1, 1), (2, 3)])
def test_each_item_closes_a_window(tmp_path: Path, levels: int, waiting: int) -> None:
    flow = flow_of_levels(levels, str(tmp_path / "out"))
    source = flow.step("events").operator.source  # type: ignore[attr-defined]
    assert len(source.items) == SKIPPED + TIMED
    with TestDriver(flow) as driver:
        for item in source.items[:10]:
            driver.send("events", [item])
        assert len(driver.received("out")) == 10 - waiting


def test_the_second_level_sums_the_results_of_the_first(tmp_path: Path) -> None:
    flow = flow_of_levels(2, str(tmp_path / "out"))
    with TestDriver(flow) as driver:
        for minute in range(4):
            driver.send("events", [("key", {"ts": 60.0 * minute, "amount": 1.0})])
        driver.end()
        totals = [figures["total"] for _, (_, figures) in driver.received("out")]
        assert totals == [1.0] * 4


def test_every_key_arrives_once_before_any_key_arrives_again() -> None:
    source = Touches(keys=10, per_epoch=4, touched=3, touches=2)
    assert source.loads == 3
    keys = [row["key"] for row in run_source(source)]
    assert sorted(keys[:10]) == sorted(f"key-{number}" for number in range(10))
    assert len(keys) == 10 + 2 * 3
    assert set(keys[10:]) <= set(keys[:10])
